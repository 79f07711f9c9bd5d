"""Between an MCP client and the SDK: lines in any pieces, messages with one answer each, bounded progress."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.errors import WorkspaceBoundsError
from devtools_lsp.mcp_bridge import dispatcher, progress, upstream
from devtools_lsp.mcp_bridge.dispatcher import Asked, MessageDispatcher
from devtools_lsp.mcp_bridge.lines import Lines, LineWriter
from devtools_lsp.mcp_bridge.progress import ProgressRelay
from devtools_lsp.mcp_bridge.words import agent
from devtools_lsp.wire.framing import FrameTooLargeError


@given(
    lines=st.lists(st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"")), max_size=10),
    cuts=st.lists(st.integers(0, 300), max_size=10),
    closed=st.booleans(),
)
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], cuts: list[int], closed: bool):
    data = b"\n".join(lines) + (b"\n" if closed else b"")
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader = Lines(1000)
    told: list[bytes | None] = []
    for start, end in itertools.pairwise(places):
        told += reader.feed(data[start:end])
    told += reader.feed(b"")
    assert told == [line for line in data.split(b"\n") if line and not line.isspace()]


def test_a_line_that_is_too_long_is_told_without_being_kept():
    reader = Lines(10)
    assert list(reader.feed(b"x" * 11)) == []
    assert list(reader.feed(b"x" * 11)) == []
    assert list(reader.feed(b"x\nshort\n")) == [None, b"short"]
    assert list(reader.feed(b"y" * 11)) == []
    assert list(reader.feed(b"")) == [None]


def test_what_nobody_reads_yet_waits_in_its_order():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    lines = [b"first", b"x" * 200_000, b"second", b"y" * 100, b""]
    writer = LineWriter(writing)
    for line in lines:
        writer.write(line)
    assert writer.waiting
    read = b""
    while writer.waiting:
        read += os.read(reading, 1 << 20)
        writer.flush()
    read += os.read(reading, 1 << 20)
    assert read == b"".join(line + b"\n" for line in lines)
    writer.write(b"at once")
    assert (bytes(writer.waiting), os.read(reading, 100)) == (b"", b"at once\n")
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        writer.write(b"to nobody")
    os.close(writing)


# -- messages ----------------------------------------------------------------------------------------------------


class Client:
    """A dispatcher, with a handler that does what the method says."""

    def __init__(self) -> None:
        self._sent: asyncio.Queue[bytes] = asyncio.Queue()
        self.dispatcher = MessageDispatcher(self._send, self._room)
        self.dispatcher.serve(self.handle, self.hear)
        self.heard: list[tuple[str, Mapping[str, Any] | None]] = []
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()

    def _send(self, body: bytes) -> None:
        if len(body) > 1000:
            raise FrameTooLargeError(len(body), 1000)
        self._sent.put_nowait(body)

    async def _room(self) -> None:
        await asyncio.sleep(0)

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
        return {"method": method, "more": {"unspeakable": object(), "huge": "x" * 2000}.get(method)}

    async def hear(self, asked: Any, method: str, params: Mapping[str, Any] | None) -> None:
        assert isinstance(asked, Asked)
        self.heard.append((method, params))

    async def send(self, *messages: bytes | dict[str, Any]) -> None:
        for message in messages:
            body = message if isinstance(message, bytes) else json.dumps(message).encode()
            if (awaited := self.dispatcher.receive(body)) is not None:
                await asyncio.wait_for(awaited, 20)

    async def ask(self, number: int | str, method: str, **params: Any) -> None:
        await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    async def told(self, count: int) -> list[Any]:
        return [json.loads(await asyncio.wait_for(self._sent.get(), 20)) for _ in range(count)]

    async def end(self) -> list[Any]:
        """Close; what else was said."""
        await asyncio.wait_for(self.dispatcher.close(), 20)
        await asyncio.sleep(0)
        return await self.told(self._sent.qsize())


async def test_what_is_no_message_is_answered_and_passed_over():
    client = Client()
    await client.send(b"{", b'{"id": 1}', b"\xff\xfe", b"[]", b'{"jsonrpc": "2.0", "method": 1}')
    await client.send(b'{"jsonrpc": "2.0", "id": 7, "method": "x", "params": [1]}')
    await client.send(b'{"jsonrpc": "2.0", "id": 3, "result": 1}')
    await client.ask(2, "ping")
    answers = await client.told(7)
    codes = [(answer["id"], answer["error"]["code"]) for answer in answers[:-1]]
    assert codes == [(None, -32700), (1, -32600), (None, -32700), (None, -32600), (None, -32600), (7, -32600)]
    assert answers[-1] == {"jsonrpc": "2.0", "id": 2, "result": {"method": "ping", "more": None}}
    assert await client.end() == []


async def test_params_that_are_no_text_are_answered_and_passed_over():
    client = Client()
    await client.send(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"text":"\xff"}}')
    await client.send(b'{"jsonrpc":"2.0","method":"notifications/x","params":{"text":"\xff"}}')
    await client.send(b'{"jsonrpc":"2.0","id":2,"method":"ping","params":{"number":1e999}}')
    answers = await client.told(3)
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(1, -32700), (None, -32700), (2, -32600)]
    await client.ask(3, "ping")
    assert [answer["id"] for answer in await client.told(1)] == [3]


async def test_a_number_and_its_text_are_two_requests_and_one_id_is_one():
    client = Client()
    await client.ask(5, "wait")
    await client.ask("5", "wait")
    await client.ask(5, "ping")
    (refused,) = await client.told(1)
    assert (refused["id"], refused["error"]["code"]) == (5, -32600)
    await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "5"}})
    client.go_on.set()
    assert [answer["id"] for answer in await client.told(1)] == [5]
    await client.ask("5", "ping")
    assert [answer["id"] for answer in await client.told(1)] == ["5"], "an id is free again once it was cancelled"
    assert await client.end() == []


async def test_open_requests_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatcher, "MAX_REQUESTS", 2)
    client = Client()
    for number in (1, 2, 3):
        await client.ask(number, "wait")
    (refused,) = await client.told(1)
    assert (refused["id"], refused["error"]["code"]) == (3, -32603)
    client.go_on.set()
    assert [answer["id"] for answer in await client.told(2)] == [1, 2]


async def test_one_client_does_not_speak_for_any_number_of_agents(monkeypatch: pytest.MonkeyPatch):
    class Connected:
        async def close(self) -> None:
            pass

    async def connect(**_given: Any) -> Any:
        return Connected()

    monkeypatch.setattr(upstream, "MAX_AGENTS", 2)
    served = upstream.Upstream(connect, "granular", None, lambda: None)
    first = await served.client(agent("one", ""))
    await served.client(agent("two", ""))
    with pytest.raises(WorkspaceBoundsError):
        await served.client(agent("three", ""))
    assert await served.client(agent("one", "")) is first
    await served.close()


async def test_answers_come_as_they_are_ready():
    client = Client()
    await client.ask("slow", "wait")
    await client.ask(1, "ping")
    assert [answer["id"] for answer in await client.told(1)] == [1]
    client.go_on.set()
    assert [answer["id"] for answer in await client.told(1)] == ["slow"]


async def test_what_follows_an_introduction_waits_for_its_end():
    client = Client()
    await client.ask(0, "initialize")
    following = asyncio.create_task(client.ask(1, "ping"))
    await asyncio.wait_for(client.waiting.wait(), 20)
    assert [method for method, _ in client.heard] == ["initialize"]
    client.go_on.set()
    await following
    assert [answer["id"] for answer in await client.told(2)] == [0, 1]


@pytest.mark.parametrize("method", ["wait", "stubborn"])
@pytest.mark.parametrize("begun", [True, False])
async def test_what_the_client_cancels_is_never_answered(method: str, begun: bool):
    client = Client()
    await client.ask(5, method)
    if begun:
        await asyncio.wait_for(client.waiting.wait(), 20)
    # Clients of some languages send the number as text.
    await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "5"}})
    await client.ask(6, "ping")
    assert [answer["id"] for answer in await client.told(1)] == [6]
    assert ("notifications/cancelled", {"requestId": "5"}) in client.heard
    assert await client.end() == []


@pytest.mark.parametrize("begun", [True, False])
async def test_what_is_still_handled_at_the_end_is_answered_as_cancelled(begun: bool):
    client = Client()
    await client.ask(5, "wait")
    if begun:
        await asyncio.wait_for(client.waiting.wait(), 20)
    (answer,) = await client.end()
    assert (answer["id"], answer["error"]["code"]) == (5, -32000)
    await client.dispatcher.notify("notifications/tools/list_changed", None)
    assert await client.end() == []


async def test_a_fault_inside_is_told_without_what_it_says(caplog: pytest.LogCaptureFixture):
    client = Client()
    for number, method in enumerate(["fails", "unspeakable", "huge"]):
        await client.ask(number, method)
    answers = await client.told(3)
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(n, -32603) for n in range(3)]
    assert "a secret" in caplog.text
    assert "secret" not in json.dumps(answers)
    assert "1000" in answers[2]["error"]["message"], "it says what would fit"


async def test_progress_comes_before_the_answer_and_only_when_it_is_wanted():
    client = Client()
    await client.ask(1, "progress")
    await client.ask(2, "progress", _meta={"progressToken": "p"})
    told = await client.told(3)
    (shown,) = [message for message in told if "method" in message]
    assert shown["params"] == {"progressToken": "p", "progress": 1.0, "message": "half"}
    assert told.index(shown) < [message.get("id") for message in told].index(2)


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


async def test_a_call_that_tells_nothing_makes_no_task_and_one_that_pauses_goes_on():
    sent: list[tuple[float, str]] = []

    async def send(number: float, text: str) -> None:
        sent.append((number, text))

    async with ProgressRelay(send) as relay:
        await asyncio.sleep(0)
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "mcp progress"]
        for text in ("one", "two"):
            relay.put(line(text))
            while not sent or sent[-1][1] != text:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert sent == [(1.0, "one"), (2.0, "two")]


async def test_a_fault_in_sending_is_the_calls():
    async def send(_number: float, _text: str) -> None:
        raise RuntimeError("a fault")

    async def call() -> None:
        async with ProgressRelay(send) as relay:
            relay.put(line("one"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            relay.put(line("two"))

    with pytest.raises(RuntimeError, match="a fault"):
        await call()


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
