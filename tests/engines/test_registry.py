"""The set of engines: what is missing, listed, replaced, idle and restarted."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.engines.registry import EngineRegistry, resident_bytes
from devtools_lsp.engines.spec import spec_from_table
from devtools_lsp.engines.tree import FileEvent
from devtools_lsp.errors import StepFailedError

BAD = {"a.py": "x = bad\n"}


async def test_a_missing_engine_is_absent_and_its_remedy_is_told(make_scene: Any, engines: Any) -> None:
    table = {"kind": "command", "command": ["no-such-tool"], "capabilities": ["lint"], "extensions": ["py"]}
    missing = spec_from_table("other", {**table, "remedy": "install no-such-tool"})
    scene = make_scene(engines.zoo_spec("well_behaved.py"), missing, files=BAD)
    await scene.registry.start()
    assert [engine.id for engine in scene.registry.engines] == ["zoo"]
    status = scene.registry.status()[1]
    assert (status.id, status.state, status.path, status.pid) == ("other", "missing", None, None)
    assert "install no-such-tool" in str(status.reason)
    assert [f.rule for f in (await scene.run("check", "a.py")).diagnostics] == ["bad"]


async def test_the_status_of_a_running_engine(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("well_behaved.py"), files=BAD)
    await scene.run("check", "a.py")
    (status,) = scene.registry.status()
    assert (status.id, status.state, status.version, status.generation) == ("zoo", "ready", "1.2.3", 1)
    assert status.path == sys.executable
    assert status.rss_bytes is not None
    assert status.rss_bytes > 1_000_000
    assert resident_bytes(2**22 + 1) is None


async def test_start_warms_in_the_background(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("well_behaved.py"), files=BAD)
    await scene.registry.start()
    await engines.eventually(lambda: scene.registry.status()[0].state == "ready", what="warm")
    assert [event[1] for event in scene.events] == ["started"]


async def test_an_idle_engine_stops_and_comes_back(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("well_behaved.py", idle_stop_s=0.3), files=BAD)
    await scene.run("check", "a.py")
    await engines.eventually(lambda: scene.registry.status()[0].state == "idle", what="idle")
    assert scene.registry.status()[0].pid is None
    delta = await scene.run("check", "a.py", changes={"a.py": "bad = bad\n"})
    assert len(delta.diagnostics) == 2
    assert scene.registry.status()[0].generation == 2


async def test_a_killed_engine_is_restarted_without_being_asked(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("well_behaved.py"), files=BAD)
    await scene.run("check", "a.py")
    pid = scene.registry.status()[0].pid
    import os

    os.kill(pid, signal.SIGKILL)
    await engines.eventually(lambda: scene.registry.status()[0].generation == 2, what="the next generation")
    assert [f.rule for f in (await scene.run("check", "a.py")).diagnostics] == ["bad"]
    assert "failed" in [event[1] for event in scene.events]


async def test_a_dead_engine_does_not_keep_others(make_scene: Any, engines: Any) -> None:
    broken = spec_from_table(
        "broken",
        {
            "kind": "language-server",
            "command": [sys.executable, str(engines.ZOO / "exits_at_once.py"), "1"],
            "capabilities": ["check"],
            "extensions": ["py"],
        },
    )
    scene = make_scene(engines.zoo_spec("well_behaved.py"), broken, files=BAD)
    failing = next(engine for engine in scene.registry.engines if engine.id == "broken")
    one, other = await asyncio.gather(
        scene.run("check", "a.py"), failing.checks[0].run(scene.call("check", ["a.py"])), return_exceptions=True
    )
    assert [f.rule for f in one.diagnostics] == ["bad"]
    assert isinstance(other, StepFailedError)


async def test_reconfigure_keeps_what_is_the_same(make_scene: Any, engines: Any) -> None:
    same, other = engines.zoo_spec("well_behaved.py"), engines.zoo_spec("well_behaved.py", timeout_s=9)
    scene = make_scene(same, files=BAD)
    await scene.registry.start()
    await scene.run("check", "a.py")
    pid = scene.registry.status()[0].pid
    await scene.registry.reconfigure([same])
    assert scene.registry.status()[0].pid == pid
    await scene.registry.reconfigure([other])
    await scene.run("check", "a.py")
    assert scene.registry.status()[0].pid != pid
    await scene.registry.reconfigure([])
    assert scene.registry.engines == []
    assert scene.registry.status() == []


@pytest.mark.parametrize("silent_at", ["initialize", "textDocument/diagnostic"])
async def test_a_call_whose_engine_is_taken_away_fails_and_is_not_cancelled(
    make_scene: Any, engines: Any, silent_at: str
) -> None:
    scene = make_scene(engines.zoo_spec("never_answers.py", silent_at, timeout_s=20), files=BAD)
    call = asyncio.create_task(scene.run("check", "a.py"))
    await engines.eventually(lambda: scene.registry.status()[0].state != "stopped", what="it starts")
    if silent_at != "initialize":
        await engines.eventually(lambda: scene.registry.status()[0].state == "ready", what="it runs")
    await scene.registry.reconfigure([])
    with pytest.raises(StepFailedError, match="ask again") as failure:
        await call
    assert failure.value.retry == "yes"


async def test_a_tool_that_was_installed_meanwhile_is_found_by_reconfigure(make_scene: Any) -> None:
    table = {"kind": "command", "command": ["new-tool"], "capabilities": ["lint"], "extensions": ["py"]}
    spec = spec_from_table("new", table)
    scene = make_scene(spec, files=BAD)
    assert scene.registry.engines == []
    program = scene.root / "node_modules/.bin/new-tool"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    await scene.registry.reconfigure([spec])
    assert [engine.id for engine in scene.registry.engines] == ["new"]


async def test_engines_offer_what_their_table_says(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("well_behaved.py", capabilities=["lint"], extensions=["py", "pyi"]))
    engine = scene.engine
    assert (len(engine.formats), len(engine.lints), len(engine.checks)) == (0, 1, 0)
    assert engine.lints[0].extensions == frozenset({"py", "pyi"})
    assert not engine.lints[0].fixable
    assert engine.lints[0].compare is not None


async def test_announced_changes_reach_the_server(make_scene: Any, engines: Any) -> None:
    """Announced or not, a change is told once, and a document that is open gets the new text."""
    scene = make_scene(engines.zoo_spec("well_behaved.py"), files=BAD)
    await scene.run("check", "a.py")
    scene.write({"a.py": "x = fine\n"})
    await scene.registry.files_changed([FileEvent("a.py", "changed")])
    assert (await scene.run("check", "a.py")).diagnostics == ()


async def test_closing_twice_and_closing_unstarted(tmp_path: Path, engines: Any) -> None:
    registry = EngineRegistry(tmp_path, [engines.zoo_spec("well_behaved.py")])
    await registry.close()
    await registry.close()


async def test_a_call_after_closing_is_refused(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("well_behaved.py"), files=BAD)
    engine = scene.engine
    await scene.registry.close()
    with pytest.raises(StepFailedError, match="was stopped"):
        await engine.checks[0].run(scene.call("check", ["a.py"]))
