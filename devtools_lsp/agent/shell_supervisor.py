"""The program that starts commands and ends everything they started: a fork server that runs as its own process.

Run as a plain script by an interpreter without site packages (`python -I -S shell_supervisor.py FD`), so it
imports the standard library alone. It is Linux only: it rests on `PR_SET_CHILD_SUBREAPER` and `/proc`.

For each request it forks one *keeper*, a few hundred microseconds from a small process. The keeper declares
itself a subreaper, waits for the command it is to start, spawns it in a session of its own, and from then on every
process that the command starts has the keeper as its ancestor, however often it forks and whatever session it makes.
Ending a command means: ending the keeper's descendants until none is left. A client may ask for a keeper before it
has a command for it.

Wire, on stream sockets. To the server: one byte, with the keeper's end of a control socket attached. On that socket
to the keeper, once: 4 bytes of length (big endian), then JSON `{argv, path, env, cwd, grace_s, spare}`, with the
command's standard output, its standard error, and perhaps its descriptor 3 (where a wrapper reports) attached to the
first byte. `spare` keeps the polite SIGTERM from the command's first process (a sandbox that would pull the others
down with it before they could tidy up).

The keeper answers on the control socket in JSON lines: `{"keeper"}` before it spawns anything, then `{"pid"}`, or
`{"error", "errno"}` and no more; then
`{"exit": status, "left": whether anything still runs}` when the command's first process ended, and
`{"gone": true, "ended": [[pid, command line], ...], "survivors": [pid, ...]}` when nothing is left (or, after
`GIVE_UP_S`, what could not be ended); `ended` is what still ran when the keeper was asked to end everything.
Any byte on the control socket, or its end, asks the keeper to end everything; so a dead client leaves nothing
behind. This module knows nothing of shells, sandboxes or output.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Request(TypedDict):
        """One command to start."""

        argv: list[str]
        path: str
        env: dict[str, str]
        cwd: str
        grace_s: float
        spare: bool


PR_SET_CHILD_SUBREAPER = 36
GIVE_UP_S = 3.0
"""A process in uninterruptible sleep cannot be ended; after this long the keeper says so and leaves."""

_MAX_REQUEST_BYTES = 16 << 20
_SHOWN_COMMAND_BYTES = 200
_SHOWN_PROCESSES = 20
_RESET_SIGNALS = [
    number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP) and number < 32
]


def read_start(path: str, size: int) -> bytes:
    """The first bytes of a file under `/proc`; none when its process is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, size)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def children_by_parent() -> dict[int, list[int]]:
    """Every living process of this machine under its parent; zombies are left out."""
    table: dict[int, list[int]] = {}
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    for name in names:
        # The command's name stands in parentheses and may itself hold any character.
        fields = read_start(f"/proc/{name}/stat", 1024).rpartition(b")")[2].split()
        if len(fields) > 1 and fields[0] != b"Z":
            table.setdefault(int(fields[1]), []).append(int(name))
    return table


def descendants() -> list[int]:
    """The living processes that have this one as an ancestor."""
    table = children_by_parent()
    found: list[int] = []
    stack = [os.getpid()]
    while stack:
        offspring = table.get(stack.pop(), [])
        found += offspring
        stack += offspring
    return found


def command_line(pid: int) -> str:
    """What a process runs, for a person; `""` when it is gone."""
    raw = read_start(f"/proc/{pid}/cmdline", _SHOWN_COMMAND_BYTES)
    return raw.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")


