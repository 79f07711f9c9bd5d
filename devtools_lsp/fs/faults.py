"""Fault points: where a test makes the process die or a call fail, at a named step of a transaction.

`DEVTOOLS_LSP_FAULT=<point>[#<count>]:<action>` arms one fault for the life of the process. `<point>` is a point
named below, `journal:*`, `recovery:*` or `*`; the fault strikes when it is passed for the `<count>`-th time
(default 1). `<action>` is `kill` (SIGKILL to the own process: what `kill -9` does) or the name of an errno such
as `ENOSPC`, raised as OSError. An unset variable costs one comparison a point.

Points of a commit, in the order they are passed (those marked n once for each file or directory):
`journal:mkdir` n, `journal:before` n, `journal:stage` n, `journal:intent`, `journal:prepared`, `journal:place` n,
`journal:placed` n, `journal:sync`, `journal:commit`, `journal:committed`. Points of a recovery: `recovery:start`
(a transaction to undo was found), `recovery:revert` n, `recovery:reverted` n, `recovery:forget`.
"""

from __future__ import annotations

import errno
import os
import signal

VARIABLE = "DEVTOOLS_LSP_FAULT"

POINTS = (
    "journal:mkdir",
    "journal:before",
    "journal:stage",
    "journal:intent",
    "journal:prepared",
    "journal:place",
    "journal:placed",
    "journal:sync",
    "journal:commit",
    "journal:committed",
    "recovery:start",
    "recovery:revert",
    "recovery:reverted",
    "recovery:forget",
)


class Fault:
    """One armed fault; `passed` counts how often its point was passed."""

    def __init__(self, text: str) -> None:
        where, _, action = text.rpartition(":")
        point, _, count = where.partition("#")
        self._point = point
        self._count = int(count or 1)
        self._action = action
        self.passed = 0
        known = action == "kill" or isinstance(getattr(errno, action, None), int)
        if not known or not (point in POINTS or point in ("*", "journal:*", "recovery:*")):
            raise ValueError(f"{VARIABLE}={text!r}: expected <point>[#<count>]:<kill|errno name>")

    def strike(self, point: str) -> None:
        """Count the point, and act when it is this fault's turn."""
        if self._point not in (point, "*", point.partition(":")[0] + ":*"):
            return
        self.passed += 1
        if self.passed != self._count:
            return
        if self._action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        code = int(getattr(errno, self._action))
        raise OSError(code, os.strerror(code))


armed = Fault(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None
"""The fault of this process, if there is one."""


def point(name: str) -> None:
    """Pass a fault point."""
    if armed is not None:
        armed.strike(name)
