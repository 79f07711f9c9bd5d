"""Files that are no part of the project: they are judged when asked about, or pending soon, and never clean unasked."""

from __future__ import annotations

import time
from typing import Any

import pytest

from devtools_lsp.engines.spec import spec_from_table

BAD = {"py": "x: int = ''\n", "ts": "export const x: number = ''\n"}


@pytest.mark.parametrize(("preset", "suffix"), [("basedpyright", "py"), ("ty", "py"), ("typescript", "ts")])
async def test_hidden_linked_and_installed_files(make_scene: Any, engines: Any, preset: str, suffix: str) -> None:
    engines.require(preset)
    off = {"kind": "command", "command": ["true"], "capabilities": ["lint"], "extensions": ["off"]}
    places = ["real", ".hidden", "link", "target"]
    scene = make_scene(spec_from_table("off", off), files={"tsconfig.json": '{"include": ["real"]}'})
    engines.link_node_modules(scene.root)
    scene.write({f"{place}/m.{suffix}": BAD[suffix] for place in places if place != "link"})
    (scene.root / "link").symlink_to("real", target_is_directory=True)
    scene.engine_id = preset
    await scene.registry.reconfigure([spec_from_table(preset, {"preset": preset})])
    await scene.run("check", f"real/m.{suffix}")
    started = time.monotonic()
    delta = await scene.run("check", *(f"{place}/m.{suffix}" for place in places))
    assert time.monotonic() - started < 10
    found = {finding.path for finding in delta.diagnostics if finding.severity == "error"}
    assert {f"real/m.{suffix}", f".hidden/m.{suffix}", f"link/m.{suffix}"} <= found
    assert found | {entry.path for entry in delta.pending} == {f"{place}/m.{suffix}" for place in places}


async def test_one_that_is_never_answered_costs_little(make_scene: Any, engines: Any) -> None:
    spec = engines.zoo_spec(
        "answers_one_file.py", "known.py", timeout_s=30, dependents="references", judges_closed=True, cancels=True
    )
    scene = make_scene(spec, files={"known.py": "bad\n", ".hidden/other.py": "bad\n"})
    started = time.monotonic()
    delta = await scene.run("check", ".hidden/other.py", "known.py")
    assert time.monotonic() - started < 10
    assert [finding.path for finding in delta.diagnostics] == ["known.py"]
    assert [entry.path for entry in delta.pending] == [".hidden/other.py"]
    assert "no part of the project" in delta.pending[0].reason
