"""The guard: a tiny process that outlives the daemon for a moment, to end what the daemon can no longer end.

Engine processes run in process groups of their own. The guard is a shell that reads group ids from a pipe whose
other end only this process holds. When the pipe closes for any reason, SIGKILL included, it kills every group
that was added and not removed, and then every process that still carries the mark of this guard in its
environment: that reaches what left its group (a server that put itself in the background). Linux reads the
mark from /proc; elsewhere the groups alone are ended.

Owns outliving only; starting, stopping and reaping belong to `process`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import signal
import subprocess

import psutil

MARK = "DEVTOOLS_LSP_ENGINE"
"""The environment variable that every engine process and its descendants inherit."""

_SCRIPT = r"""
trap '' HUP INT TERM QUIT
groups=' '
while read -r verb group; do
  case $verb in
    add) groups="$groups$group " ;;
    del) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -KILL "-$group"; done
if [ -d /proc/self ]; then
  for environ in $(grep -ls "$1" /proc/[0-9]*/environ); do
    pid=${environ#/proc/}
    kill -KILL "${pid%/environ}"
  done
fi
exit 0
"""


class Guard:
    """One guard for all engine processes of this process. Start it, mark environments, add and remove groups."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self._groups: set[int] = set()
        self._marks = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None

    def mark(self, name: str) -> str:
        """A mark that no other process of this guard has: two servers of one engine must not be swept together."""
        return f"{name}.{next(self._marks)}"

    def environment(self, mark: str) -> dict[str, str]:
        """What to add to a child's environment so that `sweep(mark)` and the guard find all it leaves behind."""
        return {MARK: f"{self.token}.{mark}"}

    def ready(self) -> None:
        """Start the guard if it does not run, so that what is started next cannot escape it; takes a millisecond."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            self.close()
        self._start()
        for known in sorted(self._groups):
            self._tell("add", known)

    def add(self, group: int) -> None:
        """Watch over a process group."""
        self._groups.add(group)
        self._tell("add", group)

    def remove(self, group: int) -> None:
        """The group is gone and reaped: its number may now belong to somebody else."""
        if group in self._groups:
            self._groups.discard(group)
            self._tell("del", group)

    def close(self) -> None:
        """End the guard, and with it whatever is still added. Blocks for some milliseconds."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> None:
        # The mark of the guard itself must not be in its own environment: it would end itself half-way.
        environment = {key: value for key, value in os.environ.items() if key != MARK}
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "devtools-lsp-guard", f"{MARK}={self.token}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            start_new_session=True,
        )

    def _tell(self, verb: str, group: int) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):
            os.write(self._process.stdin.fileno(), f"{verb} {group}\n".encode())

    def sweep(self, mark: str) -> int:
        """Kill every process that carries this mark, whatever group it moved to; the number found.

        Blocks for some tens of milliseconds: call it in a thread.
        """
        wanted = f"{self.token}.{mark}"
        found = 0
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) != wanted or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                process.send_signal(signal.SIGKILL)
                found += 1
            except (psutil.Error, OSError):
                continue  # It ended meanwhile, or belongs to another user and so cannot carry our mark.
        return found
