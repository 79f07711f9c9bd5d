"""Which engines take part in a step: planned from data, before the gate is asked, without running anything.

Owns SPEC 6.2: format takes the first candidate of each extension, lint and check take all; selection middleware
may drop or rearrange and can never widen (I11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from devtools_lsp.core.diagnostics import Diagnostic, notice
from devtools_lsp.core.summary import first_names
from devtools_lsp.errors import EngineRequiredError, StepUnavailableError
from devtools_lsp.paths import PathPattern, extension_of, is_pattern
from devtools_lsp.pipeline.parts import PipelineParts
from devtools_lsp.ports import Candidate, Capability, DevEngine

EngineStep = Literal["format", "lint", "check"]


@dataclass(frozen=True, slots=True)
class Selected:
    """The candidates that will run, and a notice for the files that nobody handles."""

    candidates: tuple[Candidate, ...]
    notices: tuple[Diagnostic, ...]

    @property
    def engine_ids(self) -> tuple[str, ...]:
        """Ids in the order in which they run, each once."""
        return tuple(dict.fromkeys(candidate.engine.id for candidate in self.candidates))

    @property
    def in_place(self) -> bool:
        """Whether any of them changes the disk itself."""
        return any(candidate.capability.in_place for candidate in self.candidates)


def capabilities_of(engine: DevEngine, step: EngineStep) -> tuple[Capability, ...]:
    """What an engine offers for a step."""
    if step == "format":
        return engine.formats
    return engine.lints if step == "lint" else engine.checks


def offers(parts: PipelineParts, step: EngineStep) -> bool:
    """Whether any engine could serve the step: asked without arguments, never by extension (SPEC 7.3)."""
    return any(
        _possible(parts, capability) for engine in parts.engines() for capability in capabilities_of(engine, step)
    )


def offers_fix(parts: PipelineParts) -> bool:
    """Whether any linter can fix."""
    return any(
        capability.fixable and _possible(parts, capability) for engine in parts.engines() for capability in engine.lints
    )


def require_engine(parts: PipelineParts, step: EngineStep) -> None:
    """Raise EngineRequiredError, listing what there is, when no engine serves the step."""
    if offers(parts, step):
        return
    unmet = [
        (engine.id, need)
        for engine in parts.engines()
        for capability in capabilities_of(engine, step)
        for need in sorted(capability.needs - parts.gauntlet.methods)
    ]
    if unmet:
        engine_id, need = unmet[0]
        raise StepUnavailableError(
            f"{step}: engine {engine_id} needs {need}, which this file system does not have", step=step
        )
    served = [other for other in ("format", "lint", "check") if offers(parts, other)]
    raise EngineRequiredError(
        f"no engine is configured for {step}; do not retry. Engine steps that are served: "
        f"{', '.join(served) or 'none'}. The operator can add an engine to devtools.toml (`devtools-lsp init`)",
        step=step,
        alternatives=served,
    )


def select(parts: PipelineParts, step: EngineStep, paths: Sequence[str], *, fix: bool = False) -> Selected:
    """Plan a step over concrete paths."""
    notices: list[Diagnostic] = []
    offered: list[Candidate] = []
    for engine in parts.engines():
        for capability in capabilities_of(engine, step):
            if not _possible(parts, capability):
                continue
            handled = tuple(path for path in paths if capability.handles(extension_of(path)))
            if capability.in_place:
                inside = tuple(path for path in handled if matches_any(path, capability.scope))
                notices.extend(_outside_scope(step, engine, len(handled) - len(inside)))
                handled = inside
            if handled or capability.generates:
                offered.append(Candidate(engine, capability, handled))
    if fix:
        # A linter that cannot fix still judges the result; it is only not asked for fixes.
        offered.sort(key=lambda candidate: not candidate.capability.fixable)
    chosen = _first_by_extension(parts, offered) if step == "format" else _narrow(parts, step, offered)
    covered = {path for candidate in chosen for path in candidate.paths}
    unhandled = _unhandled(step, [path for path in paths if path not in covered])
    return Selected(tuple(chosen), (*notices, *unhandled))


def _outside_scope(step: str, engine: DevEngine, count: int) -> list[Diagnostic]:
    """Files that an in-place engine handles by extension and may not touch are left out, and counted."""
    if not count:
        return []
    return [notice(f"{step}: {count} file(s) are outside the scope of {engine.id} and were left out", rule="skipped")]


def _possible(parts: PipelineParts, capability: Capability) -> bool:
    return capability.needs <= parts.gauntlet.methods and (not capability.in_place or bool(capability.scope))


def _narrow(parts: PipelineParts, step: str, offered: Sequence[Candidate]) -> list[Candidate]:
    """Pass candidates through selection middleware; whatever it adds or widens is ignored."""
    if parts.selection is None:
        return list(offered)
    original = {(candidate.engine.id, id(candidate.capability)): candidate for candidate in offered}
    narrowed: list[Candidate] = []
    for answer in parts.selection(step, tuple(offered)):
        known = original.pop((answer.engine.id, id(answer.capability)), None)
        if known is None:
            continue
        kept = tuple(path for path in known.paths if path in set(answer.paths))
        if kept or known.capability.generates:
            narrowed.append(replace(known, paths=kept))
    return narrowed


def _first_by_extension(parts: PipelineParts, offered: Sequence[Candidate]) -> list[Candidate]:
    extensions = dict.fromkeys(extension_of(path) for candidate in offered for path in candidate.paths)
    winners: dict[tuple[str, int], tuple[Candidate, list[str]]] = {}
    for extension in extensions:
        group = [
            replace(candidate, paths=tuple(path for path in candidate.paths if extension_of(path) == extension))
            for candidate in offered
        ]
        narrowed = _narrow(parts, "format", [candidate for candidate in group if candidate.paths])
        if narrowed:
            first = narrowed[0]
            winners.setdefault((first.engine.id, id(first.capability)), (first, []))[1].extend(first.paths)
    for candidate in _narrow(parts, "format", [item for item in offered if item.capability.generates]):
        winners.setdefault((candidate.engine.id, id(candidate.capability)), (candidate, []))
    return [replace(candidate, paths=tuple(sorted(paths))) for candidate, paths in winners.values()]


def _unhandled(step: str, paths: Sequence[str]) -> tuple[Diagnostic, ...]:
    by_extension: dict[str, list[str]] = {}
    for path in paths:
        by_extension.setdefault(extension_of(path), []).append(path)
    found: list[Diagnostic] = []
    for extension, group in sorted(by_extension.items()):
        what = f".{extension} files" if extension else "files without an extension"
        found.append(
            notice(
                f"{step}: no engine handles {what}; {len(group)} skipped: {first_names(group)}",
                path=group[0] if len(group) == 1 else None,
                rule="skipped",
            )
        )
    return tuple(found)


def matches_any(path: str, entries: Sequence[str]) -> bool:
    """Whether a path is one of the literals or matches one of the patterns."""
    return any(
        PathPattern.parse(entry).matches(path, dot_names=False) if is_pattern(entry) else entry == path
        for entry in entries
    )
