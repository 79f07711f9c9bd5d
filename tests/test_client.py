"""The Python client against a real daemon with toy doors: typed calls, errors, progress, lost connections."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp import __version__, discovery
from devtools_lsp.client import ConnectionLostError, ProtocolError, connect, stop_daemon
from devtools_lsp.client.link import CANCEL_S
from devtools_lsp.client.session import CALL_TIMEOUT_S
from devtools_lsp.client.stopping import released
from devtools_lsp.daemon.calls import CallBounds
from devtools_lsp.daemon.connection import ConnectionBounds
from devtools_lsp.daemon.lifecycle import LifeBounds
from devtools_lsp.discovery import peers, starting
from devtools_lsp.errors import (
    BadArgumentError,
    CallCancelledError,
    ConflictError,
    DevToolsError,
    PolicyError,
    WaitTimeoutError,
    WorkspaceBoundsError,
)
from devtools_lsp.ports import Cancellation
from devtools_lsp.wire.messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from tests.toy_daemon import WAIT_S, end_started_daemons, framed, private_places, toy_daemon

PROGRAM = Path(__file__).parent / "toy_daemon.py"
QUICK = LifeBounds(connection=ConnectionBounds(calls=CallBounds(cancel_grace_s=0.1)))


@pytest.fixture
def root() -> Iterator[Path]:
    with private_places() as made:
        yield made


@pytest.fixture
def start_toys(monkeypatch: pytest.MonkeyPatch, root: Path) -> Iterator[Path]:
    """Daemons that are started from here have toy doors; yields their root, and leaves none running."""
    monkeypatch.setenv("PYTHONPATH", str(PROGRAM.parent.parent))
    monkeypatch.setattr(starting, "daemon_command", lambda of: [sys.executable, str(PROGRAM), str(of)])
    yield root
    end_started_daemons()


async def test_a_call_returns_its_result_and_knows_who_answered():
    async with toy_daemon() as toy, await connect(toy.root, name="me", surface="composite", session="s1") as client:
        assert await client.call("echo", {"type_name": 1, "é": [None]}) == {"type_name": 1, "é": [None]}
        assert client.server.version == "0.0.0-toy"
        assert client.server.surface == "composite"
        assert client.version_note is not None
        assert "0.0.0-toy" in client.version_note
        assert __version__ in client.version_note
        assert await client.status() == {"role": "agent", "name": "me", "session": "s1"}


async def test_by_a_socket_path_whatever_its_root():
    async with toy_daemon() as toy, await connect(socket_path=toy.socket_path, role="terminal") as client:
        assert (await client.status())["role"] == "terminal"


async def test_errors_are_raised_as_what_they_are():
    async with toy_daemon() as toy, await connect(toy.root) as client:
        with pytest.raises(BadArgumentError, match="no toy tool 'nonesuch'"):
            await client.call("nonesuch")
        for call, code in (
            (client.undo(), METHOD_NOT_FOUND),
            (client.call("boom"), INTERNAL_ERROR),
            (client.request("devtools/call", {"name": 3}), INVALID_PARAMS),
        ):
            with pytest.raises(ProtocolError) as caught:
                await call
            assert caught.value.rpc_code == code
        with pytest.raises(WorkspaceBoundsError, match="too large"):
            await client.call("echo", {"text": "x" * (9 * 1024 * 1024)})
        assert await client.call("echo") == {}


async def test_what_is_wrong_with_arguments_is_the_tools_to_say():
    async with toy_daemon() as toy, await connect(toy.root) as client:
        with pytest.raises(BadArgumentError, match="must be an object"):
            await client.call("echo", [1])  # type: ignore[arg-type]


async def test_a_refused_introduction_is_raised_and_leaves_nothing_open():
    async with toy_daemon() as toy:
        with pytest.raises(BadArgumentError, match="this name is refused"):
            await connect(toy.root, name="unwanted")
        with pytest.raises(ProtocolError, match=r"client\.name"):
            await connect(toy.root, name="")


async def test_calls_at_the_same_time_do_not_mix():
    async with toy_daemon() as toy, await connect(toy.root) as client:
        answers = await asyncio.gather(*(client.call("echo", {"n": number}) for number in range(500)))
        assert [answer["n"] for answer in answers] == list(range(500))


async def test_progress_goes_to_the_call_that_asked():
    async with toy_daemon() as toy, await connect(toy.root) as client:
        one: list[Any] = []
        other: list[Any] = []
        await asyncio.gather(
            client.call("progress", {"count": 3}, progress=one.append),
            client.call("progress", {"count": 2}, progress=other.append),
            client.call("progress", {"count": 5}),
        )
        assert one == [{"kind": "output", "stream": "stdout", "text": "p"}] * 3
        assert len(other) == 2


async def test_a_callback_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture):
    def broken(value: dict[str, Any]) -> None:
        raise ValueError(value)

    async with toy_daemon() as toy, await connect(toy.root) as client:
        assert await client.call("progress", {"count": 1}, progress=broken) == 1
        assert "callback for $/progress failed" in caplog.text


async def test_notifications_reach_their_callback():
    told: asyncio.Future[tuple[str, Any]] = asyncio.get_running_loop().create_future()
    async with (
        toy_daemon() as toy,
        await connect(toy.root, role="terminal", on_notification=lambda *what: told.set_result(what)),
        asyncio.timeout(WAIT_S),
    ):
        toy.agents.attached[0].channel.notify("devtools/approvalRequested", {"id": "a1"})
        assert await told == ("devtools/approvalRequested", {"id": "a1"})


# -- ends --------------------------------------------------------------------------------------------------------


async def test_a_call_that_takes_too_long_is_cancelled_there_and_tells_what_landed():
    async with toy_daemon(QUICK) as toy, await connect(toy.root) as client:
        with pytest.raises(WaitTimeoutError, match=r"took longer than 0\.05 s: cancelled by the caller") as caught:
            await client.call("wait", timeout_s=0.05)
        assert caught.value.written == [{"path": "a.py", "kind": "modified"}]
        assert toy.agents.endings == ["wait"]
        with pytest.raises(WaitTimeoutError, match="look at the files"):
            await client.call("deaf", timeout_s=0.05)
        assert await client.call("echo") == {}


async def test_cancelling_the_caller_cancels_the_call():
    async with toy_daemon(QUICK) as toy, await connect(toy.root) as client:
        task = asyncio.create_task(client.call("wait"))
        await toy.until(lambda: toy.agents.started == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await toy.until(lambda: toy.agents.endings == ["wait"])
        assert await client.call("echo") == {}


async def test_a_call_that_is_stopped_waits_for_what_had_landed():
    async with toy_daemon(QUICK) as toy, await connect(toy.root) as client:
        switch = Cancellation()
        task = asyncio.create_task(client.call("wait", signal=switch))
        await toy.until(lambda: toy.agents.started == 1)
        switch.cancel()
        with pytest.raises(CallCancelledError, match="cancelled by the caller") as caught:
            await task
        assert caught.value.written == [{"path": "a.py", "kind": "modified"}]
        # One that has its answer already is not spoilt, and one that is never stopped ends as ever.
        assert await client.call("echo", {"a": 1}, signal=Cancellation()) == {"a": 1}
        with pytest.raises(WaitTimeoutError, match="took longer"):
            await client.call("wait", timeout_s=0.05, signal=Cancellation())


async def test_a_daemon_that_ends_gracefully_answers_first():
    async with toy_daemon(QUICK) as toy, await connect(toy.root) as client:
        task = asyncio.create_task(client.call("wait"))
        await toy.until(lambda: toy.agents.started == 1)
        await client.stop()
        with pytest.raises(CallCancelledError, match="the daemon is stopping: a client asked for it"):
            await task
        assert toy.task is not None
        await toy.task
        with pytest.raises(ConnectionLostError, match="the daemon closed it"):
            await client.call("echo")


async def test_a_lost_connection_fails_every_call_at_once(start_toys: Path):
    async with await connect(start_toys) as client:
        waiting = [asyncio.create_task(client.call("deaf")) for _ in range(10)]
        # They send before this one does: when it is answered, the daemon has read them all.
        await asyncio.sleep(0)
        await client.call("echo")
        pid = discovery.lock_holder(discovery.lock_path(discovery.socket_path(start_toys)))
        assert pid
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(WAIT_S):
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ConnectionLostError}
        assert "look at the files before trying again" in str(outcomes[0])
        with pytest.raises(ConnectionLostError):
            await client.status()
        assert "the daemon closed it" in (await client.lost()).message


@pytest.mark.parametrize(
    "garbage",
    [b"HTTP/1.1 200 OK\r\n\r\n", framed(b"{"), framed(b'{"jsonrpc":"2.0","id":1,"result":\xff}')],
    ids=["no frame", "no JSON", "no UTF-8"],
)
async def test_a_server_that_speaks_something_else_is_a_lost_connection(root: Path, garbage: bytes):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(garbage)
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, root / "s")
    async with server, asyncio.timeout(WAIT_S):
        with pytest.raises(ConnectionLostError):
            await connect(socket_path=root / "s")


async def test_a_closed_client_says_so():
    async with toy_daemon() as toy:
        client = await connect(toy.root)
        await client.close()
        with pytest.raises(ConnectionLostError, match="the client was closed"):
            await client.status()


# -- finding and starting ----------------------------------------------------------------------------------------


async def test_none_runs_and_none_is_wanted(root: Path):
    with pytest.raises(discovery.NotRunningError, match="devtools-lsp serve --root") as caught:
        await connect(root, start=False)
    assert (caught.value.code, caught.value.reason) == ("E_DEV_STEP_FAILED", "notFound")


async def test_a_daemon_is_started_when_none_runs_and_shared_afterwards(start_toys: Path):
    async with await connect(start_toys) as first, await connect(start_toys, start=False) as second:
        assert await first.call("echo") == await second.call("echo") == {}
    assert await stop_daemon(start_toys) == "stopped"
    assert await stop_daemon(start_toys) == "notRunning"


async def test_ten_at_once_start_one(start_toys: Path):
    clients = await asyncio.gather(*(connect(start_toys) for _ in range(10)))
    holder = discovery.lock_holder(discovery.lock_path(discovery.socket_path(start_toys)))
    for client in clients:
        assert (await client.request("devtools/call", {"name": "echo"})) == {}
        await client.close()
    assert discovery.lock_holder(discovery.lock_path(discovery.socket_path(start_toys))) == holder
    assert await stop_daemon(start_toys) == "stopped"


async def test_a_daemon_that_does_not_come_up_is_quoted(root: Path, monkeypatch: pytest.MonkeyPatch):
    failing = [sys.executable, "-c", "import sys; print('devtools.toml, line 3: no such key'); sys.exit(2)"]
    monkeypatch.setattr(starting, "daemon_command", lambda _of: failing)
    with pytest.raises(discovery.StartFailedError, match=r"code 2 and said:\ndevtools\.toml, line 3: no such key"):
        await connect(root)
    assert (discovery.state_directory(root) / "daemon.log").stat().st_mode & 0o777 == 0o600


async def test_a_daemon_that_ends_with_an_error_of_ours_is_that_error(root: Path, monkeypatch: pytest.MonkeyPatch):
    """One object, not an object quoted in another one's message."""
    told = {"code": "E_INVALID_DEV_PIPELINE_CONFIG", "message": "devtools.toml: bad", "retry": "no", "path": "x"}
    failing = [sys.executable, "-c", f"import sys; print('a warning'); print({json.dumps(told)!r}); sys.exit(2)"]
    monkeypatch.setattr(starting, "daemon_command", lambda _of: failing)
    with pytest.raises(DevToolsError) as caught:
        await connect(root)
    assert caught.value.to_wire() == {**told, "message": "the daemon did not start: devtools.toml: bad"}


