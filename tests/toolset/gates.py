"""A gate that keeps what it is asked, and how a refusal is told from another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from devtools_lsp import Decision, DevToolsError
from devtools_lsp.ports import GateCall, GateContext


@dataclass
class RecordingGate:
    """Approves everything unless told otherwise, and keeps every question."""

    answer: Callable[[GateContext, GateCall], Any] | None = None
    questions: list[tuple[GateContext, GateCall]] = field(default_factory=list)

    async def __call__(self, context: GateContext, call: GateCall) -> Decision:
        self.questions.append((context, call))
        if self.answer is None:
            return Decision(approved=True, by="test")
        decision = self.answer(context, call)
        return await decision if isinstance(decision, Awaitable) else decision

    @property
    def steps(self) -> list[str]:
        return [call.step for _, call in self.questions]


async def refused(work: Awaitable[Any], code: str) -> DevToolsError:
    with pytest.raises(DevToolsError) as caught:
        await work
    assert caught.value.code == code, caught.value.message
    return caught.value
