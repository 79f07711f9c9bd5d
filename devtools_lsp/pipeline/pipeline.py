"""The pipeline as programs use it: ops, the builder, compile. Every call is one isolated plan (SPEC 3.0)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from devtools_lsp.core.result import Result
from devtools_lsp.core.wording import shown
from devtools_lsp.errors import BadArgumentError, ReadOnlyError
from devtools_lsp.pipeline.builder import PlanBuilder
from devtools_lsp.pipeline.guarded import Caller, Guarded
from devtools_lsp.pipeline.off_loop import off_loop
from devtools_lsp.pipeline.parts import PipelineParts, PlanRequest
from devtools_lsp.pipeline.reversal import undo
from devtools_lsp.pipeline.runtime import execute
from devtools_lsp.pipeline.selection import offers, offers_fix, require_engine
from devtools_lsp.pipeline.steps import CompiledStep, OpName, compile_ops, compile_step
from devtools_lsp.ports import Cancellation, PlanIdentity

_PARSING = 4
"""How much more a character costs where a patch is parsed than where texts are compared."""


def new_plan_id() -> str:
    """An id that no other plan of any daemon has, short enough to read aloud."""
    return f"p-{os.urandom(6).hex()}"


class DevPipeline:
    """Runs plans over one root. Built by `devtools_lsp.app.create_dev_pipeline`, which validates its parts."""

    def __init__(self, parts: PipelineParts, *, read_only: bool = False) -> None:
        self.parts = parts
        self.read_only = read_only

        self.guarded = Guarded(parts, read_only=read_only)

    def __call__(self, paths: Sequence[str] = (), *, agent: str = "library") -> PlanBuilder:
        """Start an immutable, awaitable plan: `await pipeline(paths).edit(...).write().check()`."""
        return PlanBuilder(self.ops, partial(require_engine, self.parts), tuple(paths), agent=agent)

    def compile(self, ops: Sequence[Mapping[str, Any]]) -> list[CompiledStep]:
        """Validate arguments and parse patches without running anything."""
        return compile_ops(ops)

    def offers(self, step: str) -> bool:
        """Whether a step could be served at all, asked without arguments (SPEC 7.3)."""
        if step == "format":
            return offers(self.parts, "format")
        if step == "lint":
            return offers(self.parts, "lint")
        if step == "check":
            return offers(self.parts, "check")
        return True

    def offers_fix(self) -> bool:
        """Whether some linter can fix."""
        return offers_fix(self.parts)

    async def ops(
        self,
        paths: Sequence[str],
        ops: Sequence[Mapping[str, Any]],
        *,
        agent: str = "library",
        session: str = "",
        signal: Cancellation | None = None,
        plan: str | None = None,
    ) -> Result:
        """Run a plan: acquire `paths` (literals and patterns), then each `{step, args, label?}` in order."""
        steps = await off_loop(_weight(ops), compile_ops, ops)
        if self.read_only:
            for step in steps:
                if step.step == "write" or step.changes_text():
                    raise ReadOnlyError(f"{step.step} changes files and this workspace is read-only", step=step.step)
        request = PlanRequest(
            paths=check_paths(paths),
            acquire_args={"paths": list(paths)},
            steps=tuple(steps),
            who=PlanIdentity(plan or new_plan_id(), agent, session),
            signal=signal or Cancellation(),
        )
        return await execute(self.parts, request)

    async def single(
        self,
        step: OpName,
        args: Mapping[str, Any],
        *,
        paths: Sequence[str] | None = None,
        agent: str = "library",
        session: str = "",
        signal: Cancellation | None = None,
        plan: str | None = None,
        foretold: Callable[[Result], None] | None = None,
    ) -> Result:
        """One granular call: a one-step plan that acquires what it implies, and persists when it can change text.

        `paths` is what the caller authored for acquisition, None when it was not authored (SPEC 7.4); `foretold` as in
        `PlanRequest`.
        """
        compiled = await off_loop(_patch_weight(args), compile_step, step, args)
        persists = compiled.changes_text()
        if persists and self.read_only:
            raise ReadOnlyError(f"{step} changes files and this workspace is read-only", step=step)
        literals: tuple[str, ...] = ()
        optional: tuple[str, ...] = ()
        if compiled.patch is not None:
            literals = tuple(compiled.patch.acquires)
            optional = compiled.patch.acquires_if_present
        elif "path" in args:
            literals = (str(args["path"]),)
        acquire_args: dict[str, Any] = {"paths": list(paths)} if paths is not None else {}
        request = PlanRequest(
            paths=check_paths(paths) if paths else (),
            acquire_args=acquire_args,
            steps=(compiled,),
            who=PlanIdentity(plan or new_plan_id(), agent, session),
            signal=signal or Cancellation(),
            persists=persists,
            literals=literals,
            optional=optional,
            foretold=foretold,
        )
        return await execute(self.parts, request)

    async def undo(self, plan: str | None, caller: Caller) -> Result:
        """Take back the last plan that wrote, or the one named, where its files still hold what it wrote."""
        return await undo(self.parts, self.guarded, plan, caller)


def check_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """A plan's `paths` as the wire may say them; raises BadArgumentError."""
    if isinstance(paths, str):
        raise BadArgumentError(
            f"argument 'paths' must be a list of strings, not one string; write [{shown(paths)}]",
            step="acquire",
            reason="malformed",
        )
    for index, entry in enumerate(paths):
        if not isinstance(entry, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- the wire can say anything
            raise BadArgumentError(
                f"argument 'paths[{index}]' must be a string, not {shown(entry)}", step="acquire", reason="malformed"
            )
        if not entry:
            raise BadArgumentError(
                f"argument 'paths[{index}]' is empty; name a file relative to the root, or a pattern such as src/**",
                step="acquire",
                reason="malformed",
            )
    return tuple(paths)


def _weight(ops: object) -> int:
    """What compiling a plan costs: the characters of its patches, which are taken apart line by line.

    What is malformed weighs nothing and is refused by compiling.
    """
    weight = 0
    for op in cast("Sequence[object]", ops) if isinstance(ops, Sequence) else ():
        args = cast("Mapping[str, object]", op).get("args") if isinstance(op, Mapping) else None
        weight += _patch_weight(cast("Mapping[str, object]", args)) if isinstance(args, Mapping) else 0
    return weight


def _patch_weight(args: Mapping[str, object]) -> int:
    patch = args.get("patch")
    return _PARSING * len(patch) if isinstance(patch, str) else 0