async def test_a_daemon_that_is_never_ready_is_a_bounded_wait(root: Path, monkeypatch: pytest.MonkeyPatch):
    hanging = [sys.executable, "-c", "import time; print('warming up', flush=True); time.sleep(3600)"]
    monkeypatch.setattr(starting, "daemon_command", lambda _of: hanging)
    with pytest.raises(WaitTimeoutError, match=r"(?s)not ready within 0\.5 s.*warming up") as caught:
        await connect(root, timeout_s=0.5)
    (hung,) = [daemon for daemon in discovery.started() if daemon.exit_code is None]
    assert f"pid {hung.pid}" in caught.value.message
    end_started_daemons()


async def test_a_socket_that_serves_another_root_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch):
    other = root.parent / "other"
    other.mkdir()
    monkeypatch.setenv("DEVTOOLS_LSP_SOCKET", str(root.parent / "shared.sock"))
    async with toy_daemon(root=root):
        with pytest.raises(ConflictError, match=f"serves {root}, not {other}"):
            await connect(other)


async def test_a_server_of_another_user_gets_nothing(monkeypatch: pytest.MonkeyPatch):
    async with toy_daemon() as toy:
        monkeypatch.setattr(peers, "peer_credentials", lambda _connection: (1, 54321))
        with pytest.raises(PolicyError, match="nothing was sent"):
            await connect(toy.root)
        monkeypatch.undo()


