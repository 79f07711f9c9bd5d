"""What `init` proposes and what `doctor` reports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.engines.detect import detect, probe
from devtools_lsp.engines.presets import preset_names
from devtools_lsp.engines.spec import spec_from_table

EIGHT = ["basedpyright", "biome", "eslint", "mypy", "prettier", "ruff", "ty", "typescript"]


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def program(root: Path, path: str) -> None:
    write(root, {path: "#!/bin/sh\n"})
    (root / path).chmod(0o755)


def found(root: Path) -> dict[str, Any]:
    return {entry.preset: entry for entry in detect(root).engines}


def test_every_preset_is_looked_at(tmp_path: Path) -> None:
    assert set(found(tmp_path)) == set(preset_names())
    assert not any(entry.wanted for entry in found(tmp_path).values()), "an empty project wants nothing"


def test_the_projects_own_tools_and_interpreter(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "", ".venv/pyvenv.cfg": ""})
    for name in ("python", "ruff", "ty"):
        program(tmp_path, f".venv/bin/{name}")
    detected = detect(tmp_path)
    entries = {entry.preset: entry for entry in detected.engines}
    assert detected.interpreter == ".venv/bin/python"
    assert entries["ruff"].program == ".venv/bin/ruff"
    assert entries["ruff"].wanted
    assert entries["ty"].wanted, "installed in the project, where others are only on PATH"
    assert entries["ty"].table == {"preset": "ty", "interpreter": ".venv/bin/python"}
    assert not entries["mypy"].wanted


def test_a_configured_checker_wins(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "", "mypy.ini": "[mypy]\n"})
    for name in ("ty", "dmypy", "basedpyright-langserver"):
        program(tmp_path, f".venv/bin/{name}")
    entries = found(tmp_path)
    assert [name for name in ("ty", "mypy", "basedpyright") if entries[name].wanted] == ["mypy"]
    assert "mypy checks the same files" in entries["ty"].note
    assert entries["mypy"].configured_by == "mypy.ini"


def test_script_tools_are_taken_where_they_are_configured(tmp_path: Path) -> None:
    write(tmp_path, {"a.ts": "", "biome.json": "{}"})
    for name in ("biome", "prettier", "vscode-eslint-language-server"):
        program(tmp_path, f"node_modules/.bin/{name}")
    entries = found(tmp_path)
    assert entries["biome"].wanted
    assert not entries["prettier"].wanted
    assert "no configuration" in entries["eslint"].note


def test_an_old_typescript_is_not_taken_for_version_7(tmp_path: Path) -> None:
    write(tmp_path, {"a.ts": "", "tsconfig.json": "{}"})
    program(tmp_path, "node_modules/.bin/tsc")
    assert not found(tmp_path)["typescript"].installed
    program(tmp_path, "node_modules/@typescript/typescript-linux-x64/lib/tsc")
    assert found(tmp_path)["typescript"].installed


@pytest.mark.parametrize("preset", EIGHT)
async def test_the_doctor_is_green_for_what_is_tested(engines: Any, preset: str) -> None:
    engines.require(preset)
    report = await probe(spec_from_table(preset, {"preset": preset}), engines.HERE)
    assert (report.state, report.message) == ("ok", "it answers")
    assert report.version is not None
    assert report.path is not None
    assert report.first_s is not None
    assert report.warm_s is not None
    assert report.remedy == ""


async def test_the_doctor_names_the_remedy(tmp_path: Path, engines: Any) -> None:
    table = {"kind": "command", "command": ["no-such-tool"], "capabilities": ["lint"], "extensions": ["py"]}
    missing = await probe(spec_from_table("x", {**table, "remedy": "install it"}), tmp_path)
    assert (missing.state, missing.remedy) == ("missing", "install it")
    broken = await probe(engines.zoo_spec("crashes_at_initialize.py", remedy="buy a licence"), tmp_path)
    assert (broken.state, broken.remedy) == ("failed", "buy a licence")
    assert "no licence, no service" in broken.message
    blind = spec_from_table("blind", {**table, "command": [sys.executable, "-c", "pass"], "probe": {"x.py": "x\n"}})
    report = await probe(blind, tmp_path)
    assert report.state == "failed"
    assert "nothing wrong" in report.message
