"""No engine process outlives its daemon, however the daemon ends (P99)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from devtools_lsp.engines.guard import Guard
from devtools_lsp.engines.process import LaunchError, ServerProcess, engine_environment, run_command


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def guard() -> Iterator[Guard]:
    made = Guard()
    yield made
    made.close()


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.full)], ids=["kill", "term"]
)
async def test_engines_die_with_a_killed_daemon(engines: Any, tmp_path: Path, number: signal.Signals) -> None:
    """Also one that ignores every signal it can, and a child of it that left its group and session."""
    (tmp_path / "a.py").write_text("x: int = ''\n")
    daemon = await asyncio.create_subprocess_exec(
        sys.executable,
        str(engines.ZOO / "daemon.py"),
        str(tmp_path),
        str(tmp_path / "child"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert daemon.stdout is not None
    pids = json.loads(await daemon.stdout.readline())
    note = tmp_path / "child"
    await engines.eventually(lambda: note.exists() and bool(note.read_text()), what="the child runs")
    pids.append(int(note.read_text()))
    family = psutil.Process(daemon.pid).children(recursive=True)
    assert not [child for child in family if child.status() == psutil.STATUS_ZOMBIE]
    assert len(pids) == 4
    assert all(alive(pid) for pid in pids)
    daemon.send_signal(number)
    await daemon.wait()
    await engines.eventually(lambda: not any(alive(pid) for pid in pids), what="the engines are gone")
    await engines.eventually(lambda: not any(alive(child.pid) for child in family), what="the guard is gone too")


async def test_a_guard_that_somebody_ended_is_started_again(guard: Guard, engines: Any) -> None:
    guard.ready()
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    guard.add(process.pid)
    await engines.eventually(lambda: len(guards()) == 1, what="a guard lives")
    (first,) = guards()
    os.kill(first, signal.SIGKILL)
    await engines.eventually(lambda: not alive(first), what="the first guard is gone")
    guard.ready()
    await engines.eventually(lambda: len(guards()) == 1, what="another guard lives")
    assert first not in guards()
    guard.close()
    await engines.eventually(lambda: process.poll() is not None, what="the second guard knew the old group")


def guards() -> list[int]:
    """The guards that live now. Children of other tests come and go meanwhile."""
    found: list[int] = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "devtools-lsp-guard" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child.pid)
    return found


async def test_a_removed_group_is_left_alone(guard: Guard) -> None:
    guard.ready()
    kept = subprocess.Popen(["sleep", "60"], start_new_session=True)
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        for process in (kept, other):
            guard.add(process.pid)
        guard.remove(kept.pid)
        guard.close()
        assert other.wait(timeout=5) == -signal.SIGKILL
        assert kept.poll() is None
    finally:
        kept.kill()
        kept.wait()


async def run(guard: Guard, *command: str, **over: Any) -> Any:
    options: dict[str, Any] = {"cwd": Path("/"), "environment": engine_environment({}), "name": "t", "timeout_s": 5}
    return await run_command(command, guard=guard, **{**options, **over})


async def test_only_what_one_process_left_is_swept_with_it(guard: Guard) -> None:
    """Two servers of one engine have one name: the second must not die with the first."""

    async def start() -> ServerProcess:
        return await ServerProcess.start(
            ["sleep", "60"],
            cwd=Path("/"),
            environment=engine_environment({}),
            guard=guard,
            name="twin.1",
            on_output=lambda data: None,
            on_exit=lambda process: None,
        )

    first, second = await start(), await start()
    try:
        await first.kill()
        assert not alive(first.pid)
        assert alive(second.pid)
    finally:
        await second.kill()
    assert not alive(second.pid)


async def test_a_command_is_fed_and_read(guard: Guard) -> None:
    done = await run(guard, "sh", "-c", "cat; echo oops >&2; exit 3", stdin=b"hello")
    assert (done.returncode, done.stdout, done.stderr, done.timed_out) == (3, b"hello", b"oops\n", False)


async def test_a_command_that_does_not_read_its_input_is_no_failure(guard: Guard) -> None:
    done = await run(guard, "true", stdin=b"x" * 10_000_000)
    assert (done.returncode, done.timed_out) == (0, False)


async def test_a_time_limit_ends_the_group_and_what_left_it(guard: Guard, engines: Any, tmp_path: Path) -> None:
    script = f"setsid sh -c 'echo $$ > {tmp_path}/runaway; exec sleep 60' & sleep 60"
    done = await run(guard, "sh", "-c", script, timeout_s=0.5)
    assert done.timed_out
    assert done.duration_s < 3
    runaway = int((tmp_path / "runaway").read_text())
    await engines.eventually(lambda: not alive(runaway), what="the runaway is gone")


async def test_a_child_that_keeps_the_pipes_does_not_keep_the_call(guard: Guard) -> None:
    done = await run(guard, "sh", "-c", "setsid sleep 60 & echo done", sweep=True)
    assert done.stdout == b"done\n"
    assert done.duration_s < 3


async def test_endless_output_is_cut(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devtools_lsp.engines.process.MAX_OUTPUT_BYTES", 1_000_000)
    done = await run(guard, "sh", "-c", "yes")
    assert done.overflowed
    assert len(done.stdout) <= 1_000_000


async def test_a_cancelled_command_is_killed(guard: Guard, engines: Any, tmp_path: Path) -> None:
    running = asyncio.create_task(run(guard, "sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 60"))
    await engines.eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), what="started")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_cancelling_while_it_starts_leaves_nothing(guard: Guard, engines: Any) -> None:
    """Whenever the cancellation comes, the call ends at once and nothing that was started goes on."""
    for turns in range(12):
        running = asyncio.create_task(run(guard, "sh", "-c", "sleep 61 & sleep 61", timeout_s=60))
        for _ in range(turns):
            await asyncio.sleep(0)
        started = time.monotonic()
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        assert time.monotonic() - started < 3

    def sleeping() -> list[psutil.Process]:
        family = psutil.Process().children(recursive=True)
        return [p for p in family if p.status() != psutil.STATUS_ZOMBIE and "61" in p.cmdline()]

    await engines.eventually(lambda: not sleeping(), what="all are gone")


async def test_an_absent_program_is_named(guard: Guard) -> None:
    with pytest.raises(LaunchError, match="/no/such/program"):
        await run(guard, "/no/such/program")


def test_an_engine_inherits_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    environment = engine_environment({"EXTRA": "1"})
    assert "SOME_TOKEN" not in environment
    assert environment["EXTRA"] == "1"
    assert environment["PATH"] == os.environ["PATH"]
