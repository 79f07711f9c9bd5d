"""Ending a daemon of whatever version and in whatever state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Literal

from devtools_lsp import discovery
from devtools_lsp.client.link import SocketLink
from devtools_lsp.errors import DevToolsError, WaitTimeoutError

_ANSWER_S = 5.0

Stopped = Literal["notRunning", "stopped", "terminated", "killed"]


async def stop_daemon(root: Path | str, *, timeout_s: float = 30.0) -> Stopped:
    """End the daemon of a root, of whatever version and in whatever state, and wait until it has ended.

    It is asked first; when it has not ended within `timeout_s` it gets SIGTERM, then SIGKILL, by the pid that the
    kernel names for the socket. Raises WaitTimeoutError when even that does not help, PolicyError when the server
    is another user's.
    """
    checked = discovery.checked_root(root)
    path = discovery.socket_path(checked)
    lock = discovery.lock_path(path)
    try:
        connection = await asyncio.to_thread(discovery.connect, path)
    except (FileNotFoundError, ConnectionRefusedError, WaitTimeoutError):
        pid = discovery.lock_holder(lock)
        if pid is None:
            return "notRunning"
    else:
        pid = discovery.peer_credentials(connection)[0] or discovery.lock_holder(lock) or 0
        link = await SocketLink.over(connection)
        with contextlib.suppress(DevToolsError, TimeoutError):
            # What is waited for is the end, not the answer; a timeout of our own does not wait for a cancellation.
            async with asyncio.timeout(min(timeout_s, _ANSWER_S)):
                await link.request("devtools/stop", {}, timeout_s=2 * _ANSWER_S)
        await link.close()
        if await released(lock, pid, timeout_s):
            return "stopped"
    escalation: tuple[tuple[signal.Signals, Stopped], ...] = (
        (signal.SIGTERM, "terminated"),
        (signal.SIGKILL, "killed"),
    )
    for number, outcome in escalation:
        # Only who holds the lock at this moment is the daemon; a pid from before may be anybody's by now.
        if pid and discovery.lock_holder(lock) == pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if await released(lock, pid, timeout_s):
            return outcome
    raise WaitTimeoutError(f"the daemon (pid {pid}) still holds {lock}; end that process by hand")


async def released(lock: Path, pid: int, timeout_s: float) -> bool:
    """Whether that process lets go of the lock within the bound; another one may take it at once."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while discovery.lock_holder(lock) in (0, pid):
        if loop.time() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True
