"""What a table of the configuration means, and what is said about mistakes in it."""

from __future__ import annotations

from typing import Any

import pytest

from devtools_lsp.engines.presets import preset_names
from devtools_lsp.engines.spec import EngineSpec, spec_from_table
from devtools_lsp.errors import InvalidConfigError

TESTED = {
    *("ruff", "ty", "basedpyright", "mypy", "biome", "typescript", "eslint", "prettier"),
    *("pyright", "typescript-language-server", "clangd", "shellcheck"),
}
UNTESTED = {"gopls", "rust-analyzer"}
OWN: dict[str, Any] = {
    "kind": "command",
    "command": ["black", "-q", "-"],
    "capabilities": ["format"],
    "extensions": ["py"],
}


def test_the_presets_are_those_that_were_promised() -> None:
    assert set(preset_names()) == TESTED | UNTESTED


@pytest.mark.parametrize("name", sorted(TESTED | UNTESTED))
def test_every_preset_is_whole(name: str) -> None:
    spec = spec_from_table(name, {"preset": name})
    assert spec.tested == (name in TESTED)
    assert spec.title
    assert spec.homepage.startswith("https://")
    assert spec.remedy
    assert spec.version
    assert spec.config_files
    assert spec.probe, "the doctor needs a file to try it on"
    if spec.shadow:
        assert spec.judges_closed, "in a copy nothing is opened"


def test_a_table_replaces_and_merges_what_its_preset_says() -> None:
    spec = spec_from_table(
        "types",
        {
            "preset": "basedpyright",
            "timeout_s": 5,
            "settings": {"basedpyright": {"analysis": {"typeCheckingMode": "off"}}},
        },
    )
    assert spec.id == "types"
    assert spec.timeout_s == 5
    analysis = spec.settings["basedpyright"]["analysis"]
    assert analysis["typeCheckingMode"] == "off"
    assert analysis["diagnosticMode"] == "workspace"


def test_an_engine_without_a_preset() -> None:
    spec = spec_from_table("black", OWN)
    command = spec.command_for("format")
    assert command is not None
    assert (command.input, command.output.form) == ("stdin", "text")
    assert not spec.tested


@pytest.mark.parametrize(
    ("engine_id", "table", "words"),
    [
        ("x", {"preset": "rufff"}, ["engines.x.preset", "did you mean 'ruff'?"]),
        ("x", {"preset": 3}, ["engines.x.preset"]),
        ("x", {"preset": "ruff", "timout_s": 3}, ["'timout_s'", "did you mean 'timeout_s'?"]),
        ("x", {"preset": "ruff", "id": "y"}, ["'id'"]),
        ("x", {"preset": "ruff", "tested": True}, ["'tested'"]),
        ("x", {"preset": "ruff", "timeout_s": "soon"}, ["engines.x.timeout_s: must be a number, not a string"]),
        ("x", {"preset": "ruff", "command": "ruff"}, ["engines.x.command: must be a list, not a string"]),
        ("x", {"preset": "ruff", "cancels": "no"}, ["engines.x.cancels: must be true or false, not a string"]),
        ("x", {"preset": "ruff", "lint": {"input": "x"}}, ["engines.x.lint.input: must be one of 'stdin'", "not 'x'"]),
        ("x", {"preset": "ruff", "lint": {}}, ["engines.x.lint: 'command' is missing"]),
        ("x", {"preset": "ruff", "lint": 3}, ["engines.x.lint: must be a table, not a whole number"]),
        ("x", {**OWN, "capabilities": ["chek"]}, ["capabilities[0]: must be one of 'format'", "not 'chek'"]),
        ("x", {"preset": "ruff", "timeout_s": 0}, ["engines.x.timeout_s", "greater than 0"]),
        ("x", {"kind": "command"}, ["'command' is missing"]),
        ("x", {**OWN, "kind": "magic"}, ["engines.x.kind: must be one of 'language-server', 'command', not 'magic'"]),
        ("x", {**OWN, "command": []}, ["engines.x.command"]),
        ("x", {**OWN, "capabilities": []}, ["engines.x.capabilities"]),
        ("x", {**OWN, "capabilities": ["fix"]}, ["'fix' is a form of 'lint'"]),
        ("x", {**OWN, "extensions": [".PY"]}, ["'.PY'", "without its dot"]),
        ("x", {**OWN, "input": "files"}, ["{files}"]),
        ("x", {**OWN, "output": {"form": "json"}}, ['form = "text"']),
        ("x", {**OWN, "output": {"fomr": "json"}}, ["fomr", "did you mean 'form'?"]),
        (
            "x",
            {**OWN, "capabilities": ["lint"], "output": {"form": "lines", "patterns": ["("]}},
            ["engines.x.lint.output", "pattern '('"],
        ),
        (
            "x",
            {**OWN, "capabilities": ["lint"], "output": {"form": "lines", "patterns": ["x"]}},
            ["no group named 'message'"],
        ),
        ("a b", OWN, ["engine's name"]),
        ("", OWN, ["engine's name"]),
    ],
)
def test_a_mistake_is_named_with_its_key(engine_id: str, table: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        spec_from_table(engine_id, table)
    for word in words:
        assert word in refusal.value.message
    assert refusal.value.to_wire()["code"] == "E_INVALID_DEV_PIPELINE_CONFIG"


def test_a_spec_is_plain_frozen_data() -> None:
    spec = spec_from_table("ruff", {"preset": "ruff"})
    assert spec == spec_from_table("ruff", {"preset": "ruff"})
    with pytest.raises(AttributeError):
        spec.timeout_s = 3  # type: ignore[misc]
    assert isinstance(spec, EngineSpec)
