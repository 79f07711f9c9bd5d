"""The bridge's streams: lines in any pieces, readers of any patience, and progress that stays bounded."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

from devtools_lsp.mcp_bridge import progress, stdio
from devtools_lsp.mcp_bridge.progress import ProgressRelay
from devtools_lsp.mcp_bridge.stdio import LineReader, LineWriter


def ping(number: int, text: str = "") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping", "params": {"text": text}}).encode() + b"\n"


def answer(number: int, text: str = "") -> SessionMessage:
    return SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=number, result={"text": text}))


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """Ends of two pipes: what the client writes to, what the bridge reads and writes, what the client reads."""
    stdin_read, stdin_write = os.pipe()
    stdout_read, stdout_write = os.pipe()
    yield stdin_write, stdin_read, stdout_write, stdout_read
    for descriptor in (stdin_read, stdin_write, stdout_read, stdout_write):
        try:
            os.close(descriptor)
        except OSError:
            continue


async def numbers(reader: LineReader) -> list[Any]:
    return [item.message.id async for item in reader]


async def test_messages_come_in_order_however_they_are_cut(pipes: tuple[int, int, int, int]):
    write, read, out, _ = pipes
    data = b"".join(ping(number, "ä\u2028\r" * number) for number in range(50)) + b"\n  \n" + ping(50).rstrip(b"\n")

    def feed() -> None:
        for start in range(0, len(data), 7):
            os.write(write, data[start : start + 7])
        os.close(write)

    thread = threading.Thread(target=feed)
    thread.start()
    assert await numbers(LineReader(read, LineWriter(out))) == list(range(51)), "the last line has no end"
    thread.join()


async def test_what_is_no_message_is_answered_and_passed_over(
    pipes: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
):
    write, read, out, told = pipes
    monkeypatch.setattr(stdio, "MAX_LINE_BYTES", 1000)
    os.write(write, b"{\n" + b'{"id": 1}\n' + b"\xff\xfe\n" + b'"' + b"x" * 5000 + b'"\n' + ping(2))
    os.close(write)
    assert await numbers(LineReader(read, LineWriter(out))) == [2]
    codes = [json.loads(line)["error"]["code"] for line in os.read(told, 65536).splitlines()]
    assert codes == [-32700, -32600, -32700, -32700]


async def test_a_file_can_be_stdin(tmp_path: Path, pipes: tuple[int, int, int, int]):
    script = tmp_path / "requests"
    script.write_bytes(ping(1) + ping(2))
    with script.open("rb") as file:
        assert await numbers(LineReader(file.fileno(), LineWriter(pipes[2]))) == [1, 2]


async def test_a_slow_reader_holds_up_the_sender_alone_and_gets_whole_lines(pipes: tuple[int, int, int, int]):
    _, _, out, read = pipes
    writer = LineWriter(out)
    text = "x" * 100_000
    sending = asyncio.create_task(send_all(writer, text))
    done, _ = await asyncio.wait([sending], timeout=0.1)
    assert not done, "nobody reads, so somewhere it waits; and this loop went on"
    cancelled = asyncio.create_task(writer.send(answer(99, text)))
    await asyncio.sleep(0)
    cancelled.cancel()
    collected = await collect(read, 11)
    await asyncio.wait_for(sending, 10)
    assert sorted(json.loads(line)["id"] for line in collected) == [*range(10), 99], "no line is torn, none is lost"


async def send_all(writer: LineWriter, text: str) -> None:
    for number in range(10):
        await writer.send(answer(number, text))


async def collect(descriptor: int, count: int) -> list[bytes]:
    data = b""
    async with asyncio.timeout(20):
        while data.count(b"\n") < count:
            data += await asyncio.to_thread(os.read, descriptor, 1 << 20)
    return data.splitlines()


async def test_a_client_that_is_gone_is_told_to_the_sender(pipes: tuple[int, int, int, int]):
    _, _, out, read = pipes
    writer = LineWriter(out)
    os.close(read)
    with pytest.raises(anyio.BrokenResourceError):
        await writer.send(answer(1))
    with pytest.raises(anyio.BrokenResourceError):
        await writer.send(answer(2))
    await writer.aclose()


async def test_closing_gives_up_on_who_never_reads(pipes: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stdio, "LAST_WORDS_S", 0.05)
    writer = LineWriter(pipes[2])
    await writer.send(answer(1, "x" * 200_000))
    async with asyncio.timeout(5):
        await writer.aclose()


# -- progress ----------------------------------------------------------------------------------------------------


def line(text: str) -> dict[str, Any]:
    return {"kind": "output", "stream": "stdout", "text": text}


@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(st.text(st.characters(exclude_characters="\n"), max_size=20)), pauses=st.randoms())
def test_progress_is_in_order_and_complete(pieces: list[str], pauses: Any):
    async def run() -> list[tuple[float, str]]:
        sent: list[tuple[float, str]] = []

        async def send(number: float, text: str) -> None:
            await asyncio.sleep(0)
            sent.append((number, text))

        async with ProgressRelay(send) as relay:
            for piece in pieces:
                relay.put(line(piece))
                if pauses.random() < 0.3:
                    await asyncio.sleep(0)
        return sent

    sent = asyncio.run(run())
    assert [number for number, _ in sent] == [float(number) for number in range(1, len(sent) + 1)]
    assert "\n".join(text for _, text in sent) == "\n".join(pieces)


async def test_what_nobody_reads_is_counted_not_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "MAX_WAITING", 100)
    reading = asyncio.Event()
    sent: list[str] = []

    async def send(_number: float, text: str) -> None:
        await reading.wait()
        sent.append(text)

    async with ProgressRelay(send) as relay:
        relay.put(line("first"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for _ in range(1000):
            relay.put(line("x" * 50))
        reading.set()
    assert sent == ["first", f"{'x' * 50}\n{'x' * 50}\n[49,900 characters of output are not shown here]"]


async def test_a_report_names_the_command_that_answers_it():
    sent: list[str] = []

    async def send(_number: float, text: str) -> None:
        sent.append(text)

    async with ProgressRelay(send) as relay:
        relay.put({"kind": "report", "message": "edit waits for a person's approval", "approval": "ap-1"})
    assert sent == ["edit waits for a person's approval (devtools-lsp approve ap-1)"]


async def test_a_cancelled_call_sends_nothing_more():
    sending = asyncio.Event()

    async def send(_number: float, _text: str) -> None:
        sending.set()
        await asyncio.Event().wait()

    async def call() -> None:
        async with ProgressRelay(send) as relay:
            relay.put(line("x"))
            await asyncio.Event().wait()

    task = asyncio.create_task(call())
    await sending.wait()
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()
    assert not [other for other in asyncio.all_tasks() if other.get_name() == "mcp progress"]