def send_signal(pid: int, number: int) -> None:
    """Signal a process that may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def note_nothing(_number: int, _frame: object) -> None:
    """A handler that exists so that the wake-up descriptor is written."""


class Wakeup:
    """A pipe that becomes readable when a child changes state."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self.writer, False)
        signal.signal(signal.SIGCHLD, note_nothing)
        signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)

    def drain(self) -> None:
        """Forget the wake-ups so far."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.reader, 4096):
                pass


class Keeper:
    """One command and all its descendants."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._grace_s = 0.0
        self._spare = False
        self._wakeup = Wakeup()
        self._main = 0
        self._status: int | None = None
        self._reported = False
        self._childless = False

    def run(self) -> None:
        """Wait for a command, spawn it, report, end: returns when nothing is left."""
        received = receive_request(self._control)
        if received is None:
            return
        request, outputs = received
        self._grace_s = request["grace_s"]
        self._spare = request["spare"]
        # Said first: whoever heard it knows that the command may have run, whatever happens to this process; and
        # for a client that is gone nothing is started.
        if not self._say({"keeper": os.getpid()}):
            return
        try:
            os.chdir(request["cwd"])
            self._main = os.posix_spawn(
                request["path"],
                request["argv"],
                request["env"],
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    *((os.POSIX_SPAWN_DUP2, descriptor, place) for place, descriptor in enumerate(outputs, 1)),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=_RESET_SIGNALS,
            )
        except OSError as error:
            self._say({"error": error.strerror or str(error), "errno": error.errno or 0})
            return
        for descriptor in outputs:
            os.close(descriptor)
        self._say({"pid": self._main})
        self._wait()

    def _wait(self) -> None:
        poller = select.poll()
        poller.register(self._wakeup.reader, select.POLLIN)
        poller.register(self._control, select.POLLIN)
        while True:
            self._reap()
            self._report_exit()
            if self._childless:
                self._say({"gone": True, "ended": [], "survivors": []})
                return
            ready = [descriptor for descriptor, _ in poller.poll()]
            if self._control.fileno() in ready:
                self._end_all()
                return

    def _report_exit(self) -> None:
        if self._status is not None and not self._reported:
            self._reported = True
            self._say({"exit": self._status, "left": not self._childless})

    def _reap(self) -> None:
        self._wakeup.drain()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return
            if pid == 0:
                return
            if pid == self._main:
                self._status = os.waitstatus_to_exitcode(status)

    def _end_all(self) -> None:
        """SIGTERM and a moment to tidy up, then SIGKILL until nothing is left."""
        running = descendants()
        ended = [[pid, command_line(pid)] for pid in running[:_SHOWN_PROCESSES]]
        for pid in running:
            if pid != self._main or not self._spare:
                send_signal(pid, signal.SIGTERM)
                send_signal(pid, signal.SIGCONT)
        self._linger(self._grace_s)
        give_up = time.monotonic() + GIVE_UP_S
        left = descendants()
        while left and time.monotonic() < give_up:
            # Stopped first: what forks faster than it is found cannot fork any more once a scan finds nothing new.
            stopped: set[int] = set()
            while fresh := [pid for pid in left if pid not in stopped]:
                for pid in fresh:
                    send_signal(pid, signal.SIGSTOP)
                stopped.update(fresh)
                if time.monotonic() > give_up:
                    break
                left = descendants()
            for pid in stopped:
                send_signal(pid, signal.SIGKILL)
            self._linger(0.05)
            left = descendants()
        self._reap()
        self._report_exit()
        self._say({"gone": True, "ended": ended, "survivors": left})

    def _linger(self, seconds: float) -> None:
        """Wait until no child is left, at most so long."""
        deadline = time.monotonic() + seconds
        self._reap()
        while not self._childless and (remaining := deadline - time.monotonic()) > 0:
            select.select([self._wakeup.reader], [], [], remaining)
            self._reap()

    def _say(self, message: dict[str, object]) -> bool:
        """Tell the client; false when it is gone."""
        try:
            self._control.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True


def receive_request(control: socket.socket) -> tuple[Request, list[int]] | None:
    """The command to start with its outputs; None when the client is gone or talks nonsense."""
    header, outputs, _, _ = socket.recv_fds(control, 4, 3)
    for descriptor in outputs:
        os.set_inheritable(descriptor, False)
    header += receive(control, 4 - len(header)) if header else b""
    size = int.from_bytes(header, "big")
    if len(header) < 4 or len(outputs) < 2 or size > _MAX_REQUEST_BYTES:
        return None
    body = receive(control, size)
    if len(body) < size:
        return None
    request: Request = json.loads(body)
    return request, outputs


def receive(control: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer when the other side is gone."""
    data = bytearray()
    while len(data) < size:
        more = control.recv(size - len(data))
        if not more:
            break
        data += more
    return bytes(data)


def become_subreaper() -> None:
    """Orphaned descendants become children of this process from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) was refused")


def keep(server: socket.socket, wakeup: Wakeup, control: int) -> None:
    """The forked keeper's life."""
    server.close()
    os.close(wakeup.reader)
    os.close(wakeup.writer)
    os.setsid()
    become_subreaper()
    Keeper(socket.socket(fileno=control)).run()


def end_strays(keepers: set[int]) -> None:
    """A keeper that was killed leaves its descendants to us: end them in its place."""
    give_up = time.monotonic() + GIVE_UP_S
    while time.monotonic() < give_up:
        table = children_by_parent()
        strays = [pid for pid in table.get(os.getpid(), []) if pid not in keepers]
        if not strays:
            return
        stack = list(strays)
        while stack:
            pid = stack.pop()
            stack += table.get(pid, [])
            send_signal(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            for pid in strays:
                os.waitpid(pid, 0)


def serve(server: socket.socket) -> None:
    """Fork a keeper for each request until the client is gone."""
    become_subreaper()
    wakeup = Wakeup()
    keepers: set[int] = set()
    poller = select.poll()
    poller.register(server, select.POLLIN)
    poller.register(wakeup.reader, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poller.poll()]
        if wakeup.reader in ready:
            wakeup.drain()
            if reap_keepers(keepers):
                end_strays(keepers)
        if server.fileno() not in ready:
            continue
        asked, descriptors, _, _ = socket.recv_fds(server, 1, 1)
        if not asked or not descriptors:
            return
        control = descriptors[0]
        os.set_inheritable(control, False)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                keep(server, wakeup, control)
                status = 0
            finally:
                os._exit(status)
        keepers.add(pid)
        os.close(control)


def reap_keepers(keepers: set[int]) -> bool:
    """Collect ended children; true when a keeper did not end in order."""
    disorderly = False
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return disorderly
        if pid == 0:
            return disorderly
        if pid in keepers:
            keepers.discard(pid)
            disorderly = disorderly or status != 0


def main() -> None:
    """Serve on the inherited socket whose number is the one argument."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
