"""The client of the fork server in `shell_supervisor.py`: commands whose every descendant stays findable (Linux)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from devtools_lsp.agent.shell_launch import END_BOUND_S, GRACE_S, Ended, Exit, Launch, LeftBehind
from devtools_lsp.errors import StepFailedError, StepUnavailableError

_SEND_BOUND_S = 5.0
_FORGIVEN_LOSSES = 3


class ServerLostError(Exception):
    """The fork server died or never came up."""


class ForkServer:
    """The client of one supervisor process, started when first needed and shared by every event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._spare: socket.socket | None = None
        self._failures = 0
        self._users = 0

    @property
    def broken(self) -> bool:
        """It was lost so often that it is not tried again."""
        return self._failures >= _FORGIVEN_LOSSES

    def spawn(self, launch: Launch, path: str) -> KeptProcess:
        """Hand a command to a keeper; raises ServerLostError when there is none to be had."""
        request = {
            "argv": list(launch.argv),
            "path": path,
            "env": dict(launch.env),
            "cwd": launch.cwd,
            "grace_s": GRACE_S,
            "spare": launch.spare_first,
        }
        body = json.dumps(request).encode()
        outputs = [launch.stdout_fd, launch.stderr_fd]
        if launch.report_fd is not None:
            outputs.append(launch.report_fd)
        with self._lock:
            control, self._spare = self._spare, None
            try:
                control = control or self._new_keeper()
                socket.send_fds(control, [len(body).to_bytes(4, "big")], outputs)
                control.sendall(body)
            except OSError as error:
                if control is not None:
                    control.close()
                self._failures += 1
                raise ServerLostError(str(error)) from error
        return KeptProcess(control, self)

    def prepare(self) -> None:
        """Have a keeper ready for the next command, so that it need not wait for one."""
        with self._lock:
            if self._spare is None and self._socket is not None and not self.broken:
                # Without one the next command asks for its own.
                with contextlib.suppress(OSError):
                    self._spare = self._new_keeper()

    def _new_keeper(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(_SEND_BOUND_S)
        with theirs:
            try:
                socket.send_fds(self._open(), [b"K"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def _open(self) -> socket.socket:
        if self._socket is not None and self._process is not None and self._process.poll() is None:
            return self._socket
        self._close()
        ours, theirs = socket.socketpair()
        with theirs:
            script = Path(__file__).with_name("shell_supervisor.py")
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                cwd="/",
            )
        ours.settimeout(_SEND_BOUND_S)
        self._socket = ours
        return ours

    def lost(self) -> None:
        """A command got no answer: the server is not to be trusted again until it is replaced."""
        with self._lock:
            self._failures += 1
            self._close()

    def answered(self) -> None:
        """It works: earlier losses are forgiven."""
        self._failures = 0

    def acquire(self) -> None:
        """Count one more user."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Count one user less, and end it with the last one."""
        with self._lock:
            self._users -= 1
            if self._users <= 0:
                self._users = 0
                self._close()

    def close(self) -> None:
        """End it."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._spare is not None:
            self._spare.close()
            self._spare = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(_SEND_BOUND_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


class KeptProcess:
    """A command under a keeper: see the wire in `shell_supervisor.py`."""

    def __init__(self, control: socket.socket, server: ForkServer) -> None:
        control.setblocking(False)
        self._control = control
        # By its number: for a socket that is not watched yet asyncio makes a text of both its addresses.
        self._descriptor = control.fileno()
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._taken_on = False
        self._started: asyncio.Future[str | None] = self._loop.create_future()
        self._exited: asyncio.Future[Exit] = self._loop.create_future()
        self._gone: asyncio.Future[Ended] = self._loop.create_future()
        self._loop.add_reader(self._descriptor, self._readable)

    async def started(self) -> None:
        """Return once the command runs.

        Raises StepUnavailableError when it cannot be started, ServerLostError when nobody has started it, so that
        another way may be tried, and StepFailedError when that is not known.
        """
        try:
            async with asyncio.timeout(_SEND_BOUND_S):
                refusal = await self._started
        except ServerLostError:
            self.release()
            await asyncio.to_thread(self._server.lost)
            raise
        except TimeoutError as error:
            self.release()
            await asyncio.to_thread(self._server.lost)
            raise StepFailedError(
                f"the command did not start within {_SEND_BOUND_S:g} s; whether it ran is not known", step="bash"
            ) from error
        except asyncio.CancelledError:
            self.release()
            raise
        self._server.answered()
        if refusal is not None:
            self.release()
            raise StepUnavailableError(f"the command could not be started: {refusal}", step="bash")

    async def exited(self) -> Exit:
        """Wait until its first process ended."""
        return await asyncio.shield(self._exited)

    async def end(self) -> Ended:
        """End everything."""
        if not self._gone.done():
            self._ask_to_end()
        try:
            async with asyncio.timeout(END_BOUND_S):
                return await asyncio.shield(self._gone)
        except TimeoutError:
            return Ended()

    def release(self) -> None:
        """Close the control socket, which the keeper takes as the wish to end everything."""
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._descriptor)
        self._control.close()
        self._settle()
        # Later: what is left to do for this command goes before.
        self._loop.call_soon(self._server.prepare)

    def _ask_to_end(self) -> None:
        with contextlib.suppress(OSError):
            self._control.send(b"K")

    def _readable(self) -> None:
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._descriptor)
            self._settle()
            return
        self._buffer += data
        while (newline := self._buffer.find(b"\n")) >= 0:
            message: dict[str, Any] = json.loads(self._buffer[:newline])
            del self._buffer[: newline + 1]
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        if "keeper" in message:
            self._taken_on = True
        elif "pid" in message:
            self._started.set_result(None)
        elif "error" in message:
            self._started.set_result(str(message["error"]))
        elif "exit" in message:
            self._exited.set_result(Exit(int(message["exit"]), bool(message["left"])))
        elif "gone" in message:
            processes = tuple(LeftBehind(int(pid), str(command)) for pid, command in message["ended"])
            self._gone.set_result(Ended(processes, tuple(int(pid) for pid in message["survivors"])))

    def _settle(self) -> None:
        """The keeper is gone: nobody is going to answer what is still open."""
        if not self._started.done():
            if self._taken_on:
                # It may have started the command, so that the command must not be started once more.
                self._started.set_result(None)
            else:
                self._started.set_exception(ServerLostError("the fork server closed the connection"))
                # Retrieved here as well: a released command's outcome may interest nobody.
                self._started.exception()
        if not self._exited.done():
            self._exited.set_result(Exit(None))
        if not self._gone.done():
            self._gone.set_result(Ended())
