"""One daemon for a root: its lock, its socket, its idle end and its graceful one (SPEC 8.0.2)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp import discovery
from devtools_lsp.daemon.calls import CallBounds
from devtools_lsp.daemon.connection import ConnectionBounds
from devtools_lsp.daemon.doors import Doors, Host
from devtools_lsp.daemon.lifecycle import AlreadyRunningError, LifeBounds, bind, serve
from devtools_lsp.errors import InvalidConfigError, PolicyError
from tests.toy_daemon import WAIT_S, RawClient, Toy, private_places, processes, toy_daemon

PROGRAM = Path(__file__).parent.parent / "toy_daemon.py"
QUICK = LifeBounds(
    lock_s=0.3, greeting_s=0.2, close_s=0.3, connection=ConnectionBounds(calls=CallBounds(cancel_grace_s=0.1))
)


@pytest.fixture
def root() -> Iterator[Path]:
    with private_places() as made:
        yield made


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def program(root: Path) -> Iterator[Start]:
    """Starts toy daemons as processes, with warnings as errors."""
    with processes() as started:

        def start(*arguments: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-W", "error", str(PROGRAM), str(root), *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent)},
            )
            started.append(process)
            return process

        yield start


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


async def no_doors(host: Host) -> Doors:
    raise AssertionError("build must not be called")


def not_ready(path: str) -> None:
    raise AssertionError(path)


# -- the socket --------------------------------------------------------------------------------------------------


async def test_the_socket_and_its_lock_are_private_and_the_path_is_told():
    async with toy_daemon() as toy:
        path = toy.socket_path
        assert path.stat().st_mode & 0o777 == 0o600
        assert discovery.lock_path(path).stat().st_mode & 0o777 == 0o600
        assert discovery.lock_holder(discovery.lock_path(path)) == os.getpid()
        assert toy.host is not None
        assert toy.host.socket_path == path
        assert toy.host.root == toy.root
        assert toy.host.uptime_s >= 0
        before = os.umask(0)
        os.umask(before)
        assert before != 0o177


async def test_the_lock_file_outlives_the_daemon_and_the_socket_does_not(root: Path):
    async with toy_daemon(root=root) as toy:
        path = toy.socket_path
        lock = discovery.lock_path(path)
        inode = lock.stat().st_ino
    assert not path.exists()
    assert lock.stat().st_ino == inode
    assert discovery.lock_holder(lock) is None


async def test_a_stale_socket_is_taken_over(root: Path):
    path = discovery.socket_path(root)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    assert path.exists()
    ended = asyncio.create_task(
        serve(root, Toy(root).build, idle_s=None, ready=lambda told: ready.set_result(told), bounds=QUICK)
    )
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(WAIT_S):
        assert await ready == str(path)
        client = RawClient(*await asyncio.open_unix_connection(str(path)))
        await client.request(1, "devtools/stop")
        assert (await client.receive())["result"] == {"stopping": True, "pid": os.getpid()}
        assert await ended == "a client asked for it"
        await client.close()


@pytest.mark.parametrize("obstacle", ["file", "directory", "symlink to a file", "symlink to a socket", "a live server"])
async def test_what_is_not_our_stale_socket_is_never_removed(root: Path, obstacle: str):
    path = discovery.socket_path(root)
    victim = root / "victim"
    victim.write_text("kept")
    server = socket.socket(socket.AF_UNIX)
    if obstacle == "file":
        path.write_text("kept")
    elif obstacle == "directory":
        path.mkdir()
    elif obstacle == "symlink to a file":
        path.symlink_to(victim)
    elif obstacle == "symlink to a socket":
        server.bind(str(root / "s"))
        path.symlink_to(root / "s")
    else:
        server.bind(str(path))
        server.listen()
    before = path.lstat()
    with server, pytest.raises(PolicyError, match=r"in the way|another program"):
        await serve(root, Toy(root).build, idle_s=None, ready=not_ready, bounds=QUICK)
    assert path.lstat().st_ino == before.st_ino
    assert victim.read_text() == "kept"


async def test_a_squatted_runtime_directory_starts_nothing(root: Path):
    run = Path(os.environ["XDG_RUNTIME_DIR"]) / "devtools-lsp"
    run.symlink_to(root)
    with pytest.raises(PolicyError, match="somebody may have put it there"):
        await serve(root, no_doors, idle_s=None, ready=not_ready, bounds=QUICK)
    assert os.listdir(root) == ["devtools.toml"]


async def test_a_wide_root_starts_nothing(monkeypatch: pytest.MonkeyPatch, root: Path):
    monkeypatch.setenv("HOME", str(root))
    with pytest.raises(InvalidConfigError, match="too wide"):
        await serve(root, no_doors, idle_s=None, ready=not_ready)


async def test_our_socket_is_not_confused_with_one_put_in_its_place(root: Path):
    async with toy_daemon(root=root) as toy:
        path = toy.socket_path
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
        inode = path.stat().st_ino
        assert toy.host is not None
        toy.host.stop("now")
        assert toy.task is not None
        await toy.task
        assert path.stat().st_ino == inode
        path.unlink()


def test_bind_leaves_nothing_open_when_it_fails(root: Path):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("this system does not list a process's open files in /proc")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="too long"):
        bind(root / ("x" * 200))
    assert len(os.listdir("/proc/self/fd")) == len(before)


async def test_a_connection_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch):
    async with toy_daemon() as toy:
        monkeypatch.setattr(discovery, "peer_credentials", lambda _connection: (1, 54321))
        client = await toy.connect()
        assert await client.ended()
        monkeypatch.undo()


# -- one of many -------------------------------------------------------------------------------------------------


async def test_a_second_daemon_is_refused_with_the_first_ones_pid(root: Path):
    async with toy_daemon(root=root):
        with pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}.*already serves") as caught:
            await serve(root, no_doors, idle_s=None, ready=not_ready, bounds=QUICK)
        assert caught.value.pid == os.getpid()


async def test_one_root_has_one_daemon_whatever_its_sockets(root: Path, monkeypatch: pytest.MonkeyPatch):
    async with toy_daemon(root=root):
        monkeypatch.setenv("DEVTOOLS_LSP_SOCKET", str(root / "other.sock"))
        with pytest.raises(AlreadyRunningError, match=r"holds .*daemon\.lock"):
            await serve(root, no_doors, idle_s=None, ready=not_ready, bounds=QUICK)
        monkeypatch.undo()


async def test_a_chosen_socket_gets_its_directory(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEVTOOLS_LSP_SOCKET", str(root / "made" / "d.sock"))
    toy = Toy(root)
    task = asyncio.create_task(serve(root, toy.build, idle_s=None, ready=lambda _path: toy.ready.set(), bounds=QUICK))
    async with asyncio.timeout(WAIT_S):
        await toy.ready.wait()
        assert (root / "made").stat().st_mode & 0o777 == 0o700
        assert toy.host is not None
        toy.host.stop("over")
        assert await task == "over"


def test_of_twenty_racing_starters_one_wins(root: Path, program: Start):
    """Every loser says who won; a stale socket was in the way at the start."""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(discovery.socket_path(root)))
    starters = [program("60", "0.2") for _ in range(20)]
    lines = [first_line(starter) for starter in starters]
    assert sorted(lines) == [""] * 19 + [f"READY {discovery.socket_path(root)}\n"]
    winner = next(starter for starter, line in zip(starters, lines, strict=True) if line)
    with discovery.connect(discovery.socket_path(root)) as connection:
        pid = discovery.peer_credentials(connection)[0]
    assert pid == winner.pid
    for starter in starters:
        if starter is not winner:
            _, said = starter.communicate(timeout=WAIT_S)
            assert starter.returncode != 0
            assert f"AlreadyRunningError: a daemon (pid {pid}) already serves" in said
    winner.send_signal(signal.SIGTERM)
    assert winner.communicate(timeout=WAIT_S)[1] == ""
    assert winner.returncode == 0


def test_a_killed_daemon_leaves_a_socket_that_the_next_one_replaces(root: Path, program: Start):
    first = program()
    assert first_line(first).startswith("READY")
    first.kill()
    first.communicate(timeout=WAIT_S)
    assert discovery.socket_path(root).exists()
    second = program()
    assert first_line(second).startswith("READY")
    second.terminate()
    second.communicate(timeout=WAIT_S)
    assert not discovery.socket_path(root).exists()


# -- the end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_gracefully(root: Path, program: Start, number: signal.Signals):
    before = signal.signal(number, signal.SIG_DFL)
    try:
        # These tests may be run with `nohup` or `&`, which is for them and not for what they start.
        daemon = program()
    finally:
        signal.signal(number, before)
    assert first_line(daemon).startswith("READY")
    daemon.send_signal(number)
    assert daemon.communicate(timeout=WAIT_S)[1] == ""
    assert daemon.returncode == 0
    assert not discovery.socket_path(root).exists()


def test_a_signal_that_was_ignored_stays_ignored(root: Path, program: Start):
    """As `nohup` and a shell's `&` ask for."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        daemon = program()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert first_line(daemon).startswith("READY")
    daemon.send_signal(signal.SIGHUP)
    with discovery.connect(discovery.socket_path(root)) as connection:
        connection.sendall(b"Content-Length: 2\r\n\r\n{}")
        assert b"error" in connection.recv(4096)
    daemon.terminate()
    assert daemon.communicate(timeout=WAIT_S)[1] == ""


