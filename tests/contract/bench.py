"""The bench for the pipeline's contract: a real directory, the real gauntlet, a recording gate, engines as data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.app import create_dev_pipeline
from devtools_lsp.core.delta import Delta
from devtools_lsp.core.diagnostics import Finding
from devtools_lsp.core.result import Result
from devtools_lsp.errors import DevToolsError
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.pipeline.pipeline import DevPipeline
from devtools_lsp.ports import Capability, Decision, DevEngine, EngineCall, GateCall, GateContext

Answer = Callable[[GateContext, GateCall], Awaitable[Decision] | Decision]


@dataclass
class RecordingGate:
    """Approves everything unless told otherwise, and keeps every question."""

    answer: Answer | None = None
    questions: list[tuple[GateContext, GateCall]] = field(default_factory=list)

    async def __call__(self, context: GateContext, call: GateCall) -> Decision:
        self.questions.append((context, call))
        if self.answer is None:
            return Decision(approved=True, by="test")
        decision = self.answer(context, call)
        return decision if isinstance(decision, Decision) else await decision

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [call.to_wire() for _, call in self.questions]

    @property
    def steps(self) -> list[str]:
        return [call.step for _, call in self.questions]


@dataclass
class Scene:
    """One root with files, one pipeline over it."""

    root: Path
    gate: RecordingGate = field(default_factory=RecordingGate)
    engines: list[DevEngine] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=lambda: {"text": "preserve"})
    file_system: Any = None
    _pipeline: DevPipeline | None = None

    def put(self, files: Mapping[str, str | bytes]) -> Scene:
        for path, content in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
        return self

    def disk(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not {".devtools", "devtools-lsp"} & set(path.parts)
        }

    def text(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    @property
    def pipeline(self) -> DevPipeline:
        if self._pipeline is None:
            self.file_system = self.file_system or LocalFileSystem(str(self.root))
            self._pipeline = create_dev_pipeline(
                root=str(self.root),
                file_system=self.file_system,
                policy=self.options.pop("policy", None) or PathPolicy(),
                gate=self.gate,
                engines=self.engines,
                **self.options,
            )
        return self._pipeline

    async def call(self, step: str, *, paths: Sequence[str] | None = None, **args: Any) -> Result:
        return await self.pipeline.single(step, args, paths=paths)  # type: ignore[arg-type]

    async def plan(self, paths: Sequence[str], *ops: Mapping[str, Any]) -> Result:
        return await self.pipeline.ops(paths, ops)

    async def refused(self, work: Awaitable[Result], code: str, reason: str | None = None) -> DevToolsError:
        """The work fails with this code, and the disk is what it was."""
        before = self.disk()
        with pytest.raises(DevToolsError) as caught:
            await work
        assert (caught.value.code, caught.value.reason) == (code, reason), caught.value.message
        assert self.disk() == before
        return caught.value


def op(step: str, label: str | None = None, **args: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"step": step, "args": args}
    return made if label is None else {**made, "label": label}


def finder(
    engine_id: str, word: str, *, extensions: frozenset[str] = frozenset({"*"}), kind: str = "checks"
) -> DevEngine:
    """An engine that reports every occurrence of a word, in whatever texts it is given."""

    async def run(call: EngineCall) -> Delta:
        found = []
        for path in call.paths:
            for number, line in enumerate(call.texts[path].split("\n"), 1):
                column = line.find(word)
                if column >= 0:
                    found.append(
                        Finding(
                            path=path,
                            severity="error",
                            message=f"{word} is not allowed",
                            rule="word",
                            line=number,
                            column=column + 1,
                            end_line=number,
                            end_column=column + 1 + len(word),
                        )
                    )
        return Delta(diagnostics=tuple(found))

    return DevEngine(engine_id, **{kind: (Capability(run, extensions=extensions),)})


def formatter(
    engine_id: str, change: Callable[[str], str], *, extensions: frozenset[str] = frozenset({"*"})
) -> DevEngine:
    """An engine that rewrites texts with a function."""

    async def run(call: EngineCall) -> Delta:
        return Delta(
            changed={path: new for path in call.paths if (new := change(call.texts[path])) != call.texts[path]}
        )

    return DevEngine(engine_id, formats=(Capability(run, extensions=extensions),))


def denying(note: str | None = None) -> Answer:
    return lambda _context, _call: Decision(approved=False, by="person", note=note)


async def forever() -> Decision:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")
