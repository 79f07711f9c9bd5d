"""What happens while an MCP call waits: progress, cancellation, a person's decision, the death of the daemon."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import psutil
import pytest
from mcp.shared.exceptions import MCPError

from tests.e2e.place import ALLOW, ASK, RUFF, Place, edit_of

EDIT = edit_of("a.txt", "one", "two")


@pytest.fixture(scope="module")
def allowing(new_place: Callable[..., Place]) -> Place:
    return new_place(ALLOW, {"a.txt": "one\n"})


@pytest.fixture(scope="module")
def asking(new_place: Callable[..., Place]) -> Place:
    return new_place(ASK + 'no_editor = "wait"\n', {"a.txt": "one\n"})


@pytest.fixture
def unserved(new_place: Callable[..., Place]) -> Iterator[Place]:
    """A place without a daemon; whichever the bridge starts is stopped."""
    place = new_place(ALLOW + RUFF, {"a.txt": "one\n"}, start=False)
    yield place
    assert place.cli("stop").returncode == 0


def sleeper(seconds: str) -> list[int]:
    """The pids of living `sleep` processes with exactly this argument."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["cmdline"] == ["sleep", seconds] and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


class Heard:
    """Progress as a client is told it."""

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.lines: list[str] = []

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        self.numbers.append(progress)
        self.lines += (message or "").split("\n")


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_output_arrives_line_by_line_before_the_result(allowing: Place, speak: Any, soon: Any, era: str):
    go = allowing.base / f"go-{era}"
    heard = Heard()
    command = f"echo first; while ! test -e {go}; do sleep 0.02; done; echo second >&2; seq 1 500"
    async with speak(allowing, "--surface", "workspace", era=era) as client:
        call = asyncio.create_task(client.call_tool("bash", {"command": command}, progress_callback=heard))
        await soon(lambda: "first" in heard.lines, "the first line while the command runs")
        assert not call.done()
        go.touch()
        result = await call
        silent = await client.call_tool("bash", {"command": "echo nobody asked for progress"})
    assert not silent.is_error
    assert heard.lines == ["first", "second", *(str(number) for number in range(1, 501))]
    assert heard.numbers == sorted(set(heard.numbers)), "the number grows with every notification"
    assert result.structured_content["data"]["exitCode"] == 0


@pytest.mark.full
@pytest.mark.timeout(60)
async def test_something_is_heard_at_least_every_ten_seconds(allowing: Place, speak: Any):
    times: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        times.append(asyncio.get_running_loop().time())

    async with speak(allowing, "--surface", "workspace") as client:
        times.append(asyncio.get_running_loop().time())
        await client.call_tool("bash", {"command": "sleep 21"}, progress_callback=hear)
        times.append(asyncio.get_running_loop().time())
    assert len(times) >= 4
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 10


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_cancelled_call_ends_what_it_started(allowing: Place, speak: Any, soon: Any, era: str):
    seconds = f"61.{era == 'auto':d}07"
    async with speak(allowing, "--surface", "workspace", era=era) as client:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel_once_it_runs() -> None:
                    await soon(lambda: sleeper(seconds), "the command to run")
                    scope.cancel()

                group.start_soon(cancel_once_it_runs)
                await client.call_tool("bash", {"command": f"sleep {seconds}"})
        assert scope.cancelled_caught
        await soon(lambda: not sleeper(seconds), "the command to end")
        after = await client.call_tool("bash", {"command": "echo alive"})
    assert after.structured_content["content"].startswith("alive")


async def test_the_client_that_goes_takes_its_calls_with_it(allowing: Place, raw: Any, soon: Any):
    bridge = raw(allowing, "--surface", "workspace")
    bridge.introduce()
    bridge.send(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "bash", "arguments": {"command": "sleep 61.55"}},
        }
    )
    await soon(lambda: sleeper("61.55"), "the command to run")
    code, _, faults = await asyncio.to_thread(bridge.end)
    assert code == 0, faults
    await soon(lambda: not sleeper("61.55"), "the command to end")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
async def test_a_signal_ends_the_bridge_at_once(allowing: Place, raw: Any, soon: Any, number: int, code: int):
    """Stdin is open, so nothing that waits for input may hold it up."""
    bridge = raw(allowing)
    bridge.introduce()
    bridge.process.send_signal(number)
    await soon(lambda: bridge.process.poll() is not None, "its end", within_s=5)
    assert bridge.process.returncode == code


