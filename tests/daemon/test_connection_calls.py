"""Requests while they run: one answer each, cancellation, disconnects, progress, bounds."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from typing import cast

import pytest

from devtools_lsp.daemon.calls import Answer, CallBounds
from devtools_lsp.daemon.connection import Connection, ConnectionBounds
from devtools_lsp.daemon.doors import Doors
from devtools_lsp.daemon.introduction import UNNAMED_AGENT
from devtools_lsp.daemon.lifecycle import LifeBounds
from devtools_lsp.errors import BadArgumentError
from tests.daemon.channels import Sent
from tests.toy_daemon import WAIT_S, RawClient, ToyAgents, ToyEditors, framed, toy_daemon


def bounds(**calls: float) -> LifeBounds:
    kept = {"cancel_grace_s": 0.1, **calls}
    return LifeBounds(connection=ConnectionBounds(calls=CallBounds(**kept)))  # type: ignore[arg-type]


async def cancel(client: RawClient, request_id: object) -> None:
    await client.send({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": request_id}})


# -- outcomes ----------------------------------------------------------------------------------------------------


async def test_what_a_tool_does_wrong_becomes_one_answer():
    """I13: refusals, faults of ours, results that cannot be sent."""
    async with toy_daemon() as toy:
        client = await toy.agent()
        await client.call(1, "nonesuch")
        refused = await client.receive()
        assert refused["error"]["code"] == -32050
        assert refused["error"]["data"]["code"] == "E_DEV_BAD_ARG"
        for request_id, tool in enumerate(("boom", "exit", "unencodable"), start=2):
            await client.call(request_id, tool)
            failed = await client.receive()
            assert (failed["id"], failed["error"]["code"]) == (request_id, -32603)
            # The traceback and what it holds belong to the log.
            assert "secret" not in json.dumps(failed)
            assert "data" not in failed["error"]
        await client.call(9, "big", size=9 * 1024 * 1024)
        too_big = await client.receive()
        assert too_big["error"]["data"]["code"] == "E_DEV_WORKSPACE_BOUNDS"
        assert too_big["error"]["data"]["retry"] == "withLess"
        await client.call(10, "echo", fine=True)
        assert (await client.receive())["result"] == {"fine": True}


async def test_answers_come_as_they_are_ready():
    async with toy_daemon(bounds()) as toy:
        client = await toy.agent()
        await client.call("slow", "wait")
        await client.call("fast", "echo")
        assert (await client.receive())["id"] == "fast"
        await cancel(client, "slow")
        assert (await client.receive())["id"] == "slow"


async def test_an_id_in_use_is_refused_and_the_first_call_is_left_alone():
    async with toy_daemon(bounds()) as toy:
        client = await toy.agent()
        await client.call(7, "wait")
        await client.call(7, "echo")
        refused = await client.receive()
        assert (refused["id"], refused["error"]["code"]) == (7, -32600)
        await cancel(client, 7)
        assert (await client.receive())["error"]["data"]["code"] == "E_DEV_CANCELLED"
        await client.call(7, "echo")
        assert "result" in await client.receive()
        # 7 and "7" are different ids.
        await client.call(7, "wait")
        await client.call("7", "echo")
        assert (await client.receive())["id"] == "7"


async def test_what_comes_during_an_introduction_waits_for_it_and_nobody_else_does():
    async with toy_daemon(bounds()) as toy:
        witness = await toy.agent()
        toy.agents.admits.clear()
        client = await toy.connect()
        await client.request("intro", "devtools/initialize", {"client": {"name": "raw"}})
        for number in range(200):
            await client.call(number, "echo", text="x" * 1000)
        client.writer.write_eof()
        await witness.call("witness", "echo")
        assert (await witness.receive())["id"] == "witness"
        assert toy.agents.endings == ["echo"]
        toy.agents.admits.set()
        answers = [(await client.receive())["id"] for _ in range(201)]
        assert answers == ["intro", *range(200)]
        assert await client.ended()


class Written(asyncio.Transport):
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast("asyncio.Protocol", protocol)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.frames += 1

    def resume_reading(self) -> None:
        return

    def close(self) -> None:
        self.protocol.connection_lost(None)


async def test_a_thousand_messages_at_once_leave_others_their_turns():
    transport = Written()
    agents = ToyAgents("/")
    connection = Connection(transport, Doors(agents, ToyEditors()), "c1", lambda _reason: None)
    running = asyncio.create_task(connection.run())
    transport.protocol.data_received(framed(b"{") * 1000)
    seen = [transport.frames]
    while seen[-1] < 1000:
        await asyncio.sleep(0)
        seen.append(transport.frames)
    assert max(after - before for before, after in itertools.pairwise([0, *seen])) <= 64
    transport.protocol.eof_received()
    await asyncio.wait_for(running, WAIT_S)
    assert transport.frames == 1000


def test_an_answer_is_given_once(caplog: pytest.LogCaptureFixture):
    """I13 as a type: whatever comes second is dropped and reported."""
    channel = Sent()
    answer = Answer(channel, 5, "devtools/call")
    answer.result({"first": True})
    answer.error(BadArgumentError("second"))
    answer.result("third")
    assert [json.loads(body) for body in channel.sent] == [{"jsonrpc": "2.0", "id": 5, "result": {"first": True}}]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


# -- cancellation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["wait", "deaf"])
async def test_a_cancelled_call_ends_with_e_dev_cancelled(tool: str):
    async with toy_daemon(bounds()) as toy:
        client = await toy.agent()
        await client.call(1, tool)
        await toy.until(lambda: toy.agents.started == 1)
        await cancel(client, 1)
        answer = await client.receive()
        assert answer["error"]["code"] == -32050
        assert answer["error"]["data"]["code"] == "E_DEV_CANCELLED"
        if tool == "wait":
            assert answer["error"]["data"]["written"] == [{"path": "a.py", "kind": "modified"}]
        assert toy.agents.endings == [tool]
        await cancel(client, 1)
        await client.call(2, "echo")
        assert (await client.receive())["id"] == 2


async def test_a_call_that_ignores_everything_is_given_up():
    """I13: the caller gets its one answer, and the late outcome is dropped."""
    async with toy_daemon(bounds()) as toy:
        client = await toy.agent()
        await client.call(1, "stone", seconds=0.8)
        await toy.until(lambda: toy.agents.started == 1)
        await cancel(client, 1)
        answer = await client.receive()
        assert answer["error"]["data"]["code"] == "E_DEV_CANCELLED"
        assert "does not end" in answer["error"]["message"]
        await toy.until(lambda: toy.agents.endings == ["stone"])
        await client.call(1, "echo")
        assert (await client.receive())["result"] == {}


async def test_cancelling_reaches_only_ones_own_calls():
    async with toy_daemon(bounds()) as toy:
        one, other = await toy.agent(), await toy.agent()
        await one.call(1, "wait")
        await other.call(1, "wait")
        await toy.until(lambda: toy.agents.started == 2)
        await cancel(one, 1)
        assert (await one.receive())["id"] == 1
        await one.call(2, "echo")
        await one.receive()
        assert toy.agents.endings == ["wait", "echo"]
        await cancel(other, 1)
        assert (await other.receive())["id"] == 1


# -- disconnects -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["wait", "deaf"])
async def test_a_disconnect_cancels_ones_calls_and_nobody_elses(tool: str):
    async with toy_daemon(bounds()) as toy:
        leaving, staying = await toy.agent(), await toy.agent()
        await staying.call("s", "wait")
        for request_id in range(20):
            await leaving.call(request_id, tool)
        await toy.until(lambda: toy.agents.started == 21)
        leaving.writer.transport.abort()
        await toy.until(lambda: len(toy.agents.detached_peers) == 1)
        assert toy.agents.endings == [tool] * 20
        assert [peer.connection for peer in toy.host.peers()] == [toy.agents.attached[1].connection]  # type: ignore[union-attr]
        await cancel(staying, "s")
        assert (await staying.receive())["id"] == "s"


async def test_a_client_that_only_closes_its_writing_side_still_gets_its_answers():
    async with toy_daemon(bounds()) as toy:
        client = await toy.agent()
        await client.call(1, "wait")
        await toy.until(lambda: toy.agents.started == 1)
        client.writer.write_eof()
        assert (await client.receive())["error"]["data"]["code"] == "E_DEV_CANCELLED"
        assert await client.ended()


async def test_a_disconnect_in_the_middle_of_a_frame():
    async with toy_daemon() as toy:
        leaving, staying = await toy.agent(), await toy.agent()
        await leaving.send_bytes(b"Content-Length: 1000000\r\n\r\n" + b"x" * 500_000)
        leaving.writer.transport.abort()
        await toy.until(lambda: len(toy.agents.detached_peers) == 1)
        await staying.call(1, "echo")
        assert (await staying.receive())["id"] == 1


# -- roles and sessions ------------------------------------------------------------------------------------------


async def test_sessions_and_names():
    async with toy_daemon() as toy:
        named = await toy.agent(session="mine")
        await named.request(1, "devtools/status")
        assert (await named.receive())["result"] == {"role": "agent", "name": "raw", "session": "mine"}
        one, other = await toy.agent(role="terminal"), await toy.agent()
        await one.request(1, "devtools/status")
        await other.request(1, "devtools/status")
        first, second = (await one.receive())["result"], (await other.receive())["result"]
        assert first["role"] == "terminal"
        assert first["session"] != second["session"]
        assert [peer.decides for peer in toy.agents.attached] == [False, True, False]


async def test_an_agent_may_call_without_an_introduction_with_the_least_rights():
    async with toy_daemon() as toy:
        client = await toy.connect()
        await client.request(1, "devtools/status")
        assert (await client.receive())["result"]["name"] == UNNAMED_AGENT
        await client.request(2, "devtools/initialize", {"client": {"name": "late"}, "role": "terminal"})
        assert (await client.receive())["error"]["code"] == -32600
        assert [peer.role for peer in toy.agents.attached] == ["agent"]


# -- progress ----------------------------------------------------------------------------------------------------


async def test_progress_carries_the_token_and_precedes_the_answer():
    async with toy_daemon() as toy:
        client = await toy.agent()
        await client.request(
            1, "devtools/call", {"name": "progress", "arguments": {"count": 3}, "progressToken": "tok"}
        )
        for _ in range(3):
            assert await client.receive() == {
                "jsonrpc": "2.0",
                "method": "$/progress",
                "params": {"token": "tok", "value": {"kind": "output", "stream": "stdout", "text": "p"}},
            }
        assert (await client.receive())["result"] == 3


async def test_without_a_token_there_is_no_progress():
    async with toy_daemon() as toy:
        client = await toy.agent()
        await client.call(1, "progress", count=3)
        assert (await client.receive())["result"] == 3


async def test_the_last_report_is_repeated_while_the_call_waits():
    async with toy_daemon(bounds(progress_interval_s=0.05)) as toy:
        client = await toy.agent()
        await client.request(1, "devtools/call", {"name": "wait", "progressToken": 1})
        silent = await client.receive()
        assert silent["params"]["value"] == {"kind": "report", "message": "devtools/call is running"}
        await cancel(client, 1)
        while "error" not in (await client.receive()):
            pass
        await client.request(2, "devtools/call", {"name": "report_and_wait", "progressToken": 2})
        for _ in range(3):
            told = (await client.receive())["params"]
            assert told == {
                "token": 2,
                "value": {"kind": "report", "message": "waiting for a person", "approval": "a1"},
            }


async def test_each_of_several_calls_is_heard_of_until_it_ends():
    async with toy_daemon(bounds(progress_interval_s=0.05)) as toy:
        client = await toy.agent()
        heard: dict[int, int] = {1: 0, 2: 0}
        await client.request(1, "devtools/call", {"name": "wait", "progressToken": 1})
        while heard[2] < 3:
            told = await client.receive()
            heard[told["params"]["token"]] += 1
            if heard[1] == 2 and not heard[2]:
                await client.request(2, "devtools/call", {"name": "wait", "progressToken": 2})
        await cancel(client, 1)
        while "error" not in (await client.receive()):
            pass
        assert [(await client.receive())["params"]["token"] for _ in range(3)] == [2, 2, 2]


async def test_output_too_large_for_a_frame_is_told_and_does_not_end_the_call():
    async with toy_daemon() as toy:
        client = await toy.agent()
        params = {"name": "progress", "arguments": {"count": 1, "size": 9 * 1024 * 1024}, "progressToken": 1}
        await client.request(1, "devtools/call", params)
        assert "too many to show" in (await client.receive())["params"]["value"]["message"]
        assert (await client.receive())["result"] == 1


# -- bounds ------------------------------------------------------------------------------------------------------


async def test_too_many_calls_at_once_are_refused_by_name():
    async with toy_daemon(bounds(max_calls=3)) as toy:
        client = await toy.agent()
        for request_id in range(4):
            await client.call(request_id, "wait")
        refused = await client.receive()
        assert refused["id"] == 3
        assert refused["error"]["data"]["code"] == "E_DEV_WORKSPACE_BOUNDS"
        await cancel(client, 0)
        assert (await client.receive())["id"] == 0
        await client.call(5, "echo")
        assert (await client.receive())["id"] == 5


async def test_too_many_bytes_at_once_are_refused_but_one_large_call_is_not():
    async with toy_daemon(bounds(max_bytes=1000)) as toy:
        client = await toy.agent()
        await client.call(1, "echo", text="x" * 2000)
        assert len((await client.receive())["result"]["text"]) == 2000
        await client.call(2, "wait")
        await client.call(3, "echo", text="x" * 2000)
        refused = await client.receive()
        assert refused["id"] == 3
        assert refused["error"]["data"]["code"] == "E_DEV_WORKSPACE_BOUNDS"


async def test_fifty_clients_lose_no_answer_and_get_none_twice():
    """I13 under load: answers, refusals, cancellations and faults, all at once."""
    calls = 60
    async with toy_daemon(bounds()) as toy:

        async def talk(number: int) -> None:
            order = random.Random(number)
            client = await toy.agent()
            expected: dict[str, object] = {}
            batch = bytearray()
            for index in range(calls):
                request_id = f"{number}-{index}"
                tool = order.choice(["echo", "echo", "echo", "nonesuch", "boom", "wait"])
                expected[request_id] = tool
                message = {"name": tool, "arguments": {"id": request_id} if tool == "echo" else {}}
                batch += framed(
                    json.dumps(
                        {"jsonrpc": "2.0", "id": request_id, "method": "devtools/call", "params": message}
                    ).encode()
                )
                if tool == "wait":
                    batch += framed(
                        json.dumps(
                            {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": request_id}}
                        ).encode()
                    )
            await client.send_bytes(bytes(batch))
            while expected:
                answer = await client.receive()
                tool = expected.pop(answer["id"])
                if tool == "echo":
                    assert answer["result"] == {"id": answer["id"]}
                elif tool == "boom":
                    assert answer["error"]["code"] == -32603
                else:
                    code = {"nonesuch": "E_DEV_BAD_ARG", "wait": "E_DEV_CANCELLED"}[str(tool)]
                    assert answer["error"]["data"]["code"] == code
            # Nothing is left over: the next thing that comes is the answer to the next question.
            await client.call("last", "echo")
            assert (await client.receive())["id"] == "last"

        async with asyncio.timeout(3 * WAIT_S):
            await asyncio.gather(*(talk(number) for number in range(50)))
