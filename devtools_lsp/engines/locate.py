"""Finding the program that an engine runs: the project's own first.

Order: a path written in the configuration is that path; a bare name is looked for in the root's virtual
environment and `node_modules/.bin`, then in the directories that the configuration lists, then on PATH, then
beside this very installation. Looks at the file system; starts nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from devtools_lsp.engines.spec import EngineSpec

ENVIRONMENT_DIRECTORIES = (".venv", "venv")


@dataclass(frozen=True, slots=True)
class Located:
    """A command line that can be started; `program` is the file behind it, for people and for `status`."""

    command: tuple[str, ...]
    program: str


def project_interpreter(root: Path, configured: str = "") -> str | None:
    """The project's own Python: the configured one, else that of a virtual environment at the root."""
    if configured:
        return str(root / configured)
    for name in ENVIRONMENT_DIRECTORIES:
        candidate = root / name / "bin" / "python"
        if candidate.exists():
            return str(candidate)
    return None


def search_directories(root: Path, configured: Sequence[str] = ()) -> list[Path]:
    """Where bare names are looked for, in order."""
    own = [root / name / "bin" for name in ENVIRONMENT_DIRECTORIES]
    own.append(root / "node_modules" / ".bin")
    listed = [root / entry for entry in configured]
    path = [Path(entry) for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if entry]
    return [*own, *listed, *path, Path(sys.executable).parent]


def find_program(name: str, root: Path, configured: Sequence[str] = ()) -> Path | None:
    """The first executable file of this name."""
    if "/" in name:
        found = shutil.which(str(root / name))
        return Path(found) if found else None
    for directory in search_directories(root, configured):
        candidate = directory / name
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    return None


def locate_server(spec: EngineSpec, root: Path) -> Located | None:
    """The command that starts a language server, its launcher replaced by the real program where that is known."""
    if spec.runner:
        return _with_runner(spec, spec.command, root)
    program = find_program(spec.command[0], root, spec.search)
    if program is None:
        return None
    for direct in spec.direct:
        command = _behind(program, direct.program, direct.arguments)
        if command is not None:
            return Located(command if direct.arguments else (*command, *spec.command[1:]), str(program))
    if spec.direct_only:
        return None
    return Located((str(program), *spec.command[1:]), str(program))


def locate_command(spec: EngineSpec, command: Sequence[str], root: Path) -> Located | None:
    """A command line (placeholders unresolved) with its program found."""
    if spec.runner:
        return _with_runner(spec, command, root)
    program = find_program(command[0], root, spec.search)
    if program is None:
        return None
    if command[0] == spec.command[0] or spec.kind == "command":
        for direct in spec.direct:
            real = _behind(program, direct.program, ())
            if real is not None:
                return Located((*real, *command[1:]), str(program))
    return Located((str(program), *command[1:]), str(program))


def _with_runner(spec: EngineSpec, command: Sequence[str], root: Path) -> Located | None:
    runner = find_program(spec.runner[0], root, spec.search)
    return Located((str(runner), *spec.runner[1:], *command), command[0]) if runner is not None else None


def _behind(launcher: Path, program: str, arguments: Sequence[str]) -> tuple[str, ...] | None:
    """The real program and its arguments, found below the environment that holds the launcher."""
    for base in _environments(launcher):
        found = _first(base, program)
        if found is None or not os.access(found, os.X_OK):
            continue
        words = [found]
        for argument in arguments:
            if argument.startswith("-"):
                words.append(argument)
                continue
            file = _first(base, argument)
            if file is None:
                break
            words.append(file)
        else:
            return tuple(words)
    return None


def _environments(launcher: Path) -> list[Path]:
    """Directories that may hold the launcher's package: of the path as found, and of the file behind its links."""
    directory = launcher.parent
    bases = [directory.parent]
    resolved = launcher.resolve()
    bases.extend(parent for parent in resolved.parents if parent.name == "node_modules")
    if resolved.parent != directory:
        bases.append(resolved.parent.parent)
    return bases


def _first(base: Path, pattern: str) -> str | None:
    if not any(sign in pattern for sign in "*?["):
        candidate = base / pattern
        return str(candidate) if candidate.exists() else None
    return next((str(found) for found in sorted(base.glob(pattern))), None)


def nearest(root: Path, path: str, names: Sequence[str]) -> Path | None:
    """The nearest of the named files from a file's directory up to the root; in one directory the first named wins.

    `pyproject.toml#tool.mypy` means the file only where it has that table (TOML and JSON).
    """
    directory = (root / path).parent
    while True:
        for name in names:
            file, _, table = name.partition("#")
            candidate = directory / file
            if candidate.is_file() and (not table or _has_table(candidate, table)):
                return candidate
        if directory == root or root not in directory.parents:
            return None
        directory = directory.parent


def _has_table(file: Path, dotted: str) -> bool:
    try:
        data = file.read_bytes()
        value: Any = tomllib.loads(data.decode()) if file.suffix == ".toml" else msgspec.json.decode(data)
    except (OSError, ValueError, msgspec.DecodeError):
        return False  # A broken file configures nothing; the tool itself will say what is wrong with it.
    for part in dotted.split("."):
        if not isinstance(value, dict) or part not in value:
            return False
        value = cast("dict[str, Any]", value)[part]
    return True