def test_the_daemon_is_run_without_the_working_directory_on_its_path(tmp_path: Path):
    command = discovery.daemon_command(tmp_path)
    assert command[:4] == [sys.executable, "-P", "-m", "devtools_lsp"]
    assert command[4:] == ["serve", "--root", str(tmp_path)]


# -- stopping ----------------------------------------------------------------------------------------------------


async def test_stop_needs_no_introduction_and_works_for_any_version():
    async with toy_daemon(QUICK) as toy:
        client = await toy.connect()
        await client.request(1, "devtools/stop", {"since": "another version"})
        assert (await client.receive())["result"]["stopping"] is True
        assert toy.task is not None
        assert await toy.task == "a client asked for it"


async def test_a_daemon_that_takes_over_at_once_is_not_mistaken_for_the_one_that_was_stopped(root: Path):
    lock = discovery.lock_path(discovery.socket_path(root))
    async with toy_daemon(QUICK, root=root) as toy:
        successor = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROGRAM),
            str(root),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent)},
        )
        # It finds the lock held and nobody who accepts, and so waits for its turn.
        toy.socket_path.unlink()
        stopping = asyncio.create_task(released(lock, os.getpid(), WAIT_S))
        assert toy.host is not None
        toy.host.stop("now")
        assert successor.stdout is not None
        async with asyncio.timeout(WAIT_S):
            assert (await successor.stdout.readline()).startswith(b"READY")
            assert await stopping
        assert discovery.lock_holder(lock) == successor.pid
        assert await stop_daemon(root) == "stopped"
        await successor.wait()


