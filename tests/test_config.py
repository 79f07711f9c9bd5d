"""The configuration file: defaults, both places, and messages that name the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools_lsp.config import load_configuration, parse_configuration
from devtools_lsp.errors import InvalidConfigError


def test_without_a_file_the_defaults_hold_and_no_engine_runs(tmp_path: Path):
    configuration = load_configuration(tmp_path)
    assert configuration.source is None
    assert configuration.engines == ()
    assert configuration.file.workspace.text == "preserve"
    assert configuration.file.gate.mode == "editor"
    assert configuration.file.gate.timeout_s == 300


def test_devtools_toml_wins_over_pyproject(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text('[tool.devtools-lsp.gate]\nmode = "deny"\n')
    assert load_configuration(tmp_path).file.gate.mode == "deny"
    (tmp_path / "devtools.toml").write_text('[gate]\nmode = "allow"\n')
    found = load_configuration(tmp_path)
    assert found.file.gate.mode == "allow"
    assert found.source == tmp_path / "devtools.toml"


def test_the_documented_example_is_valid():
    configuration = parse_configuration(
        {
            "workspace": {"text": "preserve", "symlinks": "reject", "read_only": False, "max_files": 500},
            "gate": {
                "mode": "editor",
                "timeout_s": 300,
                "preview_deadline_s": 2,
                "no_editor": "fail",
                "rules": [{"step": "edit", "paths": ["docs/**"], "decision": "allow"}],
            },
            "policy": {"allow_write": ["**"], "deny_write": [], "deny_read": ["**/.env"]},
            "engines": {"ruff": {"preset": "ruff"}},
            "editors": {"publish": "agent", "diagnostics": "push"},
            "shell": {"enabled": True, "sandbox": "auto", "timeout_s": 120, "max_output_bytes": 1048576},
            "reply": {"inline_tokens": 2000},
        }
    )
    assert [engine.id for engine in configuration.engines] == ["ruff"]
    assert [rule.decision for rule in configuration.rules] == ["allow"]


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"gat": {}}, ["gat", "gate"]),
        ({"gate": {"mod": "allow"}}, ["gate.mod", "mode"]),
        ({"gate": {"mode": "maybe"}}, ["gate.mode must be one of 'editor', 'allow', 'deny', not 'maybe'"]),
        ({"gate": {"timeout_s": "long"}}, ["gate.timeout_s must be a number, not 'long'"]),
        ({"gate": {"timeout_s": 0}}, ["gate.timeout_s must be more than 0, not 0"]),
        ({"gate": "editor"}, ["gate must be a table, not 'editor'"]),
        ({"workspace": {"max_files": 0}}, ["workspace.max_files must be at least 1, not 0"]),
        ({"workspace": {"max_files": True}}, ["workspace.max_files must be a whole number, not true"]),
        ({"workspace": {"read_only": "true"}}, ["workspace.read_only", "write true without quotes"]),
        ({"policy": {"deny_write": ["a", 3]}}, ["policy.deny_write[1] must be a string, not 3"]),
        ({"policy": {"deny_write": ["a**b"]}}, ["policy.deny_write", "a**b"]),
        ({"gate": {"rules": [{"decision": "allow", "pats": ["x"]}]}}, ["gate.rules[0]", "pats", "paths"]),
        ({"engines": {"ruff": {"preset": "ruf"}}}, ["engines.ruff", "ruf", "ruff"]),
        ({"engines": {"ruff": {"preset": "ruff", "comand": ["x"]}}}, ["engines.ruff", "comand", "command"]),
        ({"engines": {"ruff": "ruff"}}, ["engines.ruff must be a table, not 'ruff'"]),
        ({"engines": {"x": {"preset": "ruff", "timeout_s": "1"}}}, ["engines.x", "timeout_s"]),
    ],
)
def test_a_mistake_names_the_key_and_the_nearest_known_one(table, named):
    with pytest.raises(InvalidConfigError) as caught:
        parse_configuration(table)
    for word in named:
        assert word in caught.value.message


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("devtools.toml", b"\xff\xfe", "byte 0 is not UTF-8"),
        ("devtools.toml", None, "devtools.toml is not a file"),
        ("pyproject.toml", b"[tool]\ndevtools-lsp = 3\n", "the configuration must be a table, not 3"),
        ("pyproject.toml", b"[tool.devtools-lsp]\ngate = 3\n", "pyproject.toml: gate must be a table, not 3"),
    ],
)
def test_a_file_that_is_no_configuration_is_told(tmp_path: Path, name: str, content: bytes | None, words: str):
    if content is None:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidConfigError) as caught:
        load_configuration(tmp_path)
    assert words in caught.value.message
    assert caught.value.path == name


def test_a_pyproject_without_our_table_is_no_configuration(tmp_path: Path):
    for content in ("tool = 3\n", "[tool.other]\n", ""):
        (tmp_path / "pyproject.toml").write_text(content)
        assert load_configuration(tmp_path).source is None


def test_broken_toml_names_the_file_and_the_place(tmp_path: Path):
    (tmp_path / "devtools.toml").write_text("[gate\n")
    with pytest.raises(InvalidConfigError, match=r"devtools\.toml is not valid TOML.*line 1"):
        load_configuration(tmp_path)
