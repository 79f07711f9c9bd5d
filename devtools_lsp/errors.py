"""The error taxonomy: every refusal and failure that crosses a public boundary is one of these.

The tree (SPEC section 9)::

    DevToolsError
    ├── InvalidConfigError      E_INVALID_DEV_PIPELINE_CONFIG
    ├── UnknownStepError        E_DEV_UNKNOWN_STEP
    ├── BadArgumentError        E_DEV_BAD_ARG
    ├── EngineRequiredError     E_DEV_ENGINE_REQUIRED
    ├── StepUnavailableError    E_DEV_STEP_UNAVAILABLE
    ├── StepFailedError         E_DEV_STEP_FAILED
    ├── WorkspaceBoundsError    E_DEV_WORKSPACE_BOUNDS
    ├── PolicyError             E_DEV_POLICY
    ├── GateDeclinedError       E_DEV_GATE_DECLINED
    ├── ConflictError           E_DEV_CONFLICT
    ├── NotReadError            E_DEV_NOT_READ
    ├── ReadOnlyError           E_DEV_READ_ONLY
    ├── WaitTimeoutError        E_DEV_TIMEOUT
    └── CallCancelledError      E_DEV_CANCELLED

This module owns the codes, the reasons, the retry advice and the wire form. It knows nothing of JSON-RPC
framing and performs no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, TypedDict, get_args

JSON_RPC_CODE = -32050
"""The JSON-RPC error code that carries every `E_DEV_*` error in its `data`."""

Retry = Literal["no", "afterCorrection", "withLess", "yes"]
"""What the caller should do: give up, mend the call, ask for less, or simply try again."""

Reason = Literal[
    "notFound",
    "isDirectory",
    "notText",
    "noMatch",
    "ambiguous",
    "exists",
    "malformed",
    "notAcquired",
    "outsideRoot",
    "symlink",
    "protected",
    "stale",
    "dirtyInEditor",
    "noDecider",
    "denied",
    "expired",
    "notDecider",
    "pending",
]
"""The closed list of machine-readable reasons."""

REASONS: frozenset[str] = frozenset(get_args(Reason))


class Match(TypedDict):
    """One place where a find block or a hunk fits: `line` is 1-based."""

    path: str
    line: int


class DevToolsError(Exception):
    """Base of the taxonomy. `code` is stable; `message` is for a model or a person and says what to do.

    Optional fields are absent from the wire when None: `step`, `path` and `line` (1-based) say where,
    `paths` which files, `written` what had landed, `matches` the candidates, `alternatives` what exists
    instead, `note` what a person answered.
    """

    code: ClassVar[str] = "E_DEV_STEP_FAILED"
    default_retry: ClassVar[Retry] = "no"

    def __init__(
        self,
        message: str,
        *,
        reason: Reason | None = None,
        retry: Retry | None = None,
        step: str | None = None,
        path: str | None = None,
        line: int | None = None,
        paths: Sequence[str] | None = None,
        written: Sequence[Mapping[str, str]] | None = None,
        matches: Sequence[Match] | None = None,
        alternatives: Sequence[str] | None = None,
        note: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason: Reason | None = reason
        self.retry: Retry = retry or self.default_retry
        self.step = step
        self.path = path
        self.line = line
        self.paths = list(paths) if paths is not None else None
        self.written = [dict(entry) for entry in written] if written is not None else None
        self.matches = list(matches) if matches is not None else None
        self.alternatives = list(alternatives) if alternatives is not None else None
        self.note = note

    def at(self, *, step: str | None = None, path: str | None = None, line: int | None = None) -> Self:
        """Fill in where it happened, keeping what is already known; returns the same error for `raise`."""
        self.step = self.step if self.step is not None else step
        self.path = self.path if self.path is not None else path
        self.line = self.line if self.line is not None else line
        return self

    def to_wire(self) -> dict[str, Any]:
        """The `data` object of SPEC section 9: absent fields are left out, never null."""
        fields = {
            "code": self.code,
            "reason": self.reason,
            "message": self.message,
            "retry": self.retry,
            "step": self.step,
            "path": self.path,
            "line": self.line,
            "paths": self.paths,
            "written": self.written,
            "matches": self.matches,
            "alternatives": self.alternatives,
            "note": self.note,
        }
        return {key: value for key, value in fields.items() if value is not None}

    @staticmethod
    def from_wire(data: Mapping[str, Any]) -> DevToolsError:
        """Rebuild the error on a client. An unknown code becomes the base class with that code kept."""
        kind = _BY_CODE.get(str(data.get("code")), DevToolsError)
        keys = ("reason", "retry", "step", "path", "line", "paths", "written", "matches", "alternatives", "note")
        return kind(str(data.get("message", "")), **{key: data[key] for key in keys if key in data})


class InvalidConfigError(DevToolsError):
    """Construction failed; the message names the key and why."""

    code = "E_INVALID_DEV_PIPELINE_CONFIG"


class UnknownStepError(DevToolsError):
    """No such step or tool; `alternatives` lists those there are."""

    code = "E_DEV_UNKNOWN_STEP"


class BadArgumentError(DevToolsError):
    """An argument is missing, unknown or malformed, a path matches nothing, or a patch does not parse."""

    code = "E_DEV_BAD_ARG"
    default_retry = "afterCorrection"


class EngineRequiredError(DevToolsError):
    """No engine is configured for the step."""

    code = "E_DEV_ENGINE_REQUIRED"


class StepUnavailableError(DevToolsError):
    """This build or file system cannot do it; the message names the missing method."""

    code = "E_DEV_STEP_UNAVAILABLE"


class StepFailedError(DevToolsError):
    """An edit or patch does not apply, an engine broke down, or a write failed (`written`)."""

    code = "E_DEV_STEP_FAILED"
    default_retry = "afterCorrection"


class WorkspaceBoundsError(DevToolsError):
    """A bound was crossed; the message says which, by what file, and both numbers."""

    code = "E_DEV_WORKSPACE_BOUNDS"
    default_retry = "withLess"


class PolicyError(DevToolsError):
    """Refused by policy, containment, a symlink or a role; never says what lies outside the root."""

    code = "E_DEV_POLICY"


class GateDeclinedError(DevToolsError):
    """Denied, expired, or nobody to ask."""

    code = "E_DEV_GATE_DECLINED"


class ConflictError(DevToolsError):
    """Somebody else changed it since it was acquired or approved."""

    code = "E_DEV_CONFLICT"
    default_retry = "yes"


class NotReadError(DevToolsError):
    """`edit_file` on a file that this session has not read."""

    code = "E_DEV_NOT_READ"
    default_retry = "afterCorrection"


class ReadOnlyError(DevToolsError):
    """A mutating tool in read-only mode."""

    code = "E_DEV_READ_ONLY"


class WaitTimeoutError(DevToolsError):
    """A bounded wait ended; `written` says what had landed."""

    code = "E_DEV_TIMEOUT"
    default_retry = "yes"


class CallCancelledError(DevToolsError):
    """The caller cancelled; `written` says what had landed."""

    code = "E_DEV_CANCELLED"
    default_retry = "yes"


_BY_CODE: dict[str, type[DevToolsError]] = {kind.code: kind for kind in DevToolsError.__subclasses__()}
