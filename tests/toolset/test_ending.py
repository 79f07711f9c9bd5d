"""How calls of a toolset end: cancelled, stopped by a switch, closed over, and with nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp import Cancellation, Decision, DevToolsError, DevToolset, Workspace
from devtools_lsp.errors import CallCancelledError, InvalidConfigError
from devtools_lsp.ports import GateCall, GateContext
from devtools_lsp.toolset import ending
from tests.toolset.gates import RecordingGate, refused


def stubborn(first: str, second: str) -> str:
    """A command that leaves a double-forked child of its own session and waits for another."""
    return f"(setsid {first} &) ; touch up; {second}"


async def test_cancelling_the_task_ends_the_command_and_all_it_started(
    toolset: DevToolset, root: Path, nap, running, eventually
):
    """Before the cancellation goes on, which says what had landed."""
    detached, attached = nap(), nap()
    call = asyncio.create_task(toolset.call("bash", {"command": stubborn(detached, attached)}))
    await eventually((root / "up").exists)
    call.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await call
    assert not running(detached)
    assert not running(attached)
    cause = caught.value.__cause__
    assert isinstance(cause, CallCancelledError)
    assert cause.written == [{"path": "up", "kind": "added"}]
    assert (await toolset.call("bash", {"command": "echo on"}))["content"] == "on\n"


async def test_a_time_limit_of_asyncio_ends_a_call(toolset: DevToolset, nap, running):
    command = nap()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await toolset.call("bash", {"command": command})
    assert not running(command)


async def test_turning_a_switch_ends_the_calls_that_follow_it(
    toolset: DevToolset, root: Path, nap, running, eventually
):
    stop = Cancellation()
    naps = [nap(), nap()]
    calls = [
        asyncio.create_task(toolset.call("bash", {"command": f"touch up{n}; {command}"}, signal=stop))
        for n, command in enumerate(naps)
    ]
    await eventually(lambda: (root / "up0").exists() and (root / "up1").exists())
    stop.cancel("the person pressed stop")
    for call in calls:
        error = await refused(call, "E_DEV_CANCELLED")
        assert "the person pressed stop" in error.message
    assert not any(running(command) for command in naps)
    error = await refused(toolset.call("write_file", {"path": "late", "content": ""}, signal=stop), "E_DEV_CANCELLED")
    assert not (root / "late").exists()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"path": "made", "content": "x"}),
        ("bash", {"command": "touch made"}),
        ("grep", {"pattern": "x"}),
    ],
)
@pytest.mark.parametrize("way", ["task", "switch", "close"])
async def test_a_gate_that_waits_is_left_at_once(
    root: Path, gate: RecordingGate, eventually, tool: str, arguments: dict[str, Any], way: str
):
    """The question ends with the call, though the gate looks at no switch."""
    ended: list[str] = []

    async def ask(_context: GateContext, call: GateCall) -> Decision:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(call.step)
        raise AssertionError

    gate.answer = ask
    stop = Cancellation()
    toolset = DevToolset(Workspace(root), gate)
    await toolset.open()
    try:
        call = asyncio.create_task(toolset.call(tool, arguments, signal=stop))
        await eventually(lambda: bool(gate.questions))
        began = time.monotonic()
        if way == "task":
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        elif way == "switch":
            stop.cancel()
            await refused(call, "E_DEV_CANCELLED")
        else:
            await toolset.close()
            await refused(call, "E_DEV_CANCELLED")
        assert time.monotonic() - began < 2
    finally:
        await toolset.close()
    assert ended == gate.steps
    assert not (root / "made").exists()


async def test_closing_ends_the_calls_that_run(root: Path, gate: RecordingGate, nap, running, eventually):
    detached, attached = nap(), nap()
    spools = set(Path(tempfile.gettempdir()).glob("devtools-lsp-*"))
    toolset = DevToolset(Workspace(root), gate)
    async with toolset:
        spools = set(Path(tempfile.gettempdir()).glob("devtools-lsp-*")) - spools
        call = asyncio.create_task(toolset.call("bash", {"command": stubborn(detached, attached)}))
        await eventually((root / "up").exists)
    assert not running(detached)
    assert not running(attached)
    error = await refused(call, "E_DEV_CANCELLED")
    assert error.message.startswith("the toolset was closed")
    assert error.written == [{"path": "up", "kind": "added"}]
    error = await refused(toolset.call("read_file", {"path": "up"}), "E_DEV_STEP_UNAVAILABLE")
    assert "not open" in error.message
    await toolset.close()
    assert not any(spool.exists() for spool in spools if spool.name != f"devtools-lsp-{os.getuid()}")


async def test_a_call_that_does_not_look_at_its_switch_is_stopped(
    toolset: DevToolset, gate: RecordingGate, monkeypatch: pytest.MonkeyPatch, nap, running
):
    """I13: a callback that never returns holds up its own call, and not what stops it."""
    monkeypatch.setattr(ending, "CANCEL_GRACE_S", 1.0)
    stop = Cancellation()
    stuck = asyncio.Event()

    async def progress(_value: dict[str, Any]) -> None:
        stuck.set()
        await asyncio.Event().wait()

    command = nap()
    call = asyncio.create_task(toolset.call("bash", {"command": f"echo up; {command}"}, progress=progress, signal=stop))
    await stuck.wait()
    stop.cancel("the person pressed stop")
    error = await refused(call, "E_DEV_CANCELLED")
    assert error.message == "bash was stopped: the person pressed stop; look at the files before trying again"
    assert not running(command)


async def test_a_call_that_does_not_end_at_all_is_let_go(
    root: Path, gate: RecordingGate, monkeypatch: pytest.MonkeyPatch, eventually
):
    """I13: the caller is told so, and closing does not wait for it forever either."""
    monkeypatch.setattr(ending, "CANCEL_GRACE_S", 0.2)
    stop = Cancellation()
    stuck, free, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def progress(_value: dict[str, Any]) -> None:
        stuck.set()
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await free.wait()
        left.set()

    async with DevToolset(Workspace(root), gate) as toolset:
        call = asyncio.create_task(toolset.call("bash", {"command": "echo up"}, progress=progress, signal=stop))
        await stuck.wait()
        stop.cancel()
        error = await refused(call, "E_DEV_CANCELLED")
        assert error.message == "bash was cancelled but does not end; look at the files before trying again"
    free.set()
    await asyncio.wait_for(left.wait(), 5)
    await eventually(lambda: not any(task.get_name() == "devtools bash" for task in asyncio.all_tasks()))


async def test_closing_one_toolset_leaves_the_commands_of_another_alone(root: Path, gate: RecordingGate, eventually):
    async with DevToolset(Workspace(root), gate) as staying:
        call = asyncio.create_task(
            staying.call("bash", {"command": "touch up; until [ -e go ]; do sleep 0.02; done; echo on"})
        )
        await eventually((root / "up").exists)
        async with DevToolset(Workspace(root), gate) as leaving:
            await leaving.call("bash", {"command": "true"})
        (root / "go").touch()
        assert (await call)["content"].startswith("on\n")
        assert (await staying.call("bash", {"command": "echo still"}))["content"] == "still\n"


async def test_a_toolset_can_be_opened_again_but_not_twice(root: Path, gate: RecordingGate, plant):
    plant({"a.txt": "one\n"})
    toolset = DevToolset(Workspace(root), gate)
    with pytest.raises(DevToolsError, match="not open"):
        toolset.tools()
    async with toolset:
        with pytest.raises(InvalidConfigError, match="open already"):
            await toolset.open()
        await toolset.call("read_file", {"path": "a.txt"})
    async with toolset:
        # What was read before is forgotten, as with another connection to a daemon.
        edit = {"path": "a.txt", "old_string": "one", "new_string": "1"}
        await refused(toolset.call("edit_file", edit), "E_DEV_NOT_READ")


async def test_a_root_that_is_gone_is_refused_and_leaves_nothing(root: Path, gate: RecordingGate):
    workspace = Workspace(root)
    root.rmdir()
    before = set(os.listdir(tempfile.gettempdir()))
    with pytest.raises(DevToolsError):
        await DevToolset(workspace, gate).open()
    left = set(os.listdir(tempfile.gettempdir())) - before
    assert not [name for name in left if name.startswith("devtools-lsp-")]


async def test_an_interrupted_opening_leaves_nothing(root: Path, gate: RecordingGate):
    toolset = DevToolset(Workspace(root), gate)
    opening = asyncio.create_task(toolset.open())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    with pytest.raises(DevToolsError, match="not open"):
        toolset.tools()
    async with toolset:
        assert toolset.tools()
