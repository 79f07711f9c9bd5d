"""The life of the daemon: one for each root, its lock and socket, its clients, and its end (SPEC 8.0.2).

The lock file is held under flock for life and never unlinked; its holder alone replaces a stale socket. The
socket appears when the daemon accepts and goes first when it ends. Knows nothing of what is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devtools_lsp import discovery
from devtools_lsp.daemon.connection import Connection, ConnectionBounds
from devtools_lsp.daemon.doors import Build, Doors, Peer
from devtools_lsp.daemon.intake import Arrival
from devtools_lsp.errors import ConflictError, InvalidConfigError, PolicyError, WaitTimeoutError
from devtools_lsp.ports import Cancellation

_log = logging.getLogger(__name__)

_BACKLOG = 512
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class LifeBounds:
    """Bounds of the daemon's own waits. Durations in seconds."""

    lock_s: float = 10.0
    greeting_s: float = 30.0
    late_connection_s: float = 0.05
    disconnect_s: float = 15.0
    close_s: float = 10.0
    max_connections: int = 1000
    connection: ConnectionBounds = field(default_factory=ConnectionBounds)


class AlreadyRunningError(ConflictError):
    """Another daemon serves this root or this socket; `pid` is its process, 0 when unknown."""

    default_retry = "no"

    def __init__(self, message: str, pid: int) -> None:
        super().__init__(message)
        self.pid = pid


async def serve(
    root: Path | str,
    build: Build,
    *,
    idle_s: float | None,
    ready: Callable[[str], None],
    bounds: LifeBounds | None = None,
) -> str:
    """Run the daemon of a root until it is stopped; returns why it ended.

    `build` is awaited once the locks are held and before the socket exists. `ready` is told the socket's path
    when connections are accepted. Without clients for `idle_s` seconds it ends; None means never. SIGTERM,
    SIGINT, SIGHUP and `devtools/stop` end it gracefully, every wait of that bounded.

    Raises AlreadyRunningError, PolicyError for places that are not ours, InvalidConfigError for roots that are
    refused, and whatever `build` raises.
    """
    discovery.require_posix()
    daemon = Daemon(discovery.checked_root(root), bounds or LifeBounds())
    with contextlib.ExitStack() as held:
        for lock in await daemon.acquire_locks():
            held.callback(os.close, lock)
        held.callback(_handle_signals(daemon.stop))
        return await daemon.run(build, idle_s, ready)