def test_a_signal_before_it_is_ready_ends_it_as_well(root: Path, program: Start):
    daemon = program("60", "3600")
    lock = discovery.lock_path(discovery.socket_path(root))
    for _ in range(1000):
        if discovery.lock_holder(lock) == daemon.pid:
            break
        try:
            daemon.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
    # The handler is in place once both locks are held; the second one is the root's.
    while discovery.lock_holder(discovery.state_directory(root) / "daemon.lock") != daemon.pid:
        assert daemon.poll() is None
    daemon.terminate()
    daemon.communicate(timeout=WAIT_S)
    assert not discovery.socket_path(root).exists()
    assert discovery.lock_holder(lock) is None


async def test_the_end_answers_what_runs_and_closes_everybody():
    async with toy_daemon(QUICK) as toy:
        waiting, idle, stranger = await toy.agent(), await toy.agent(), await toy.connect()
        await waiting.call(1, "wait")
        await waiting.call(2, "deaf")
        await toy.until(lambda: toy.agents.started == 2)
        assert toy.host is not None
        toy.host.stop("the operator asked")
        toy.host.stop("again")
        answers = [await waiting.receive(), await waiting.receive()]
        assert sorted(answer["id"] for answer in answers) == [1, 2]
        assert all(answer["error"]["data"]["code"] == "E_DEV_CANCELLED" for answer in answers)
        assert "the operator asked" in answers[0]["error"]["message"]
        for client in (waiting, idle, stranger):
            assert await client.ended()
        assert toy.task is not None
        assert await toy.task == "the operator asked"
        assert len(toy.agents.detached_peers) == 2


