"""Scenes for engines: a project on disk, an engine over it, and what it says about a plan's texts."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devtools_lsp.core.compare import compare_diagnostics, line_map
from devtools_lsp.core.delta import Comparison, Delta
from devtools_lsp.core.diagnostics import Diagnostic, Finding
from devtools_lsp.engines.registry import EngineRegistry
from devtools_lsp.engines.spec import EngineSpec, spec_from_table
from devtools_lsp.ports import Cancellation, Capability, DevEngine, EngineCall
from devtools_lsp.text import decode

HERE = Path(__file__).parent
ZOO = HERE / "zoo"
NODE_MODULES = HERE / "node_modules"
NPM_PRESETS = frozenset({"biome", "typescript", "eslint", "prettier", "pyright", "typescript-language-server"})
TYPESCRIPT_5 = HERE / "typescript5/node_modules"


def require(preset: str) -> None:
    """Skip, visibly, where the tool of a preset is not installed."""
    folder = node_modules(preset)
    if preset in NPM_PRESETS and not folder.is_dir():
        pytest.skip(f"{preset} is not installed: run npm ci in {folder.parent.relative_to(HERE.parent.parent)}")


def node_modules(preset: str) -> Path:
    return TYPESCRIPT_5 if preset == "typescript-language-server" else NODE_MODULES


def link_node_modules(root: Path, preset: str = "") -> None:
    folder = node_modules(preset)
    if folder.is_dir():
        (root / "node_modules").symlink_to(folder, target_is_directory=True)


def zoo_spec(script: str, *arguments: str, **over: Any) -> EngineSpec:
    """An engine that is one of the misbehaving servers."""
    table: dict[str, Any] = {
        "kind": "language-server",
        "command": [sys.executable, str(ZOO / script), *arguments],
        "capabilities": ["format", "lint", "check", "fix"],
        "extensions": ["py"],
        "start_timeout_s": 5,
        "stop_grace_s": 0.3,
        "timeout_s": 5,
        "fix_kinds": ["source.fixAll"],
        **over,
    }
    return spec_from_table("zoo", table)


@dataclass
class Verdict:
    """A comparison as the pipeline would report it."""

    comparison: Comparison
    introduced: list[Diagnostic]
    resolved: list[Diagnostic]
    unchanged: int

    @property
    def judged(self) -> frozenset[str]:
        return self.comparison.judged

    @property
    def pending(self) -> dict[str | None, str]:
        return {entry.path: entry.reason for entry in self.comparison.pending}

    def introduced_in(self, path: str) -> list[Diagnostic]:
        return [entry for entry in self.introduced if entry.path == path]


@dataclass
class Scene:
    """A root with an engine over it. Paths are root-relative; texts on disk are read when a call is made."""

    root: Path
    registry: EngineRegistry
    engine_id: str
    events: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)

    @property
    def engine(self) -> DevEngine:
        return next(engine for engine in self.registry.engines if engine.id == self.engine_id)

    def write(self, files: Mapping[str, str | bytes]) -> None:
        for path, text in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text if isinstance(text, bytes) else text.encode())

    def read(self, path: str) -> str:
        return decode((self.root / path).read_bytes())[0]

    def call(
        self,
        step: str,
        paths: Sequence[str],
        changes: Mapping[str, str | None] | None = None,
        **over: Any,
    ) -> EngineCall:
        acquired = {path: self.read(path) for path in paths if (self.root / path).is_file()}
        texts = {**acquired, **(changes or {})}
        kept = {path: text for path, text in texts.items() if text is not None}
        disk: dict[str, str | None] = {path: acquired.get(path) for path in {*acquired, *texts}}
        defaults: dict[str, Any] = {
            "engine_id": self.engine_id,
            "step": step,
            "paths": tuple(path for path in {**acquired, **kept}),
            "texts": kept,
            "acquired": acquired,
            "disk": disk,
            "signal": Cancellation(),
        }
        return EngineCall(**{**defaults, **over})

    def capability(self, step: str) -> Capability:
        found = {"format": self.engine.formats, "lint": self.engine.lints, "check": self.engine.checks}[step]
        return found[0]

    async def run(self, step: str, *paths: str, changes: Mapping[str, str | None] | None = None, **over: Any) -> Delta:
        return await self.capability(step).run(self.call(step, paths, changes, **over))

    async def compare(
        self, *paths: str, changes: Mapping[str, str | None] | None = None, step: str = "check", **over: Any
    ) -> Verdict:
        call = self.call(step, [*paths, *(path for path in changes or {} if path not in paths)], changes, **over)
        compare = self.capability(step).compare
        assert compare is not None
        comparison = await compare(call)
        maps = {path: line_map(text, call.texts[path]) for path, text in call.acquired.items() if path in call.texts}
        introduced, resolved, unchanged = compare_diagnostics(
            [stamped(finding) for finding in comparison.before],
            [stamped(finding) for finding in comparison.after],
            maps,
            {},
        )
        return Verdict(comparison, introduced, resolved, unchanged)

    def text_at(self, finding: Finding | Diagnostic, text: str) -> str:
        """The text that a finding's range covers; our columns are 1-based code points, the end exclusive."""
        assert finding.line is not None
        assert finding.column is not None
        assert finding.end_line == finding.line
        assert finding.end_column is not None
        return text.split("\n")[finding.line - 1][finding.column - 1 : finding.end_column - 1]


def stamped(finding: Finding) -> Diagnostic:
    return Diagnostic(
        path=finding.path,
        severity=finding.severity,
        message=finding.message,
        engine_id="x",
        out_of_scope=False,
        rule=finding.rule,
        line=finding.line,
        column=finding.column,
        end_line=finding.end_line,
        end_column=finding.end_column,
    )


MakeScene = Callable[..., Scene]


@pytest_asyncio.fixture
async def make_scene(tmp_path: Path) -> AsyncIterator[MakeScene]:
    """Build scenes that end, with every process of theirs, when the test does."""
    made: list[Scene] = []

    def make(*specs: EngineSpec, files: Mapping[str, str | bytes] | None = None) -> Scene:
        root = tmp_path / f"root{len(made)}"
        root.mkdir()
        events: list[tuple[str, str, Mapping[str, Any]]] = []
        registry = EngineRegistry(root, specs, on_event=lambda *event: events.append(event))
        scene = Scene(root, registry, specs[0].id, events)
        scene.write(files or {})
        made.append(scene)
        return scene

    yield make
    for scene in made:
        await scene.registry.close()


async def eventually(condition: Callable[[], bool], *, within_s: float = 5.0, what: str = "") -> None:
    """Wait for a condition, with a bound."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.02)


@pytest.fixture(scope="session")
def engines() -> Any:
    """This module's names, for tests that cannot import it."""
    return sys.modules[__name__]
