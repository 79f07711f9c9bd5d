"""Which known engines a project could use, and whether a configured one really answers.

`detect` looks for installed programs and starts nothing; `probe` starts one engine on a small file in a temporary
directory. Owns the advice; what is written into a configuration is for a person to review.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from devtools_lsp.core.delta import Delta
from devtools_lsp.engines.locate import locate_server, nearest, project_interpreter
from devtools_lsp.engines.presets import preset_names
from devtools_lsp.engines.registry import EngineRegistry
from devtools_lsp.engines.server import missing_reason
from devtools_lsp.engines.spec import EngineSpec, spec_from_table
from devtools_lsp.engines.tree import ProjectTree
from devtools_lsp.errors import DevToolsError
from devtools_lsp.paths import extension_of
from devtools_lsp.ports import Cancellation, Capability, EngineCall

PROBE_TIMEOUT_S = 60.0
_CHECKERS_OF_PYTHON = ("basedpyright", "pyright", "ty", "mypy")
_CHECKERS_OF_SCRIPTS = ("typescript", "typescript-language-server")
_NEEDS_ITS_CONFIGURATION = frozenset({"biome", "eslint", "prettier"})
"""Installed as a dependency of something else more often than meant: taken only where the project configures them."""


@dataclass(frozen=True, slots=True)
class Found:
    """One preset for this project. `wanted` means that it would be written as it is, the others as comments."""

    preset: str
    title: str
    installed: bool
    program: str | None
    files: int
    configured_by: str | None
    wanted: bool
    note: str
    table: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Detected:
    """What a project has: engines in the order of presets' usefulness, and the project's own interpreter."""

    engines: tuple[Found, ...]
    interpreter: str | None
    """The project's own Python, relative to the root where it lies there; None when it has none."""


ProbeState = Literal["ok", "missing", "failed"]


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """How one engine did on a probe file. `first_s` includes its start, `warm_s` does not (None: not asked twice)."""

    id: str
    state: ProbeState
    version: str | None
    path: str | None
    abilities: tuple[str, ...]
    first_s: float | None
    warm_s: float | None
    message: str
    remedy: str


def detect(root: str | Path) -> Detected:
    """What is installed for a project and what it has files for. Blocks: it walks the tree."""
    where = Path(root).resolve()
    interpreter = project_interpreter(where)
    extensions = _extensions(where)
    found = [_looked_at(name, where, extensions, interpreter) for name in preset_names()]
    chosen = [_first_choice(found, group) for group in (_CHECKERS_OF_PYTHON, _CHECKERS_OF_SCRIPTS)]
    settled: list[Found] = []
    for entry in found:
        rival = next((choice for choice in chosen if choice is not None and entry.preset in choice[0]), None)
        if entry.wanted and rival is not None and entry.preset != rival[1]:
            entry = replace(entry, wanted=False, note=f"{rival[1]} checks the same files; choose one of them")
        settled.append(entry)
    order = sorted(settled, key=lambda entry: (not entry.wanted, not entry.installed, entry.preset))
    return Detected(tuple(order), _relative(where, interpreter))


def _looked_at(name: str, root: Path, extensions: Counter[str], interpreter: str | None) -> Found:
    table: dict[str, Any] = {"preset": name}
    spec = spec_from_table(name, table)
    located = locate_server(spec, root)
    configured = nearest(root, "_", spec.config_files)
    files = sum(extensions[extension] for extension in spec.extensions)
    note = ""
    if located is None:
        note = missing_reason(spec)
    elif not files:
        note = "the project has no files for it"
    elif name in _NEEDS_ITS_CONFIGURATION and configured is None:
        note = "it is installed, but the project has no configuration for it"
    if name in _CHECKERS_OF_PYTHON and interpreter is not None:
        table["interpreter"] = _relative(root, interpreter)
    return Found(
        preset=name,
        title=spec.title,
        installed=located is not None,
        program=_relative(root, located.program) if located is not None else None,
        files=files,
        configured_by=_relative(root, str(configured)) if configured is not None else None,
        wanted=not note,
        note=note,
        table=table,
    )