async def test_an_interruption_amid_messages_is_an_interruption(allowing: Place, raw: Any, soon: Any):
    """The SDK's tasks fail on the streams that close under them; that is no fault to tell anybody about."""
    bridge = raw(allowing)
    bridge.introduce()
    bridge.send(*({"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(1, 3000)))
    bridge.process.send_signal(signal.SIGINT)
    await soon(lambda: bridge.process.poll() is not None, "its end", within_s=5)
    assert bridge.process.returncode == 130
    assert b"Traceback" not in bridge.process.stderr.read()


async def test_a_person_decides_while_the_call_waits(asking: Place, speak: Any):
    terminal = asking.terminal()
    heard = Heard()
    async with speak(asking, name="Some Agent") as client:
        assert "may wait for a person's approval" in client.instructions
        call = asyncio.create_task(client.call_tool("edit", EDIT, progress_callback=heard))
        (item,) = await asyncio.to_thread(terminal.waiting)
        assert item["agent"] == "Some Agent"
        assert not call.done()
        terminal.decide(item["id"], True, note="go ahead")
        result = await call
    assert asking.text("a.txt") == "two\n"
    assert result.structured_content["decision"]["note"] == "go ahead"
    assert "go ahead" in result.content[0].text, "also for a client that shows nothing but text"
    assert any(f"devtools-lsp approve {item['id']}" in line for line in heard.lines)


async def test_a_person_declines_with_a_note(asking: Place, speak: Any):
    asking.put({"a.txt": "one\n"})
    terminal = asking.terminal()
    async with speak(asking) as client:
        call = asyncio.create_task(client.call_tool("edit", EDIT))
        (item,) = await asyncio.to_thread(terminal.waiting)
        terminal.decide(item["id"], False, note="use three")
        result = await call
    assert result.is_error
    assert result.structured_content["code"] == "E_DEV_GATE_DECLINED"
    assert result.structured_content["reason"] == "denied"
    assert "the person says: use three" in result.content[0].text
    assert asking.text("a.txt") == "one\n"


async def test_a_cancelled_call_withdraws_its_question(asking: Place, speak: Any, soon: Any):
    asking.put({"a.txt": "one\n"})
    terminal = asking.terminal()
    async with speak(asking) as client:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel_once_it_waits() -> None:
                    await asyncio.to_thread(terminal.waiting)
                    scope.cancel()

                group.start_soon(cancel_once_it_waits)
                await client.call_tool("edit", EDIT)
        await soon(lambda: not terminal.approvals(), "the question to be withdrawn")
    assert asking.text("a.txt") == "one\n"


async def test_the_bridge_starts_a_daemon_and_gets_over_its_death(unserved: Place, speak: Any, soon: Any):
    told: list[Any] = []
    async with speak(unserved, "--surface", "workspace", told=told) as client:
        pid = int(
            (await asyncio.to_thread(unserved.cli, "status", "--json")).stdout.partition('"pid": ')[2].split(",")[0]
        )
        call = asyncio.create_task(client.call_tool("bash", {"command": "sleep 62.01"}))
        await soon(lambda: sleeper("62.01"), "the command to run")
        psutil.Process(pid).kill()
        lost = await call
        assert lost.is_error
        assert lost.structured_content["code"] == "E_DEV_STEP_FAILED"
        assert "the connection to the daemon was lost" in lost.content[0].text
        assert "look at the files before trying again" in lost.content[0].text
        again = await client.call_tool("glob", {"pattern": "*.txt"})
        assert "a.txt" in again.content[0].text, "another daemon was started"
        assert (await client.list_tools()).tools
    assert not told, "the tools are what they were"


async def test_a_configuration_at_fault_is_told_at_once(new_place: Callable[..., Place], speak: Any):
    place = new_place("[gate]\nmoode = 1\n", start=False)
    with pytest.raises((MCPError, ExceptionGroup)) as caught:
        async with speak(place):
            pass
    error: BaseException = caught.value
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, MCPError)
    assert "moode" in error.message
    assert error.data["code"] == "E_INVALID_DEV_PIPELINE_CONFIG"
