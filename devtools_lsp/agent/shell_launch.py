"""What is asked of whoever starts a command, and what they answer: values and one protocol, nothing that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

GRACE_S = 0.4
"""Between SIGTERM and SIGKILL: long enough for a tool to remove its lock files."""

END_BOUND_S = 6.0
"""No end of a command takes longer; what a kernel will not end by then is reported as surviving."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start. `report_fd` becomes its descriptor 3; `spare_first` keeps SIGTERM from its first process."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    stdout_fd: int
    stderr_fd: int
    report_fd: int | None = None
    spare_first: bool = False


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command's first process ended: `status` is negative for a signal, None when nobody saw it.

    `left` says that something which it started still runs.
    """

    status: int | None
    left: bool = False


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A process that still ran when everything was to end."""

    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class Ended:
    """What was ended (the first few), and the pids of what could not be (none, unless the kernel refused)."""

    processes: tuple[LeftBehind, ...] = ()
    survivors: tuple[int, ...] = ()


class Running(Protocol):
    """A started command."""

    async def exited(self) -> Exit:
        """Wait until its first process ended."""
        ...

    async def end(self) -> Ended:
        """End it and everything it started."""
        ...

    def release(self) -> None:
        """Let go; what still runs is ended without anybody waiting for it."""
        ...
