"""The fluent front end: an immutable plan in the making, awaitable (SPEC 3.0.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from devtools_lsp.core.result import Result
from devtools_lsp.pipeline.selection import EngineStep

Op = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlanBuilder:
    """Each method returns a new builder with one more op; `await` or `run()` executes, `to_ops()` shows the ops."""

    _run: Callable[..., Awaitable[Result]]
    _require: Callable[[EngineStep], None]
    """Raises EngineRequiredError for a step that no engine serves."""
    paths: tuple[str, ...]
    agent: str = "library"
    _ops: tuple[Op, ...] = field(default=())

    def read_lines(self, path: str, start: int, end: int | None = None, *, label: str | None = None) -> PlanBuilder:
        """Add a read_lines step: 1-based, inclusive; `end` None reads to the end."""
        args: dict[str, Any] = {"path": path, "start": start}
        return self._with("read_lines", args if end is None else {**args, "end": end}, label)

    def edit(self, path: str, edits: Sequence[Mapping[str, str]], *, label: str | None = None) -> PlanBuilder:
        """Add an edit step with `{find, replace}` blocks."""
        return self._with("edit", {"path": path, "edits": [dict(edit) for edit in edits]}, label)

    def apply_patch(self, patch: str, *, label: str | None = None) -> PlanBuilder:
        """Add an apply_patch step in either dialect."""
        return self._with("apply_patch", {"patch": patch}, label)

    def write(self, paths: Sequence[str] | None = None, *, label: str | None = None) -> PlanBuilder:
        """Add a write step; without `paths` everything that changed."""
        return self._with("write", {} if paths is None else {"paths": list(paths)}, label)

    def format(self, paths: Sequence[str] | None = None, *, label: str | None = None) -> PlanBuilder:
        """Add a format step; raises EngineRequiredError when no formatter is configured."""
        self._require("format")
        return self._with("format", {} if paths is None else {"paths": list(paths)}, label)

    def lint(self, paths: Sequence[str] | None = None, *, fix: bool = False, label: str | None = None) -> PlanBuilder:
        """Add a lint step; raises EngineRequiredError when no linter is configured."""
        self._require("lint")
        args: dict[str, Any] = {} if paths is None else {"paths": list(paths)}
        return self._with("lint", {**args, "fix": True} if fix else args, label)

    def check(self, *, label: str | None = None) -> PlanBuilder:
        """Add a check step; raises EngineRequiredError when no checker is configured."""
        self._require("check")
        return self._with("check", {}, label)

    def to_ops(self) -> list[dict[str, Any]]:
        """The ops as `pipeline.ops` takes them; the caller's own to change."""
        return deepcopy([dict(op) for op in self._ops])

    async def run(self) -> Result:
        """Execute the plan."""
        return await self._run(self.paths, self.to_ops(), agent=self.agent)

    def __await__(self) -> Generator[Any, None, Result]:
        return self.run().__await__()

    def _with(self, step: str, args: Mapping[str, Any], label: str | None) -> PlanBuilder:
        op: dict[str, Any] = {"step": step, "args": dict(args)}
        if label is not None:
            op["label"] = label
        return replace(self, _ops=(*self._ops, op))
