"""`devtools-lsp stdio` as a process: bytes through, a daemon started when none runs, an end when either side ends."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devtools_lsp import discovery
from devtools_lsp.__main__ import main
from tests.toy_daemon import WAIT_S, framed, private_places, processes

PROGRAM = Path(__file__).parent / "toy_daemon.py"
PROXY = [sys.executable, "-m", "devtools_lsp", "stdio"]
STARTING_PROXY = (
    "import sys; from pathlib import Path; from devtools_lsp import stdio_proxy; root = sys.argv[1]; "
    f"sys.exit(stdio_proxy.run(Path(root), command=[sys.executable, {str(PROGRAM)!r}, root]))"
)


@pytest.fixture
def root() -> Iterator[Path]:
    with private_places() as made:
        yield made


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes with pipes at all three ends."""
    with processes() as started:

        def start(command: list[str], cwd: Path | None = None) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent)},
                cwd=cwd,
            )
            started.append(process)
            return process

        yield start


@pytest.fixture
def daemon(root: Path, start: Start) -> subprocess.Popen[bytes]:
    """A toy daemon of its own process that runs already."""
    process = start([sys.executable, str(PROGRAM), str(root)])
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"READY")
    return process


def message(request_id: object, method: str, **params: object) -> bytes:
    return framed(json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode())


def receive(process: subprocess.Popen[bytes]) -> dict[str, object]:
    assert process.stdout is not None
    header = process.stdout.readline()
    assert process.stdout.readline() == b"\r\n"
    return json.loads(process.stdout.read(int(header.split(b":")[1])))


def send(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def test_an_editor_talks_to_the_daemon_through_it(root: Path, start: Start, daemon: subprocess.Popen[bytes]):
    proxy = start([*PROXY, "--root", str(root)])
    send(proxy, message(1, "initialize", capabilities={}))
    assert receive(proxy) == {"jsonrpc": "2.0", "id": 1, "result": "initialize"}
    # Several megabytes each way, more than any pipe holds.
    send(proxy, message(2, "devtools/call", name="echo", arguments={"text": "é" * 1_000_000}))
    answer = receive(proxy)
    assert answer["result"] == {"text": "é" * 1_000_000}
    send(proxy, framed(b'{"jsonrpc":"2.0","method":"exit"}'))
    said = proxy.communicate(timeout=WAIT_S)
    assert (proxy.returncode, *said) == (0, b"", b"")


def test_the_root_is_found_from_the_working_directory(root: Path, start: Start, daemon: subprocess.Popen[bytes]):
    (root / "src").mkdir()
    proxy = start(PROXY, cwd=root / "src")
    send(proxy, message(1, "initialize"))
    assert receive(proxy)["id"] == 1
    proxy.communicate(timeout=WAIT_S)
    assert proxy.returncode == 0


def test_it_ends_when_the_editor_closes_its_end_and_passes_the_last_answers(
    root: Path, start: Start, daemon: subprocess.Popen[bytes]
):
    proxy = start([*PROXY, f"--root={root}"])
    out, err = proxy.communicate(message(1, "initialize") + message(2, "textDocument/hover"), timeout=WAIT_S)
    assert out.count(b'"result"') == 2
    assert (proxy.returncode, err) == (0, b"")


def test_it_ends_when_the_daemon_does(root: Path, start: Start, daemon: subprocess.Popen[bytes]):
    proxy = start([*PROXY, "--root", str(root)])
    send(proxy, message(1, "initialize"))
    receive(proxy)
    daemon.send_signal(signal.SIGTERM)
    assert proxy.wait(WAIT_S) == 0
    proxy.communicate()


def test_it_ends_when_nobody_reads_it_any_more(root: Path, start: Start, daemon: subprocess.Popen[bytes]):
    proxy = start([*PROXY, "--root", str(root)])
    assert proxy.stdout is not None
    proxy.stdout.close()
    send(proxy, message(1, "initialize"))
    assert proxy.wait(WAIT_S) == 0
    assert proxy.stdin is not None
    assert proxy.stderr is not None
    proxy.stdin.close()
    assert proxy.stderr.read() == b""
    proxy.stderr.close()


def test_it_starts_the_daemon_when_none_runs(root: Path, start: Start):
    proxy = start([sys.executable, "-c", STARTING_PROXY, str(root)])
    send(proxy, message(1, "initialize"))
    assert receive(proxy)["id"] == 1
    proxy.communicate(timeout=WAIT_S)
    # The daemon outlives the proxy that started it.
    with discovery.connect(discovery.socket_path(root)) as connection:
        connection.sendall(message(1, "devtools/stop"))
        assert b"stopping" in connection.recv(4096)
        while connection.recv(4096):
            pass


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--root", "/"], "too wide"),
        (["--root", "/no/such/place"], "is not a directory"),
        (["--root"], "usage: devtools-lsp stdio"),
        (["--port", "80"], "cannot use '--port'"),
    ],
)
def test_what_is_wrong_is_said_on_stderr(arguments: list[str], says: str):
    done = subprocess.run([*PROXY, *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("devtools-lsp: ")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_daemon_that_does_not_come_up_is_quoted(root: Path):
    failing = [sys.executable, "-c", "raise SystemExit('engines are on strike')"]
    program = (
        "import sys; from devtools_lsp import stdio_proxy; from devtools_lsp.discovery import starting; "
        f"starting.daemon_command = lambda _root: {failing!r}; sys.exit(stdio_proxy.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "--root", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "devtools-lsp: the daemon ended with code 1 and said:\nengines are on strike\n"


def test_help_is_not_a_failure():
    done = subprocess.run([*PROXY, "--help"], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: devtools-lsp stdio [--root DIR]")


@pytest.mark.parametrize("arguments", [["stdio"], ["serve"], ["call", "check"]])
def test_windows_is_refused_with_the_way_out(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "argv", ["devtools-lsp", *arguments])
    with pytest.raises(SystemExit, match="on Windows, run it inside WSL"):
        main()
    assert capsys.readouterr().out == ""


@pytest.mark.bench
def test_bench_first_byte(
    root: Path, start: Start, daemon: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
):
    """The first answered byte through the proxy with the daemon up, beside a bare interpreter's start."""

    def once() -> float:
        began = time.perf_counter()
        proxy = start([*PROXY, "--root", str(root)])
        send(proxy, message(1, "initialize"))
        assert proxy.stdout is not None
        proxy.stdout.read(1)
        took = time.perf_counter() - began
        proxy.communicate(timeout=WAIT_S)
        return took

    def bare() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        return time.perf_counter() - began

    first_byte = statistics.median(once() for _ in range(20))
    interpreter = statistics.median(bare() for _ in range(20))
    with capsys.disabled():
        print(f"\nproxy first byte p50 {first_byte * 1e3:.1f} ms; a bare interpreter {interpreter * 1e3:.1f} ms")
    assert first_byte < 0.1
