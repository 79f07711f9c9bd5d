"""The bridge's streams: lines in any pieces, readers of any patience, and progress that stays bounded."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.mcp_bridge import progress, stdio
from devtools_lsp.mcp_bridge.dispatcher import Asked, StdioDispatcher
from devtools_lsp.mcp_bridge.progress import ProgressRelay
from devtools_lsp.mcp_bridge.stdio import LineReader, LineWriter


def ping(number: int, text: str = "") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping", "params": {"text": text}}).encode() + b"\n"


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


async def lines_of(descriptor: int) -> list[bytes | None]:
    told: list[bytes | None] = []
    reader = LineReader(descriptor, told.append)
    reader.resume()
    await asyncio.wait_for(reader.ended, 20)
    return told


def numbers(lines: list[bytes | None]) -> list[Any]:
    return [json.loads(line)["id"] for line in lines if line is not None]


async def test_lines_come_in_order_however_they_are_cut(pipes: tuple[int, int, int, int]):
    write, read, _, _ = pipes
    data = b"".join(ping(number, "ä\u2028\r" * number) for number in range(50)) + b"\n  \n" + ping(50).rstrip(b"\n")

    def feed() -> None:
        for start in range(0, len(data), 7):
            os.write(write, data[start : start + 7])
        os.close(write)

    thread = threading.Thread(target=feed)
    thread.start()
    assert numbers(await lines_of(read)) == list(range(51)), "the last line has no end"
    thread.join()


async def test_a_line_that_is_too_long_is_not_kept(pipes: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stdio, "MAX_LINE_BYTES", 1000)
    write, read, _, _ = pipes
    os.write(write, b'"' + b"x" * 5000 + b'"\n' + ping(2))
    os.close(write)
    assert await lines_of(read) == [None, ping(2).rstrip(b"\n")]


async def test_a_file_can_be_stdin(tmp_path: Path):
    script = tmp_path / "requests"
    script.write_bytes(ping(1) + ping(2))
    with script.open("rb") as file:
        assert numbers(await lines_of(file.fileno())) == [1, 2]


async def test_nothing_is_told_while_it_is_not_welcome(pipes: tuple[int, int, int, int]):
    write, read, _, _ = pipes
    told: list[bytes | None] = []

    def hear(line: bytes | None) -> None:
        told.append(line)
        if len(told) == 1:
            reader.pause()

    reader = LineReader(read, hear)
    os.write(write, ping(1) + ping(2))
    os.close(write)
    reader.resume()
    done, _ = await asyncio.wait([reader.ended], timeout=0.05)
    assert (numbers(told), done) == ([1], set()), "the end waits with what came before it"
    reader.resume()
    await asyncio.wait_for(reader.ended, 20)
    assert numbers(told) == [1, 2]


async def test_a_slow_reader_holds_up_the_sender_alone_and_gets_whole_lines(pipes: tuple[int, int, int, int]):
    _, _, out, read = pipes
    writer = LineWriter(out)
    text = b"x" * 100_000

    async def send_all() -> None:
        for number in range(10):
            writer.write(b"%d %s" % (number, text))
            await writer.room()

    sending = asyncio.create_task(send_all())
    done, _ = await asyncio.wait([sending], timeout=0.1)
    assert not done, "nobody reads, so somewhere it waits; and this loop went on"
    collected = await collect(read, 10)
    await asyncio.wait_for(sending, 10)
    assert collected == [b"%d %s" % (number, text) for number in range(10)], "no line is torn, none is lost"


async def collect(descriptor: int, count: int) -> list[bytes]:
    data = b""
    async with asyncio.timeout(20):
        while data.count(b"\n") < count:
            data += await asyncio.to_thread(os.read, descriptor, 1 << 20)
    return data.splitlines()


async def test_a_client_that_is_gone_holds_nobody_up(pipes: tuple[int, int, int, int]):
    _, _, out, read = pipes
    writer = LineWriter(out)
    os.close(read)
    writer.write(b"x" * 1_000_000)
    assert writer.broken
    async with asyncio.timeout(5):
        await writer.room()
        await writer.close()


async def test_closing_gives_up_on_who_never_reads(pipes: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stdio, "LAST_WORDS_S", 0.05)
    writer = LineWriter(pipes[2])
    writer.write(b"x" * 200_000)
    async with asyncio.timeout(5):
        await writer.close()


# -- messages ----------------------------------------------------------------------------------------------------


class Client:
    """A dispatcher behind pipes, with a handler that does what the method says."""

    def __init__(self, pipes: tuple[int, int, int, int]) -> None:
        self._write, incoming, outgoing, self._read = pipes
        self.dispatcher = StdioDispatcher(incoming, outgoing)
        self.heard: list[tuple[str, Mapping[str, Any] | None]] = []
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()
        self.running = asyncio.create_task(self.dispatcher.run(self.handle, self.hear))

    async def handle(self, asked: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        self.heard.append((method, params))
        if method in ("wait", "initialize"):
            self.waiting.set()
            await self.go_on.wait()
        if method == "stubborn":
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return {"stubborn": True}
        if method == "progress":
            await asked.progress(1.0, message="half")
        if method == "fails":
            raise RuntimeError("a secret")
        return {"method": method, "bad": object()} if method == "unspeakable" else {"method": method}

    async def hear(self, asked: Any, method: str, params: Mapping[str, Any] | None) -> None:
        assert isinstance(asked, Asked)
        self.heard.append((method, params))

    def send(self, *lines: bytes | dict[str, Any]) -> None:
        for line in lines:
            os.write(self._write, (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")

    def ask(self, number: int | str, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    async def told(self, count: int) -> list[Any]:
        return [json.loads(line) for line in await collect(self._read, count)]

    async def end(self) -> None:
        os.close(self._write)
        await asyncio.wait_for(self.running, 20)


@pytest.fixture
async def client(pipes: tuple[int, int, int, int]) -> Client:
    return Client(pipes)


async def test_what_is_no_message_is_answered_and_passed_over(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stdio, "MAX_LINE_BYTES", 1000)
    client.send(b"{", b'{"id": 1}', b"\xff\xfe", b'"' + b"x" * 5000 + b'"', b"[]", b'{"jsonrpc": "2.0", "method": 1}')
    client.send(b'{"jsonrpc": "2.0", "id": 7, "method": "x", "params": [1]}')
    client.send(b'{"jsonrpc": "2.0", "id": 3, "result": 1}')
    client.ask(2, "ping")
    answers = await client.told(8)
    codes = [(answer["id"], answer["error"]["code"]) for answer in answers[:-1]]
    assert codes == [
        (None, -32700),
        (1, -32600),
        (None, -32700),
        (None, -32700),
        (None, -32600),
        (None, -32600),
        (7, -32600),
    ]
    assert answers[-1] == {"jsonrpc": "2.0", "id": 2, "result": {"method": "ping"}}
    await client.end()


async def test_answers_come_as_they_are_ready(client: Client):
    client.ask("slow", "wait")
    client.ask(1, "ping")
    assert [answer["id"] for answer in await client.told(1)] == [1]
    client.go_on.set()
    assert [answer["id"] for answer in await client.told(1)] == ["slow"]
    await client.end()


async def test_what_follows_an_introduction_waits_for_its_end(client: Client):
    client.ask(0, "initialize")
    client.ask(1, "ping")
    await asyncio.wait_for(client.waiting.wait(), 20)
    assert [method for method, _ in client.heard] == ["initialize"]
    client.go_on.set()
    assert [answer["id"] for answer in await client.told(2)] == [0, 1]
    await client.end()


@pytest.mark.parametrize("method", ["wait", "stubborn"])
async def test_what_the_client_cancels_is_never_answered(client: Client, method: str):
    client.ask(5, method)
    await asyncio.wait_for(client.waiting.wait(), 20)
    # Clients of some languages send the number as text.
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "5"}})
    client.ask(6, "ping")
    assert [answer["id"] for answer in await client.told(1)] == [6]
    await client.end()
    assert ("notifications/cancelled", {"requestId": "5"}) in client.heard


async def test_what_is_still_handled_at_the_end_is_answered_as_cancelled(client: Client):
    client.ask(5, "wait")
    await asyncio.wait_for(client.waiting.wait(), 20)
    await client.end()
    (answer,) = await client.told(1)
    assert (answer["id"], answer["error"]["code"]) == (5, -32000)


async def test_a_fault_inside_is_told_without_what_it_says(client: Client, caplog: pytest.LogCaptureFixture):
    client.ask(1, "fails")
    client.ask(2, "unspeakable")
    answers = await client.told(2)
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(1, -32603), (2, -32603)]
    assert "secret" not in json.dumps(answers)
    assert "a secret" in caplog.text
    await client.end()


async def test_progress_comes_before_the_answer_and_only_when_it_is_wanted(client: Client):
    client.ask(1, "progress")
    client.ask(2, "progress", _meta={"progressToken": "p"})
    told = await client.told(3)
    assert told[1]["params"] == {"progressToken": "p", "progress": 1.0, "message": "half"}
    assert [message.get("id") for message in told] == [1, None, 2]
    await client.end()
    await client.dispatcher.notify("notifications/tools/list_changed", None)


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
