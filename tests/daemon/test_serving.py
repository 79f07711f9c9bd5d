"""The daemon's composition beside its wiring: the collector is kept off what stays, heavy replies off the loop."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from devtools_lsp.agent.artifacts import SpooledJsonArtifact
from devtools_lsp.agent.forge import ToolAnswer
from devtools_lsp.agent.render import render_answer
from devtools_lsp.config import load_configuration
from devtools_lsp.core.result import Result, Written
from devtools_lsp.daemon import serving
from devtools_lsp.daemon.calls import Answer
from devtools_lsp.daemon.replies import _encoded_reply, _weight
from devtools_lsp.wire.framing import MAX_FRAME_BYTES, FrameTooLargeError
from devtools_lsp.wire.messages import encode
from tests.daemon.channels import Sent

ARTIFACT = SpooledJsonArtifact("handle", 0)


class StandIn:
    """A service that has its editors' part loaded when it is told to."""

    def __init__(self, _host: object, _configuration: object) -> None:
        self.agents = self.editors = self
        self.loading: asyncio.Future[None] | None = None

    async def start(self) -> None:
        self.loading = asyncio.get_running_loop().create_future()

    def prepare(self) -> asyncio.Future[None]:
        assert self.loading is not None
        return self.loading

    async def close(self) -> None:
        return


async def test_what_is_loaded_for_good_is_out_of_the_collectors_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    frozen: list[str] = []
    monkeypatch.setattr(serving, "Service", StandIn)
    monkeypatch.setattr("gc.freeze", lambda: frozen.append("frozen"))
    doors = await serving._open(cast("Any", None), load_configuration(tmp_path))
    await asyncio.sleep(0)
    assert frozen == [], "what editors need is still being loaded"
    cast("Any", doors.editors).loading.set_result(None)
    await asyncio.sleep(0)
    assert frozen == ["frozen"]


def answered(content: str) -> ToolAnswer:
    result = Result("p-1", [], [], {}, [], [], [], [], True, False, False, [])
    return ToolAnswer(result, content, {"stdout": content})


def test_a_heavy_reply_is_encoded_beforehand_and_reads_the_same():
    answer = answered("words\n" * 20_000)
    assert _weight(answer) == 2 * 120_000
    encoded = _encoded_reply(answer, ARTIFACT, 2000)
    assert isinstance(encoded, msgspec.Raw)
    channel = Sent()
    Answer(channel, "a" * 1000, "devtools/call").result(encoded)
    (sent,) = channel.sent
    assert json.loads(sent)["result"] == msgspec.to_builtins(render_answer(answer, ARTIFACT, inline_tokens=2000))


class Narrow(Sent):
    """One that takes less than a frame, as the way to an MCP client does."""

    limit = 1000

    def send(self, payload: object) -> None:
        body = payload if isinstance(payload, bytes) else encode(payload)
        if len(body) > self.limit:
            raise FrameTooLargeError(len(body), self.limit)
        super().send(body)


@pytest.mark.parametrize("limit", [1000, MAX_FRAME_BYTES // 2, MAX_FRAME_BYTES])
def test_a_reply_that_does_not_fit_still_says_what_was_written(limit: int):
    answer = answered("x" * (limit // 2 + 100))
    answer.result.written.append(Written(path="a.txt", kind="modified"))
    channel = Narrow()
    channel.limit = limit
    Answer(channel, 1, "devtools/call").result(_encoded_reply(answer, ARTIFACT, 2000))
    (sent,) = channel.sent
    data = json.loads(sent)["error"]["data"]
    assert data["code"] == "E_DEV_WORKSPACE_BOUNDS"
    assert data["written"] == [{"path": "a.txt", "kind": "modified"}]
