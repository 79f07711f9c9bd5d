"""Commands without a fork server: a session for each, and descendants remembered as far as they were seen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess

import psutil

from devtools_lsp.agent.shell_launch import GRACE_S, Ended, Exit, Launch, LeftBehind
from devtools_lsp.errors import StepUnavailableError

_SAMPLE_INTERVAL_S = 0.2
"""A child that detaches within this time of its birth may be missed."""


class GroupedProcess:
    """A command in a session of its own, whose descendants are remembered as far as they were seen."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._seen: dict[int, psutil.Process] = {}
        self._sampler = asyncio.create_task(self._sample())

    @classmethod
    async def start(cls, launch: Launch, path: str) -> GroupedProcess:
        """Start; raises StepUnavailableError."""
        argv = list(launch.argv)
        pass_fds: tuple[int, ...] = ()
        if launch.report_fd is not None:
            # Without a fork server nobody moves the descriptor to number 3: a shell does it before the program runs.
            pass_fds = (launch.report_fd,)
            argv = ["sh", "-c", f'exec "$@" 3>&{launch.report_fd}', "sh", path, *argv[1:]]
            path = "/bin/sh"
        try:
            process = await asyncio.create_subprocess_exec(
                path,
                *argv[1:],
                stdin=subprocess.DEVNULL,
                stdout=launch.stdout_fd,
                stderr=launch.stderr_fd,
                pass_fds=pass_fds,
                env=dict(launch.env),
                cwd=launch.cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise StepUnavailableError(f"the command could not be started: {error.strerror}", step="bash") from error
        return cls(process)

    async def exited(self) -> Exit:
        """Wait until its first process ended."""
        status = await self._process.wait()
        await self._look()
        return Exit(status, any(_is_alive(process) for process in self._seen.values()))

    async def end(self) -> Ended:
        """SIGTERM, a moment, SIGKILL, and once more for what appeared meanwhile."""
        await self._look()
        running = tuple(
            LeftBehind(pid, _command_line(process)) for pid, process in self._seen.items() if _is_alive(process)
        )
        self._signal_all(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await asyncio.to_thread(psutil.wait_procs, list(self._seen.values()), GRACE_S)
                await self._process.wait()
        for _ in range(3):
            await self._look()
            self._signal_all(signal.SIGKILL)
            if not self._alive():
                break
            await asyncio.sleep(0.05)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._process.wait()
        self._sampler.cancel()
        return Ended(running, tuple(self._alive()))

    def release(self) -> None:
        """End what is known to run, at once."""
        self._sampler.cancel()
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
        for process in self._seen.values():
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    def _alive(self) -> list[int]:
        alive = [pid for pid, process in self._seen.items() if _is_alive(process)]
        return alive if self._process.returncode is not None else [self._process.pid, *alive]

    async def _sample(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(_SAMPLE_INTERVAL_S)

    async def _look(self) -> None:
        """Remember the members of the session and every descendant of what is known."""
        self._seen.update(await asyncio.to_thread(_find_related, self._process.pid, dict(self._seen)))


def _find_related(leader: int, seen: dict[int, psutil.Process]) -> dict[int, psutil.Process]:
    related: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        if process.pid == leader or process.pid in seen:
            continue
        with contextlib.suppress(psutil.Error, OSError):
            parent = process.ppid()
            if os.getsid(process.pid) == leader or parent == leader or parent in seen or parent in related:
                related[process.pid] = process
    return related


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:200]
    except psutil.Error:
        return ""
