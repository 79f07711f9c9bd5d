"""Starting a command and ending everything that it started, with what this machine offers.

`start` prefers the fork server (Linux): every descendant of a command stays findable, whatever it forks or detaches.
Elsewhere, or when that server does not come up, a command gets a session of its own and its descendants are sampled
while it runs: most of what it started is then found, not certainly all. Knows nothing of shells, sandboxes or
output.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import sys

from devtools_lsp.agent.shell_fork_server import ForkServer, ServerLostError
from devtools_lsp.agent.shell_grouped import GroupedProcess
from devtools_lsp.agent.shell_launch import Launch, Running
from devtools_lsp.errors import StepUnavailableError

_FORK_SERVER = ForkServer()
"""One for the process and every event loop in it; its supervisor is started when first needed."""

_TRIES = 2

atexit.register(_FORK_SERVER.close)


async def start(launch: Launch) -> tuple[Running, bool]:
    """Start a command; the flag says whether every descendant is certain to be found.

    Raises StepUnavailableError when the program does not exist or cannot be executed. The descriptors remain the
    caller's to close.
    """
    path = shutil.which(launch.argv[0], path=launch.env.get("PATH", os.defpath))
    if path is None:
        raise StepUnavailableError(f"the program {launch.argv[0]!r} was not found on PATH", step="bash")
    for _ in range(_TRIES):
        if not subreaper_available():
            break
        try:
            kept = _FORK_SERVER.spawn(launch, path)
            await kept.started()
        except ServerLostError:
            # Nothing was started, so that another server, and then another way, may be tried.
            await asyncio.to_thread(_FORK_SERVER.close)
        else:
            return kept, True
    return await GroupedProcess.start(launch, path), False


def subreaper_available() -> bool:
    """Whether the fork server can be used here, as far as is known without starting a command."""
    return sys.platform == "linux" and not _FORK_SERVER.broken


def acquire() -> None:
    """One more composed root runs commands here: the fork server stays until the last of them has released it."""
    _FORK_SERVER.acquire()


def release() -> None:
    """One root less, whose commands have ended; with the last one the fork server ends. Blocks for a moment."""
    _FORK_SERVER.release()


def close() -> None:
    """End the fork server, whoever uses it; the next `start` opens another. Commands that run go on."""
    _FORK_SERVER.close()
