"""The settings of a workspace, and what a toolset is made of: refused by name before anything is opened."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

import devtools_lsp
from devtools_lsp import Decision, DevToolset, Workspace
from devtools_lsp.config import parse_configuration
from devtools_lsp.errors import InvalidConfigError
from tests.toolset.gates import RecordingGate


def test_the_package_names_its_public_values():
    from devtools_lsp.app import create_dev_pipeline

    assert set(devtools_lsp.__all__) <= set(dir(devtools_lsp))
    assert devtools_lsp.create_dev_pipeline is create_dev_pipeline
    for name in devtools_lsp.__all__:
        assert getattr(devtools_lsp, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Toolset'"):
        _ = devtools_lsp.Toolset  # type: ignore[attr-defined]


def test_a_workspace_has_the_defaults_of_a_daemon_without_configuration(root: Path):
    configuration = parse_configuration({})
    assert Workspace(root).configuration() == configuration
    assert Workspace(root).bash_timeout_s == configuration.file.shell.timeout_s


def test_a_workspace_is_a_value(root: Path):
    workspace = Workspace(str(root), True, False, 5, 2048, False, ["PATH"])
    assert workspace == Workspace(
        root=root,
        read_only=True,
        allow_bash=False,
        bash_timeout_s=5.0,
        max_output_bytes=2048,
        inherit_env=False,
        env_allow=("PATH",),
    )
    assert hash(workspace) == hash(dataclasses.replace(workspace))
    assert dataclasses.replace(workspace, read_only=False).read_only is False
    with pytest.raises(dataclasses.FrozenInstanceError):
        workspace.read_only = False  # type: ignore[misc]
    with pytest.raises(InvalidConfigError, match="bash_timeout_s"):
        dataclasses.replace(workspace, bash_timeout_s=0)


def test_a_root_is_resolved_once(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "link").symlink_to(root)
    monkeypatch.chdir(root)
    here = Workspace(".")
    monkeypatch.chdir(tmp_path)
    assert here == Workspace(tmp_path / "link") == Workspace(root)
    assert here.root == Path(os.path.realpath(root))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"root": "/nonexistent/root"},
            "/nonexistent/root is not a directory: it does not exist; name one that does in Workspace(root=...)",
        ),
        ({"root": __file__}, "is not a directory"),
        ({"root": "/"}, "too wide"),
        ({"root": Path.home()}, "too wide"),
        ({"root": ""}, "root must be a path"),
        ({"root": "a\0b"}, "root must be a path"),
        ({"root": None}, "root must be a path, not None"),
        ({"read_only": 1}, "read_only must be True or False, not 1"),
        ({"allow_bash": "no"}, "allow_bash must be True or False, not 'no'"),
        ({"bash_timeout_s": 0}, "bash_timeout_s must be a positive number"),
        ({"bash_timeout_s": float("inf")}, "bash_timeout_s must be a positive number"),
        ({"bash_timeout_s": float("nan")}, "bash_timeout_s must be a positive number"),
        ({"bash_timeout_s": True}, "bash_timeout_s must be a positive number"),
        ({"bash_timeout_s": "5"}, "bash_timeout_s must be a positive number"),
        ({"max_output_bytes": 1023}, "max_output_bytes must be a whole number of at least 1024"),
        ({"max_output_bytes": 4096.0}, "max_output_bytes must be a whole number"),
        ({"inherit_env": None}, "inherit_env must be True or False"),
        ({"env_allow": "PATH"}, "env_allow must be a list of names"),
        ({"env_allow": ["PATH", ""]}, "env_allow has ''"),
        ({"env_allow": ["A=1"]}, "env_allow has 'A=1'"),
        ({"env_allow": [1]}, "env_allow has 1"),
    ],
)
def test_a_bad_setting_is_named(root: Path, settings: dict[str, Any], said: str):
    with pytest.raises(InvalidConfigError) as caught:
        Workspace(**{"root": root, **settings})
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("/tmp", RecordingGate()), "workspace must be a Workspace"),
        ((None, None), "workspace must be a Workspace"),
    ],
)
def test_a_toolset_wants_a_workspace(arguments: Any, said: str):
    with pytest.raises(InvalidConfigError, match=said):
        DevToolset(*arguments)


def test_a_toolset_wants_a_gate(root: Path):
    """There is no default: nobody gets write access by forgetting an argument."""
    with pytest.raises(TypeError):
        DevToolset(Workspace(root))  # type: ignore[call-arg]
    for bad in (None, Decision(approved=True, by="me")):
        with pytest.raises(InvalidConfigError, match="gate must be a function"):
            DevToolset(Workspace(root), bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidConfigError, match="redact must be a function"):
        DevToolset(Workspace(root), RecordingGate(), redact="secret")  # type: ignore[arg-type]