@pytest.mark.parametrize(("stubborn", "outcome"), [(False, "terminated"), (True, "killed")])
async def test_a_daemon_that_does_not_answer_is_ended_by_force(root: Path, stubborn: bool, outcome: str):
    """A process that holds the lock and the socket as a daemon does, and is as good as dead."""
    hung = (
        "import signal, socket, sys, time; from pathlib import Path; from devtools_lsp import discovery\n"
        "path = Path(sys.argv[1]); lock = discovery.try_lock(discovery.lock_path(path))\n"
        "server = socket.socket(socket.AF_UNIX); server.bind(str(path)); server.listen()\n"
        f"{'signal.signal(signal.SIGTERM, signal.SIG_IGN)' if stubborn else ''}\n"
        "print('up', flush=True); time.sleep(3600)\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", hung, str(discovery.socket_path(root)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"up\n"
    async with asyncio.timeout(5 * WAIT_S):
        assert await stop_daemon(root, timeout_s=0.3) == outcome
        assert await process.wait() == (-signal.SIGKILL if stubborn else -signal.SIGTERM)


def test_the_defaults_outlast_a_persons_decision_and_the_daemons_own_bounds():
    assert CALL_TIMEOUT_S > 2 * 300
    assert 2 * CallBounds().cancel_grace_s + 1 < CANCEL_S