class Daemon:
    """One daemon: implements `doors.Host`. Made by `serve`."""

    def __init__(self, root: Path, bounds: LifeBounds) -> None:
        self._root = root
        self._bounds = bounds
        self._socket_path = discovery.socket_path(root)
        self._started = time.monotonic()
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._names = itertools.count(1)
        self._stopping = Cancellation()
        self._left = asyncio.Event()
        self._quiet_since = self._started

    # -- Host ----------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The workspace root, links resolved."""
        return self._root

    @property
    def socket_path(self) -> Path:
        """Where clients connect."""
        return self._socket_path

    @property
    def uptime_s(self) -> float:
        """Seconds since the daemon started."""
        return time.monotonic() - self._started

    def peers(self) -> Sequence[Peer]:
        """Everybody who is connected and has a role."""
        return [peer for connection in self._connections for peer in connection.peers]

    def stop(self, reason: str) -> None:
        """Begin the graceful end; later calls change nothing."""
        self._stopping.cancel(reason)

    # -- locks ---------------------------------------------------------------------------------------------------

    async def acquire_locks(self) -> list[int]:
        """The locks of the socket and of the root, as open descriptors; waits for one that starts or ends.

        They are one and the same daemon's unless DEVTOOLS_LSP_SOCKET gave two roots one socket, or one root two.
        """
        if os.environ.get(discovery.SOCKET_VARIABLE):
            try:
                self._socket_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidConfigError(
                    f"cannot make the socket's directory {self._socket_path.parent}: {error.strerror}; set "
                    f"{discovery.SOCKET_VARIABLE} to a path in a directory that you can write"
                ) from None
        of_socket = await self._acquire(discovery.lock_path(self._socket_path))
        try:
            of_root = await self._acquire(discovery.state_directory(self._root) / "daemon.lock")
        except BaseException:
            os.close(of_socket)
            raise
        return [of_root, of_socket]

    async def _acquire(self, path: Path) -> int:
        deadline = time.monotonic() + self._bounds.lock_s
        while True:
            lock = discovery.try_lock(path)
            if lock is not None:
                return lock
            pid = discovery.lock_holder(path) or 0
            if _accepts(self._socket_path) and _lives(pid):
                raise AlreadyRunningError(
                    f"a daemon (pid {pid}) already serves {self._socket_path}; `devtools-lsp stop` ends it", pid
                )
            if time.monotonic() > deadline:
                raise AlreadyRunningError(
                    f"another daemon (pid {pid}) holds {path} and has not accepted or ended within "
                    f"{self._bounds.lock_s:g} s; end it with `devtools-lsp stop`, or kill {pid}",
                    pid,
                )
            await asyncio.sleep(0.02)

    # -- life ----------------------------------------------------------------------------------------------------

    async def run(self, build: Build, idle_s: float | None, ready: Callable[[str], None]) -> str:
        """From the first lock to the end; the caller holds the locks."""
        doors = await self._build(build)
        if doors is None:
            return self._stopping.reason
        try:
            await self._accept_until_stopped(doors, idle_s, ready)
            await self._disconnect_all()
        finally:
            await self._close_doors(doors)
        return self._stopping.reason

    async def _build(self, build: Build) -> Doors | None:
        """The doors, or None when we were stopped before there were any: `build` was cancelled then."""
        building = asyncio.ensure_future(build(self))
        try:
            await self._stopping.wait_or_done(building)
            if not building.done():
                building.cancel()
                await asyncio.wait([building], timeout=self._bounds.close_s)
        finally:
            building.cancel()
        return building.result() if building.done() and not building.cancelled() else None

    async def _accept_until_stopped(self, doors: Doors, idle_s: float | None, ready: Callable[[str], None]) -> None:
        listener = bind(self._socket_path)
        identity = os.stat(self._socket_path).st_ino
        try:
            server = await asyncio.get_running_loop().create_unix_server(
                lambda: Arrival(lambda transport: self._accept(doors, transport)), sock=listener
            )
        except BaseException:
            listener.close()
            raise
        try:
            if self._stopping.cancelled:
                return
            ready(os.fspath(self._socket_path))
            idle = asyncio.create_task(self._stop_when_idle(idle_s)) if idle_s else None
            await self._stopping.wait()
            if idle is not None:
                idle.cancel()
        finally:
            server.close()
            for path in (self._socket_path, _aside(self._socket_path)):
                _unlink_own(path, identity)

    def _accept(self, doors: Doors, transport: asyncio.Transport) -> None:
        peer: socket.socket = transport.get_extra_info("socket")
        try:
            pid, uid = discovery.peer_credentials(peer)
        except OSError:
            transport.abort()
            return
        if uid != os.geteuid():
            _log.warning("a connection of user %d (pid %s) was refused", uid, pid)
            transport.abort()
            return
        if len(self._connections) >= self._bounds.max_connections or self._stopping.cancelled:
            _log.warning("a connection was refused: %d are open", len(self._connections))
            transport.abort()
            return
        connection = Connection(transport, doors, f"c{next(self._names)}", self.stop, self._bounds.connection)
        task = asyncio.get_running_loop().create_task(connection.run())
        self._connections[connection] = task
        task.add_done_callback(lambda done: self._connection_ended(connection, done))

    def _connection_ended(self, connection: Connection, task: asyncio.Task[None]) -> None:
        self._connections.pop(connection, None)
        self._quiet_since = time.monotonic()
        self._left.set()
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("a connection ended with a fault of ours", exc_info=fault)

    # -- the end -------------------------------------------------------------------------------------------------

    async def _stop_when_idle(self, idle_s: float) -> None:
        while True:
            self._left.clear()
            if self._has_clients():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._bounds.greeting_s):
                        await self._left.wait()
                continue
            remaining_s = self._quiet_since + idle_s - time.monotonic()
            if remaining_s > 0:
                await asyncio.sleep(remaining_s)
            elif await self._nobody_comes_at_the_last_moment():
                self.stop(f"no clients for {idle_s:g} s")
                return

    def _has_clients(self) -> bool:
        """Whether anybody is here: who has said nothing for long does not count."""
        return any(c.peers or c.age_s < self._bounds.greeting_s for c in self._connections)

    async def _nobody_comes_at_the_last_moment(self) -> bool:
        """Move the socket out of sight, and see whether somebody had already connected: it is put back then."""
        aside = _aside(self._socket_path)
        self._socket_path.rename(aside)
        await asyncio.sleep(self._bounds.late_connection_s)
        if not self._has_clients():
            return True
        aside.rename(self._socket_path)
        return False

    async def _close_doors(self, doors: Doors) -> None:
        try:
            async with asyncio.timeout(self._bounds.close_s):
                await doors.close()
        except TimeoutError:
            _log.error("what is served did not close within %g s", self._bounds.close_s)
        except Exception:
            _log.exception("what is served did not close well")

    async def _disconnect_all(self) -> None:
        tasks = list(self._connections.values())
        for connection in list(self._connections):
            connection.shut(f"the daemon is stopping: {self._stopping.reason}", str(self._socket_path))
        if not tasks:
            return
        _, pending = await asyncio.wait(tasks, timeout=self._bounds.disconnect_s)
        for task in pending:
            _log.error("a connection did not end within %g s", self._bounds.disconnect_s)
            task.cancel()


# -- the socket --------------------------------------------------------------------------------------------------


def bind(path: Path) -> socket.socket:
    """A listening socket with mode 0600 at `path`; a stale one is replaced. The caller holds the socket's lock.

    Raises PolicyError when what is there is no socket, not ours, or served by something that is no daemon of ours.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        pass
    else:
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
            raise PolicyError(f"{path} is in the way and is not our socket; remove it", reason="protected")
        if _accepts(path):
            raise PolicyError(f"another program listens at {path}; choose another socket", reason="protected")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _accepts(path: Path) -> bool:
    try:
        discovery.connect(path, timeout_s=1.0).close()
    except OSError:
        return False
    except WaitTimeoutError:
        # Its queue is full: somebody is there, however slow.
        return True
    return True


def _lives(pid: int) -> bool:
    """Whether a process that holds a lock is there; one that is not known (0) is.

    What a killed daemon was about to run has its lock and its socket for the moment between fork and exec.
    """
    if not pid:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".closing")


def _unlink_own(path: Path, identity: int) -> None:
    """Remove our socket, and nothing that somebody put in its place."""
    try:
        if os.lstat(path).st_ino == identity:
            path.unlink()
    except FileNotFoundError:
        pass


def _handle_signals(stop: Callable[[str], None]) -> Callable[[], None]:
    """Make the signals end the daemon gracefully; returns what undoes that.

    One that is ignored already stays so: that is what `nohup` and a shell's `&` ask for.
    """
    loop = asyncio.get_running_loop()
    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, stop, signal.Signals(number).name)

    def undo() -> None:
        for number in handled:
            loop.remove_signal_handler(number)

    return undo