async def test_what_does_not_end_is_let_go_of(caplog: pytest.LogCaptureFixture, root: Path):
    toy = Toy(root)

    async def stuck() -> None:
        await asyncio.sleep(3600)

    async def build(host: Host) -> Doors:
        doors = await toy.build(host)
        return Doors(doors.agents, doors.editors, stuck)

    bounds = LifeBounds(close_s=0.1, disconnect_s=0.2, connection=ConnectionBounds(calls=CallBounds(cancel_grace_s=10)))
    task = asyncio.create_task(serve(root, build, idle_s=None, ready=lambda _path: toy.ready.set(), bounds=bounds))
    async with asyncio.timeout(WAIT_S):
        await toy.ready.wait()
        client = await toy.agent()
        await client.call(1, "deaf")
        await toy.until(lambda: toy.agents.started == 1)
        assert toy.host is not None
        toy.host.stop("now")
        assert await task == "now"
        await client.close()
    assert "did not close within" in caplog.text
    assert "a connection did not end within" in caplog.text


async def test_a_build_that_fails_leaves_no_socket_and_no_lock(root: Path):
    async def build(host: Host) -> Doors:
        raise InvalidConfigError("a bad configuration")

    with pytest.raises(InvalidConfigError, match="a bad configuration"):
        await serve(root, build, idle_s=None, ready=not_ready)
    assert not discovery.socket_path(root).exists()
    assert discovery.lock_holder(discovery.lock_path(discovery.socket_path(root))) is None


# -- idleness ----------------------------------------------------------------------------------------------------


async def ended(toy: Toy) -> str:
    assert toy.task is not None
    async with asyncio.timeout(WAIT_S):
        return await asyncio.shield(toy.task)


async def test_it_ends_when_nobody_came():
    async with toy_daemon(QUICK, idle_s=0.1) as toy:
        assert await ended(toy) == "no clients for 0.1 s"


async def test_it_stays_while_somebody_is_connected_and_ends_afterwards():
    async with toy_daemon(QUICK, idle_s=0.2) as toy:
        client = await toy.agent()
        for number in range(5):
            await asyncio.sleep(0.1)
            await client.call(number, "echo")
            await client.receive()
        await client.close()
        assert await ended(toy) == "no clients for 0.2 s"


async def test_a_connection_that_never_says_anything_does_not_keep_it():
    async with toy_daemon(QUICK, idle_s=0.1) as toy:
        silent = await toy.connect()
        assert await ended(toy) == "no clients for 0.1 s"
        assert await silent.ended()


async def test_who_connects_at_the_last_moment_is_served(monkeypatch: pytest.MonkeyPatch):
    """The socket is moved out of sight before the end; whoever got in before is found, and it is put back."""
    rename = Path.rename
    late: list[socket.socket] = []

    def rename_after_a_late_connection(self: Path, target: Any) -> Path:
        if self.suffix == ".sock" and not late:
            late.append(socket.socket(socket.AF_UNIX))
            late[0].setblocking(False)
            late[0].connect(str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", rename_after_a_late_connection)
    async with toy_daemon(LifeBounds(), idle_s=0.1) as toy:
        await toy.until(lambda: bool(late) and toy.socket_path.exists())
        client = RawClient(*await asyncio.open_unix_connection(sock=late[0]))
        toy.clients.append(client)
        assert "result" in await client.introduce()
        other = await toy.agent()
        await other.call(1, "echo")
        assert (await other.receive())["id"] == 1
        await client.close()
        await other.close()
        assert await ended(toy) == "no clients for 0.1 s"
