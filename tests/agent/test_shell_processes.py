"""The fork server and the fallback: what is left when one of the parts dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from devtools_lsp.agent import shell_processes
from devtools_lsp.agent.shell import ShellSettings, run_command
from devtools_lsp.agent.shell_fork_server import ForkServer
from devtools_lsp.agent.shell_launch import Launch

BARE = ShellSettings(sandbox="none")


def supervisors_of(pid: int) -> list[psutil.Process]:
    """The supervisors among a process's children, which come and go meanwhile."""
    found: list[psutil.Process] = []
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.Error):
            if "shell_supervisor.py" in " ".join(child.cmdline()):
                found.append(child)
    return found


async def test_the_fork_server_outlives_all_its_users_but_the_last(root: Path):
    """One root that is closed does not pull the server away under the commands of another."""
    shell_processes.acquire()
    shell_processes.acquire()
    await run_command(str(root), "true", settings=BARE)
    (server,) = supervisors_of(os.getpid())
    shell_processes.release()
    assert (await run_command(str(root), "echo on", settings=BARE)).output.stdout == "on\n"
    assert supervisors_of(os.getpid()) == [server]
    shell_processes.release()
    assert supervisors_of(os.getpid()) == []


async def test_a_command_that_kills_its_keeper_is_ended_all_the_same(root: Path, nap, running, eventually):
    detached, attached = nap(), nap()
    done = await run_command(str(root), f"setsid {detached} & kill -9 $PPID; {attached}", settings=BARE)
    assert done.exit_code is None
    assert "outcome is unknown" in done.content
    await eventually(lambda: not running(detached) and not running(attached))
    assert (await run_command(str(root), "echo next", settings=BARE)).output.stdout == "next\n"


async def test_no_command_runs_twice(root: Path):
    """Not even when its keeper dies before it has told that the command runs."""
    for _ in range(20):
        await run_command(str(root), "kill -9 $PPID; echo ran >> ran", settings=BARE)
    await run_command(str(root), "true", settings=BARE)
    assert (root / "ran").read_text().count("ran") <= 20


async def test_a_killed_fork_server_is_replaced_and_running_commands_go_on(root: Path, eventually):
    await run_command(str(root), "true", settings=BARE)
    (server,) = supervisors_of(os.getpid())
    call = asyncio.create_task(
        run_command(str(root), "touch up; until [ -e go ]; do sleep 0.01; done; echo on", settings=BARE)
    )
    await eventually((root / "up").exists)
    server.kill()
    for _ in range(3):
        done = await run_command(str(root), "setsid sleep 60 & echo again", settings=BARE)
        assert done.output.stdout == "again\n"
        assert [process.command for process in done.background] == ["sleep 60"], "it is still found"
    (root / "go").touch()
    assert (await call).output.stdout == "on\n"
    (replacement,) = supervisors_of(os.getpid())
    assert replacement.pid != server.pid


async def test_without_a_working_fork_server_commands_still_run(root: Path, monkeypatch: pytest.MonkeyPatch):
    shell_processes.close()
    monkeypatch.setattr(shell_processes, "_FORK_SERVER", ForkServer())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for _ in range(4):
        assert (await run_command(str(root), "echo plain", settings=BARE)).output.stdout == "plain\n"
    assert not shell_processes.subreaper_available(), "after three losses it is not tried again"
    monkeypatch.setattr(sys, "executable", sys.exec_prefix + "/bin/python")


DYING_CLIENT = """
import asyncio, sys
from devtools_lsp.agent.shell import ShellSettings, run_command
asyncio.run(run_command(sys.argv[1], sys.argv[3], settings=ShellSettings(sandbox=sys.argv[2])))
"""


@pytest.mark.parametrize("sandbox", ["none", "auto"])
async def test_a_daemon_killed_outright_leaves_no_process_behind(root: Path, nap, running, eventually, sandbox: str):
    detached, attached = nap(), nap()
    client = subprocess.Popen(
        [sys.executable, "-c", DYING_CLIENT, str(root), sandbox, f"setsid {detached} & {attached}"]
    )
    try:
        await eventually(lambda: running(detached) and running(attached), within_s=10)
        (server,) = supervisors_of(client.pid)
    finally:
        client.kill()
        client.wait()
    await eventually(lambda: not running(detached) and not running(attached))
    await eventually(lambda: not psutil.pid_exists(server.pid) or server.status() == psutil.STATUS_ZOMBIE)


async def test_many_commands_at_once(root: Path):
    results = await asyncio.gather(
        *(run_command(str(root), f"sleep 0.05; echo {number}; exit {number}", settings=BARE) for number in range(40))
    )
    assert [(done.exit_code, done.output.stdout) for done in results] == [(n, f"{n}\n") for n in range(40)]


async def test_no_descriptor_is_lost(root: Path):
    await run_command(str(root), "true", settings=BARE)
    # One turn of the loop later there is a keeper for the next command.
    await asyncio.sleep(0)
    before = psutil.Process().num_fds()
    for command in ("true", "sleep 73 &", "exit 4", "kill -9 $PPID"):
        await run_command(str(root), command, settings=BARE)
    with pytest.raises(Exception, match="not found"):
        await run_command(str(root), "true", settings=ShellSettings(runner=("no-such-runner",)))
    done = await run_command(str(root), "sleep 74", settings=BARE, timeout_s=0.1)
    assert done.timed_out
    await run_command(str(root), "true", settings=BARE)
    await asyncio.sleep(0)
    assert psutil.Process().num_fds() == before


@pytest.mark.parametrize("fallback", [False, True])
async def test_ending_twice_and_releasing_late_is_harmless(root: Path, monkeypatch, fallback: bool):
    if fallback:
        monkeypatch.setattr(shell_processes, "subreaper_available", lambda: False)
    with open(os.devnull, "wb") as null:
        launch = Launch(["sleep", "75"], dict(os.environ), str(root), null.fileno(), null.fileno())
        process, certain = await shell_processes.start(launch)
    assert certain != fallback
    assert (await process.end()).survivors == ()
    assert (await process.end()).survivors == ()
    assert (await process.exited()).status in (-15, -9)
    process.release()
    process.release()
