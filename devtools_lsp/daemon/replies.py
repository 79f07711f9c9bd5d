"""From a tool's answer to the reply on the wire: spooled, rendered, and in a thread when there is much of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from devtools_lsp.agent.artifacts import ArtifactStore, SpooledJsonArtifact
from devtools_lsp.agent.forge import ToolAnswer
from devtools_lsp.agent.render import render_answer
from devtools_lsp.pipeline.off_loop import ENTRY, SMALL
from devtools_lsp.wire.messages import encode


class Reply:
    """The reply to one call, made while the disk is waited for where the answer can be foretold."""

    def __init__(self, artifacts: ArtifactStore, inline_tokens: int) -> None:
        """`inline_tokens` as in `render_reply`."""
        self._artifacts = artifacts
        self._inline_tokens = inline_tokens
        self._foretold: tuple[ToolAnswer, SpooledJsonArtifact, dict[str, Any]] | None = None

    def foretell(self, answer: ToolAnswer) -> None:
        """Make the reply to an answer that is to be expected, if that is quickly done."""
        if _weight(answer) <= SMALL:
            artifact = self._artifacts.name(answer.result)
            self._foretold = (answer, artifact, render_answer(answer, artifact, inline_tokens=self._inline_tokens))

    async def to(self, answer: ToolAnswer) -> object:
        """Spool the result of an answer; returns the reply."""
        if self._foretold is not None and self._foretold[0] == answer:
            _, artifact, reply = self._foretold
            self._artifacts.keep(artifact, answer.result)
            return reply
        artifact = self._artifacts.spool(answer.result)
        if _weight(answer) <= SMALL:
            return render_answer(answer, artifact, inline_tokens=self._inline_tokens)
        return await asyncio.to_thread(_encoded_reply, answer, artifact, self._inline_tokens)


def _weight(answer: ToolAnswer) -> int:
    """About how many characters a reply has."""
    result = answer.result
    texts = [answer.content or "", *(read.text for read in result.reads.values())]
    texts += [value for value in (answer.data or {}).values() if isinstance(value, str)]
    entries = len(result.diagnostics) + len(result.changes) + len(result.written)
    return sum(map(len, texts)) + ENTRY * entries


def _encoded_reply(answer: ToolAnswer, artifact: SpooledJsonArtifact, inline_tokens: int) -> msgspec.Raw:
    """A heavy reply, encoded already."""
    return msgspec.Raw(encode(render_answer(answer, artifact, inline_tokens=inline_tokens)))
