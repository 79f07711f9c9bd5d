"""Servers that are killed at random while agents ask and the configuration changes (I13, I14, P99)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psutil
import pytest

from devtools_lsp.engines.guard import MARK
from devtools_lsp.engines.spec import EngineSpec, spec_from_table
from devtools_lsp.errors import DevToolsError

PRESETS = ("mypy", "ruff", "basedpyright")
AGENTS = 3
DEADLINE_S = 15.0


def some_engines(chance: random.Random) -> list[EngineSpec]:
    """Some are gone, some have other settings."""
    return [
        spec_from_table(name, {"preset": name, "timeout_s": chance.choice([20, 21])})
        for name in PRESETS
        if chance.random() > 0.2
    ]


class Storm:
    """Kills, changes of the configuration and of files, until it is told to stop."""

    def __init__(self, scene: Any, chance: random.Random) -> None:
        self.scene = scene
        self.chance = chance
        self.over = asyncio.Event()
        self.kills = 0

    async def rest(self, least: float, most: float) -> bool:
        """Whether it goes on after a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.chance.uniform(least, most)):
                await self.over.wait()
        return not self.over.is_set()

    async def kill(self) -> None:
        while await self.rest(0.2, 1.5):
            running = [entry.pid for entry in await asyncio.to_thread(self.scene.registry.status) if entry.pid]
            if running:
                with suppress(ProcessLookupError):
                    os.kill(self.chance.choice(running), signal.SIGKILL)
                    self.kills += 1

    async def reconfigure(self) -> None:
        while await self.rest(2, 5):
            async with asyncio.timeout(30):
                await self.scene.registry.reconfigure(some_engines(self.chance))

    async def write(self) -> None:
        number = 0
        while await self.rest(0.2, 1):
            number += 1
            self.scene.write({"other.py": f"value_{number}: int = {number}\n"})


async def ask(scene: Any, chance: random.Random, agent: int, plan: int) -> str:
    """One plan of one agent with a mistake of its own: nobody else's may show, and its own may not be lost."""
    engines: Sequence[Any] = scene.registry.engines
    if not engines:
        return "no engine"
    engine = chance.choice(list(engines))
    path, name = f"a{agent}.py", f"undefined_of_{agent}_{plan}"
    step = "check" if engine.checks else "lint"
    capability = (engine.checks or engine.lints)[0]
    changes = {path: scene.read(path) + f"print({name})\n"}
    call = scene.call(step, [path, "lib.py"], changes, engine_id=engine.id, deadline_s=DEADLINE_S)
    try:
        async with asyncio.timeout(DEADLINE_S + 20):
            comparison = await capability.compare(call)
    except DevToolsError:
        return "failed"
    before = [finding.message for finding in comparison.before]
    after = [finding.message for finding in comparison.after]
    assert [words for words in before if "undefined_of" in words] == []
    assert [words for words in after if "undefined_of" in words and name not in words] == []
    if path in comparison.judged:
        assert any(name in words for words in after), (engine.id, after)
        return "judged"
    assert comparison.pending, "not judged, and nothing said"
    return "pending"


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2])
async def test_kills_and_changes_lose_nothing_and_mix_nothing_up(make_scene: Any, tool: Any, seed: int) -> None:
    for name in ("dmypy", "ruff", "basedpyright"):
        tool(name)
    chance = random.Random(seed)
    files = {f"a{number}.py": f"from lib import total\n\nprint(total({number}))\n" for number in range(AGENTS)}
    specs = [spec_from_table(name, {"preset": name}) for name in PRESETS]
    scene = make_scene(*specs, files={**files, "lib.py": "def total(x: int) -> int:\n    return x\n"})
    await scene.registry.start()
    storm = Storm(scene, chance)

    async def agent(number: int) -> list[str]:
        outcomes: list[str] = []
        for plan in range(34):
            outcomes.append(await ask(scene, chance, number, plan))
            await storm.rest(0.05, 0.1)
        return outcomes

    async with asyncio.TaskGroup() as group:
        for work in (storm.kill, storm.reconfigure, storm.write):
            group.create_task(work())
        agents = [group.create_task(agent(number)) for number in range(AGENTS)]
        await asyncio.wait(agents)
        storm.over.set()
    outcomes = [outcome for task in agents for outcome in task.result()]
    assert storm.kills > 0
    assert outcomes.count("judged") > AGENTS
    token = scene.registry._guard.token
    await scene.registry.close()
    assert [process.pid for process in psutil.process_iter() if carries(process, token)] == []


def carries(process: psutil.Process, token: str) -> bool:
    try:
        return token in process.environ().get(MARK, "") and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