def _first_choice(found: Sequence[Found], group: tuple[str, ...]) -> tuple[tuple[str, ...], str] | None:
    """Of several that do the same: one that the project configures, then one that it installs, then the first."""
    wanted = [entry for name in group for entry in found if entry.preset == name and entry.wanted]
    if not wanted:
        return None
    best = min(wanted, key=lambda entry: (entry.configured_by is None, (entry.program or "/").startswith("/")))
    return group, best.preset


def _extensions(root: Path) -> Counter[str]:
    tree = ProjectTree(root)
    return Counter(extension_of(path) for path in tree.look())


def _relative(root: Path, path: str | None) -> str | None:
    if path is None:
        return None
    return Path(path).relative_to(root).as_posix() if Path(path).is_relative_to(root) else path


async def probe(spec: EngineSpec, root: str | Path) -> ProbeReport:
    """Start an engine, its programs found as for `root`, on its preset's probe file in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="devtools-lsp-probe-") as directory:
        registry = await asyncio.to_thread(_furnished, Path(directory), Path(root), spec)
        try:
            return await _probed(registry, spec)
        finally:
            await registry.close()


def _furnished(place: Path, root: Path, spec: EngineSpec) -> EngineRegistry:
    home = root.resolve()
    for name, text in spec.probe.items():
        (place / name).write_text(text, "utf-8")
    if (home / "node_modules").is_dir():
        (place / "node_modules").symlink_to(home / "node_modules", target_is_directory=True)
    return EngineRegistry(place, [spec], home=home)


async def _probed(registry: EngineRegistry, spec: EngineSpec) -> ProbeReport:
    if not registry.engines:
        return ProbeReport(spec.id, "missing", None, None, (), None, None, missing_reason(spec), spec.remedy)
    engine = registry.engines[0]
    steps: list[tuple[Literal["format", "lint", "check"], Capability]] = [
        *(("format", capability) for capability in engine.formats),
        *(("lint", capability) for capability in engine.lints),
        *(("check", capability) for capability in engine.checks),
    ]
    times: list[float] = []
    problems: list[str] = []
    for step, capability in steps * 2:
        started = time.monotonic()
        try:
            delta = await capability.run(_question(spec, step, len(times)))
        except DevToolsError as error:
            problems.append(f"{step}: {error.message}")
            break
        times.append(time.monotonic() - started)
        problems.extend(f"{step}: {problem}" for problem in _problems(step, delta, spec))
        if problems:
            break
    await registry.ask_versions()
    status = registry.status()[0]
    return ProbeReport(
        id=spec.id,
        state="failed" if problems else "ok",
        version=status.version,
        path=status.path,
        abilities=spec.capabilities,
        first_s=sum(times[: len(steps)]) if len(times) >= len(steps) else None,
        warm_s=sum(times[len(steps) :]) if len(times) == 2 * len(steps) else None,
        message="; ".join(problems) or "it answers",
        remedy=(spec.remedy or f"see {spec.homepage}") if problems else "",
    )


def _question(spec: EngineSpec, step: Literal["format", "lint", "check"], number: int) -> EngineCall:
    path, text = next(iter(spec.probe.items()), ("probe", ""))
    # Asked a second time the text differs, so that no earlier answer is given again.
    asked = text + "\n" * (number > 0)
    return EngineCall(
        engine_id=spec.id,
        step=step,
        paths=(path,),
        texts={path: asked},
        acquired={path: asked},
        disk={path: text},
        signal=Cancellation(),
        deadline_s=PROBE_TIMEOUT_S,
    )


def _problems(step: str, delta: Delta, spec: EngineSpec) -> list[str]:
    if delta.pending:
        return [entry.reason for entry in delta.pending]
    if not spec.probe:
        return []
    if step != "format" and not delta.diagnostics:
        return ["it found nothing wrong with a file in which something is wrong"]
    return []
