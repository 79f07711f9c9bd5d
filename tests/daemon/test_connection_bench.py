"""What the socket itself costs: a round trip through the daemon beside a bare one, in the same run."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools_lsp import discovery
from tests.toy_daemon import framed, private_places, processes

PROGRAM = Path(__file__).parent.parent / "toy_daemon.py"
BARE_SERVER = """
import asyncio, sys
async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
async def main():
    server = await asyncio.start_unix_server(echo, sys.argv[1])
    print("READY", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def exchange(connection: socket.socket, frame: bytes) -> bytes:
    """One frame there and one back."""
    connection.sendall(frame)
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    header, _, body = data.partition(b"\r\n\r\n")
    missing = int(header.rsplit(b":", 1)[1]) - len(body)
    parts = [body]
    while missing > 0:
        parts.append(connection.recv(1 << 20))
        missing -= len(parts[-1])
    return b"".join(parts)


def p50_ms(work: Callable[[], object], times: int) -> float:
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3


@pytest.mark.bench
def test_bench_round_trip(capsys: pytest.CaptureFixture[str]):
    with private_places() as root, processes() as started:
        environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent)}
        bare_path = root / "bare"
        for command in (
            [sys.executable, str(PROGRAM), str(root)],
            [sys.executable, "-c", BARE_SERVER, str(bare_path)],
        ):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
            started.append(process)
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"READY")
        lines = []
        with discovery.connect(discovery.socket_path(root)) as daemon, discovery.connect(bare_path) as bare:
            for size, times in ((1_000, 3000), (99_000, 500), (4_900_000, 20)):
                params = {"name": "echo", "arguments": {"text": "x" * size}}
                call = {"jsonrpc": "2.0", "id": 1, "method": "devtools/call", "params": params}
                frame = framed(json.dumps(call).encode())
                assert b'"result"' in exchange(daemon, frame)
                through = p50_ms(lambda frame=frame: exchange(daemon, frame), times)
                plain = p50_ms(lambda frame=frame: exchange(bare, frame), times)
                lines.append(f"{size:>9,} bytes: daemon {through:8.3f} ms, bare echo {plain:8.3f} ms")
        with capsys.disabled():
            print("\n" + "\n".join(lines))
