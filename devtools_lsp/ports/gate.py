"""The one question that is asked before each step, and its answer (SPEC section 4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol

import msgspec

from devtools_lsp.core.changeset import Preview
from devtools_lsp.ports.cancellation import Cancellation


class GateCall(msgspec.Struct, frozen=True):
    """The question, exactly as SPEC 4.1: authored `args`, resolved `targets`, what may be created, which engines."""

    step: str
    args: Mapping[str, Any]
    targets: tuple[str, ...]
    may_create: tuple[str, ...] = ()
    engines: tuple[str, ...] | None = None

    def to_wire(self) -> dict[str, Any]:
        """The wire form: `{step, args, targets, mayCreate, engines}`."""
        return {
            "step": self.step,
            "args": dict(self.args),
            "targets": list(self.targets),
            "mayCreate": list(self.may_create),
            "engines": list(self.engines) if self.engines is not None else None,
        }


class Edited(msgspec.Struct, frozen=True):
    """A person's own text in place of the proposal: of a whole file (`path`) or of one hunk (`hunk_id`)."""

    text: str
    path: str | None = None
    hunk_id: str | None = None


class Decision(msgspec.Struct, frozen=True):
    """The gate's answer. `by` names who or what decided (`rule`, `editor`, `terminal`, ...).

    A decline carries `reason` and `note` for the agent; `withdrawn` says that the asker left before anybody
    answered, and is only reported, never given. `person` is
    true when somebody looked at the preview, so that `edited` and `dropped` (hunk ids) may be present.
    """

    approved: bool
    by: str
    note: str | None = None
    reason: Literal["denied", "expired", "noDecider", "stale", "withdrawn"] = "denied"
    edited: tuple[Edited, ...] = ()
    dropped: tuple[str, ...] = ()
    person: bool = False


class GateContext(msgspec.Struct, frozen=True):
    """Who asks, where in which plan, and the lazily computed preview (SPEC 4.4)."""

    plan: str
    step_index: int
    agent: str
    signal: Cancellation
    diff: Callable[[], Awaitable[Preview]]
    """The proposal's files and diff alone, without consequences: quick, so that it can be shown at once."""
    preview: Callable[[], Awaitable[Preview]]
    """The proposal with its diff and consequences; computed once, and only when somebody asks."""
    session: str = ""
    in_place: bool = False
    handle: object = None
    """The embedder's own, as it was given to `create_dev_pipeline`."""


class Gate(Protocol):
    """The one function asked before each step. The pipeline owns the asking; embedders own the answer."""

    async def __call__(self, context: GateContext, call: GateCall) -> Decision:
        """Answer, sooner or later: every implementation bounds its own wait."""
        ...
