"""A cold engine, and one whose answers come late: a baseline is taken and not assumed, and late is never clean."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.engines.locate import locate_server
from devtools_lsp.engines.spec import EngineSpec, spec_from_table

CHECKERS = ["basedpyright", "ty", "typescript"]


def files_of(preset: str) -> dict[str, str]:
    if preset == "typescript":
        options = {"strict": True, "noEmit": True, "module": "esnext", "moduleResolution": "bundler"}
        return {
            "tsconfig.json": json.dumps({"compilerOptions": options}),
            "main.ts": "export const x: number = ''\n",
            "lib.ts": "export function total(x: number): number { return x }\n",
            "user.ts": "import { total } from './lib'\nconsole.log(total(1))\n",
        }
    return {
        "main.py": "x: int = ''\n",
        "lib.py": "def total(x: int) -> int:\n    return x\n",
        "user.py": "from lib import total\n\nprint(total(1))\n",
    }


def suffix(preset: str) -> str:
    return "ts" if preset == "typescript" else "py"


def errors(found: Any) -> list[Any]:
    return [entry for entry in found if entry.severity == "error"]


@pytest.fixture
def checker(make_scene: Any, engines: Any) -> Any:
    def make(preset: str, spec: EngineSpec | None = None) -> Any:
        engines.require(preset)
        off = spec_from_table(
            "off", {"kind": "command", "command": ["true"], "capabilities": ["lint"], "extensions": ["off"]}
        )
        scene = make_scene(spec or off, files=files_of(preset))
        engines.link_node_modules(scene.root)
        scene.engine_id = preset
        return scene

    return make


async def configured(scene: Any, **over: Any) -> Any:
    await scene.registry.reconfigure([spec_from_table(scene.engine_id, {"preset": scene.engine_id, **over})])
    return scene


@pytest.mark.parametrize("preset", CHECKERS)
async def test_d4_the_first_call_takes_the_baseline(checker: Any, preset: str) -> None:
    scene = await configured(checker(preset))
    path = f"main.{suffix(preset)}"
    text = scene.read(path)
    verdict = await scene.compare(changes={path: text + "\n"})
    assert errors(verdict.introduced) == []
    assert verdict.unchanged >= 1
    assert errors(verdict.comparison.before)


@pytest.mark.parametrize("preset", CHECKERS)
async def test_d9_an_engine_that_still_starts_is_pending_within_the_bound(checker: Any, preset: str) -> None:
    scene = await configured(checker(preset))
    path = f"main.{suffix(preset)}"
    verdict = await scene.compare(changes={path: scene.read(path) + "\n"}, deadline_s=0.02)
    assert verdict.judged == frozenset()
    assert path in verdict.pending
    delta = await scene.run("check", path)
    assert errors(delta.diagnostics)


def delayed(preset: str, root: Path, zoo: Path, seed: int, longest_s: float) -> EngineSpec:
    """The preset behind a proxy that holds each answer back for a random while."""
    spec = spec_from_table(preset, {"preset": preset})
    located = locate_server(spec, root)
    assert located is not None
    command = [sys.executable, str(zoo / "delaying.py"), str(seed), str(longest_s), *located.command]
    return spec_from_table(
        preset, {"preset": preset, "command": command, "direct": [], "direct_only": False, "dependents_deadline_s": 30}
    )


async def scenes_through_a_slow_proxy(scene: Any, preset: str, seed: int, rounds: int, deadline_s: float) -> None:
    """Random edits, each with its known truth: whatever is called judged must agree with it."""
    chance = random.Random(seed)
    lib, user = f"lib.{suffix(preset)}", f"user.{suffix(preset)}"
    good = scene.read(lib)
    bad = good.replace("total", "sum_up")
    for _ in range(rounds):
        breaks = chance.random() < 0.5
        text = (bad if breaks else good) + "\n" * chance.randint(1, 3)
        verdict = await scene.compare(changes={lib: text}, deadline_s=chance.choice([deadline_s, deadline_s / 20]))
        if user in verdict.judged:
            assert bool(errors(verdict.introduced_in(user))) == breaks
        else:
            assert verdict.pending, "what is not judged is told"
        delta = await scene.run("check", user, deadline_s=deadline_s)
        assert errors(delta.diagnostics) == []


@pytest.mark.parametrize("preset", CHECKERS)
async def test_no_clean_report_is_contradicted_later(checker: Any, engines: Any, preset: str) -> None:
    scene = checker(preset)
    await scene.registry.reconfigure([delayed(preset, scene.root, engines.ZOO, 7, 0.08)])
    await scenes_through_a_slow_proxy(scene, preset, 7, 6, 20)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("preset", CHECKERS)
async def test_no_clean_report_is_contradicted_later_with_long_delays(checker: Any, engines: Any, preset: str) -> None:
    scene = checker(preset)
    await scene.registry.reconfigure([delayed(preset, scene.root, engines.ZOO, 11, 3.0)])
    await scenes_through_a_slow_proxy(scene, preset, 11, 10, 60)
