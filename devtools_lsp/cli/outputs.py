"""What each command prints with `--json`, as data: the reference page is written from it, and a test compares.

Keys of objects only; what stands behind them is the wire's business (SPEC 3.12, 8.0.5, 8.0.8).
"""

from __future__ import annotations

from dataclasses import dataclass

_RESULT = (
    "plan", "diagnostics", "changes", "reads", "written", "unwritten", "unreadable", "normalized", "ok",
    "lineCountsAvailable", "atomic", "engines", "summary", "counts", "truncated", "artifact",
)  # fmt: skip
_APPROVAL = (
    "id", "plan", "stepIndex", "step", "agent", "args", "targets", "mayCreate", "engines", "files", "normalized",
    "introduced", "resolved", "pending", "rememberText", "expiresAt",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Output:
    """`keys` are always there, `optional` ones when they have something to say. `form` is what they are keys of."""

    keys: tuple[str, ...]
    optional: tuple[str, ...] = ()
    form: str = "an object"
    words: str = ""


OUTPUTS: dict[str, Output] = {
    "call": Output(_RESULT, ("delta", "decision", "content", "data"), words="The call's result."),
    "plan": Output(_RESULT, ("delta", "decision"), words="The plan's result."),
    "undo": Output(_RESULT, ("delta", "decision"), words="What was taken back."),
    "tools": Output(("name", "description", "inputSchema", "annotations"), form="a list of objects"),
    "status": Output(
        ("root", "version", "pid", "uptime_s", "engines", "editors", "agents", "pendingApprovals", "gate", "stateDir",
         "skipped"),
        ("watching",),
        words="`watching` [{name, version}] are the terminals in `approvals --watch`, when there are any: with the "
        "editors they are who can be asked.",
    ),
    "stop": Output(("stop",), words="`stopped`, `notRunning`, or `terminated` or `killed` when it had to be."),
    "approvals": Output(
        _APPROVAL, ("truncated",), "a list of objects", "With `--watch` one object a line, as each comes."
    ),
    "approve": Output(
        ("id", "status", "applied", "by"),
        ("rule", "ruleFile"),
        words="`applied` false: somebody was first, or it had ended. `rule` with `--remember`: the TOML that keeps it "
        "for good in the file `ruleFile`, null where none can say it.",
    ),
    "deny": Output(("id", "status", "applied", "by")),
    "log": Output(
        ("time", "event", "plan"),
        ("step", "agent", "verdict", "by", "paths", "morePaths"),
        "one object a line",
        "`event` is gate, approval, landed, failed, or engine, whose id is `by`; `morePaths` counts what `paths` "
        "leaves out.",
    ),
    "init": Output(
        ("path", "engines", "interpreter"),
        ("text",),
        words="`interpreter` is null when none was found; `text` with `--dry-run`: what would be written.",
    ),
    "doctor": Output(("root", "checks"), words="`checks` [{name, ok, message, remedy?}]; exit code 2 unless all are."),
}  # fmt: skip
"""Commands that are not here print no JSON: serve, mcp, stdio and demo."""
