"""What an embedder declares of its engines, judged when the pipeline is built (SPEC 3.0.2, 6.1).

An engine is plain data, and data may be anything: whatever would make a later call stumble is refused here by name.
Runs nothing of an engine.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from devtools_lsp.errors import BadArgumentError, InvalidConfigError
from devtools_lsp.paths import PathPattern
from devtools_lsp.ports import Capability, DevEngine

_NEEDS = frozenset({"delete", "rename", "mkdir"})
_FLAGS = ("generates", "fixable", "in_place")


def check_engine(engine: object) -> DevEngine:
    """An engine whose data is sound; raises InvalidConfigError that names the engine and the field."""
    if not isinstance(engine, DevEngine) or not isinstance(engine.id, str) or not engine.id:  # pyright: ignore[reportUnnecessaryIsInstance] -- embedders
        raise InvalidConfigError(f"engines: every engine is a DevEngine with a non-empty string as id, not {engine!r}")
    for kind, capabilities in (("formats", engine.formats), ("lints", engine.lints), ("checks", engine.checks)):
        where = f"engines.{engine.id}.{kind}"
        for capability in _entries(where, capabilities, "Capability"):
            _check_capability(where, capability)
    if engine.describe is not None and not callable(engine.describe):
        raise InvalidConfigError(f"engines.{engine.id}.describe must be a function without arguments")
    return engine


def _check_capability(where: str, capability: object) -> None:
    if not isinstance(capability, Capability):
        raise InvalidConfigError(f"{where}: every entry is a Capability, not {capability!r}")
    if not callable(capability.run):
        raise InvalidConfigError(f"{where}: run must be an async function of one EngineCall")
    if capability.compare is not None and not callable(capability.compare):
        raise InvalidConfigError(f"{where}: compare must be an async function of one EngineCall")
    for flag in _FLAGS:
        if not isinstance(getattr(capability, flag), bool):
            raise InvalidConfigError(f"{where}: {flag} must be true or false, not {getattr(capability, flag)!r}")
    for extension in _strings(f"{where}: extensions", capability.extensions):
        if extension != extension.lower() or extension.startswith("."):
            raise InvalidConfigError(f"{where}: extensions are lower-case without the dot, not {extension!r}")
    unknown = sorted(set(_strings(f"{where}: needs", capability.needs)) - _NEEDS)
    if unknown:
        raise InvalidConfigError(f"{where}: needs has {unknown[0]!r}; it may hold {', '.join(sorted(_NEEDS))}")
    _check_patterns(f"{where}: scope", capability.scope)
    _check_patterns(f"{where}: creates", capability.creates)
    if capability.in_place and not capability.scope:
        raise InvalidConfigError(f"{where}: an in-place engine needs a non-empty scope")
    if capability.generates and not capability.creates and not capability.in_place:
        raise InvalidConfigError(f"{where}: an engine that generates needs `creates` patterns")


def _check_patterns(where: str, patterns: object) -> None:
    for pattern in _strings(where, patterns):
        try:
            PathPattern.parse(pattern)
        except BadArgumentError as error:
            raise InvalidConfigError(f"{where}: {error.message}") from None


def _strings(where: str, value: object) -> list[str]:
    found: list[str] = []
    for entry in _entries(where, value, "string"):
        if not isinstance(entry, str):
            raise InvalidConfigError(f"{where} holds {entry!r}, which is no string")
        found.append(entry)
    return found


def _entries(where: str, value: object, of: str) -> list[object]:
    """The entries of a collection; one string is a mistake for a list of one, and not a list of its letters."""
    if not isinstance(value, tuple | list | set | frozenset):
        raise InvalidConfigError(f"{where} must be a collection, one {of} an entry, not {value!r}")
    return list(cast("Collection[object]", value))
