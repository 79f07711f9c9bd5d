"""Findings and diagnostics: what an engine says, and what the runtime makes of it, as two types.

An engine returns a `Finding`. Dispatch stamps it with the engine's id, the runtime stamps `outOfScope`
once the step's effects are in; only then is it a `Diagnostic` (SPEC 3.11). Positions are 1-based and
columns count Unicode code points. The structs are also the wire form: camelCase, absent when None.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["error", "warning", "info"]

SEVERITY_ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}


class Finding(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one engine says about one place. An `engine_id` that the engine sets itself is discarded."""

    path: str | None
    severity: Severity
    message: str
    rule: str | None = None
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    engine_id: str | None = None


class Diagnostic(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A stamped finding. `engine_id` None marks a notice of the runtime itself, whose path may be None."""

    path: str | None
    severity: Severity
    message: str
    engine_id: str | None
    out_of_scope: bool
    rule: str | None = None
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


class Pending(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something that was not judged, and why. Never to be read as "clean".

    `path` None stands for the whole workspace; `engine_id` None for no particular engine.
    """

    reason: str
    path: str | None = None
    engine_id: str | None = None


def notice(
    message: str, *, severity: Severity = "info", path: str | None = None, rule: str | None = None
) -> Diagnostic:
    """A diagnostic of the runtime itself; `outOfScope` is stamped later like any other."""
    return Diagnostic(path=path, severity=severity, message=message, engine_id=None, out_of_scope=False, rule=rule)
