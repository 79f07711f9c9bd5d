"""What of a result stands in the reply to an agent, and how it reads as text (SPEC 7.5).

A reply is the result with `summary`, `counts`, `truncated` and `artifact` added, cut to a token budget. One token is
taken to be 4 bytes of the reply's JSON; the fixed members may take `ENVELOPE_TOKENS` beyond the budget, and the
text of `reads` does not count, since the caller chose its size. What is cut is counted in `omitted` and said in
the summary's words; the artifact has all of it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from devtools_lsp.agent.artifacts import SpooledJsonArtifact
from devtools_lsp.agent.forge import ToolAnswer
from devtools_lsp.core.diagnostics import SEVERITY_ORDER, Diagnostic
from devtools_lsp.core.refusal import advice, known_lines
from devtools_lsp.core.result import Result
from devtools_lsp.core.summary import change_line
from devtools_lsp.errors import DevToolsError

BYTES_PER_TOKEN = 4
ENVELOPE_TOKENS = 500
"""What identifiers, counts, the words about omissions and the artifact's handle may take beyond the budget."""

_LONGEST_MESSAGE = 600
_LONGEST_NOTE = 1000
_SUMMARY_SHARE = 0.2
_STRUCTURE_SHARE = 0.5
"""Until the diagnostics have had their turn, lists of files take no more than this of the budget."""


def render_answer(answer: ToolAnswer, artifact: SpooledJsonArtifact, *, inline_tokens: int) -> dict[str, Any]:
    """The reply to a tool's call: `render_reply` of its result, with the `content` and `data` of workspace tools."""
    reply = render_reply(answer.result, artifact, inline_tokens=inline_tokens)
    if answer.content is not None:
        reply["content"] = answer.content
    if answer.data is not None:
        reply["data"] = dict(answer.data)
    return reply


def render_reply(result: Result, artifact: SpooledJsonArtifact, *, inline_tokens: int) -> dict[str, Any]:
    """The reply to `devtools/call`, as plain data with the wire's names.

    Diagnostics come errors first, and among the errors and the rest those that the plan introduced. Whole when it
    fits; else `truncated` is true and `omitted` counts by member what is not there.
    """
    budget = max(0, inline_tokens) * BYTES_PER_TOKEN
    ordered = _by_urgency(result)
    counts = _counts(result.diagnostics)
    if len(result.diagnostics) * 40 <= budget:
        whole = result.to_wire()
        whole["diagnostics"] = msgspec.to_builtins(ordered)
        lines = [change_line(change) for change in result.changes]
        whole |= _extras(_summary(result, counts, lines, {}), counts, artifact, truncated=False)
        if _cost(whole) - _reads_cost(whole) <= budget:
            return whole
    return _Cut(result, ordered, counts, budget).reply(artifact)


def render_text(reply: Mapping[str, Any]) -> str:
    """A reply as compact text, for MCP's text content and for terminals."""
    lines: list[str] = [str(reply["summary"]), *decision_lines(reply.get("decision"))]
    if reply.get("content"):
        lines.append(str(reply["content"]).removesuffix("\n"))
    delta: Mapping[str, Any] = reply.get("delta") or {}
    introduced = [_place_key(item) for item in delta.get("introduced", ())]
    for item in reply["diagnostics"]:
        mark = " (new)" if _place_key(item) in introduced else ""
        lines.append(_diagnostic_line(item) + mark)
    shown = [_place_key(item) for item in reply["diagnostics"]]
    lines += [
        _diagnostic_line(item) + " (new)" for item in delta.get("introduced", ()) if _place_key(item) not in shown
    ]
    lines += [f"resolved: {_diagnostic_line(item)}" for item in delta.get("resolved", ())]
    for item in delta.get("pending", ()):
        lines.append(f"not judged: {item.get('path') or 'workspace'}: {item['reason']}")
    for key, read in reply["reads"].items():
        lines.append(f"--- {key} lines {read['start']}-{read['end']} of {read['totalLines']}")
        lines.append(str(read["text"]).removesuffix("\n"))
    return "\n".join(lines) + "\n"


def reply_text(reply: Mapping[str, Any]) -> str:
    """A reply as a model reads it: a workspace tool's own content, else the rendered reply."""
    content = reply.get("content")
    if content is None:
        return render_text(reply)
    return str(content) + "".join(f"{line}\n" for line in decision_lines(reply.get("decision")))


def refusal_text(error: DevToolsError) -> str:
    """An error in words, complete for whoever shows a model nothing but text."""
    reason = f" ({error.reason})" if error.reason else ""
    return "\n".join([f"{error.code}{reason}: {error.message}", *known_lines(error), advice(error)])


def decision_lines(decision: Mapping[str, Any] | None) -> list[str]:
    """What a person did beyond approving, in at most one line: none when they took the step as it was."""
    if decision is None:
        return []
    parts = [
        f"{title} {', '.join(decision[name])}"
        for name, title in (("edited", "changed"), ("dropped", "left out"))
        if decision[name]
    ]
    if decision.get("note"):
        parts.append(f"says: {decision['note']}")
    return [f"approved by {decision['by']}, who {'; '.join(parts)}"] if parts else []


# -- order and counts --------------------------------------------------------------------------------------------


def _by_urgency(result: Result) -> list[Diagnostic]:
    introduced = set(result.delta.introduced) if result.delta is not None else set[Diagnostic]()
    return sorted(
        result.diagnostics,
        key=lambda item: (_urgency(item, new=item in introduced), item.path or "", item.line or 0, item.column or 0),
    )


def _urgency(item: Diagnostic, *, new: bool) -> int:
    """0 introduced error, 1 error, 2 and 3 introduced warning and notice, 4 and 5 the others."""
    rank = SEVERITY_ORDER[item.severity]
    if rank == 0:
        return 0 if new else 1
    return rank + 1 if new else rank + 3


def _counts(diagnostics: Sequence[Diagnostic]) -> dict[str, int]:
    counts = {"error": 0, "warning": 0, "info": 0}
    for item in diagnostics:
        counts[item.severity] += 1
    return counts


def _cost(value: object) -> int:
    return len(msgspec.json.encode(value))


def _reads_cost(reply: Mapping[str, Any]) -> int:
    return _cost(reply["reads"])


# -- words -------------------------------------------------------------------------------------------------------


def _summary(result: Result, counts: Mapping[str, int], changes: Sequence[str], omitted: Mapping[str, int]) -> str:
    judged = result.delta is not None or any(counts.values())
    found = [_plural(number, name) for name, number in counts.items() if number]
    found = found or ["no findings" if judged else "nothing was linted or checked"]
    status = "ok" if result.ok else "done, with errors"
    if result.ok and result.delta is not None and result.delta.pending:
        status = "not fully judged"
    lines = [f"{status}: {_plural(len(result.changes), 'file')} changed, {', '.join(found)}"]
    if result.delta is not None:
        delta = result.delta
        lines[0] += f"; introduced {len(delta.introduced)}, resolved {len(delta.resolved)}, unchanged {delta.unchanged}"
        if delta.pending:
            lines.append(f"not judged: {_plural(len(delta.pending), 'item')} (pending, not clean)")
    if result.unwritten:
        lines.append(f"not written to disk: {_plural(len(result.unwritten), 'file')}")
    lines += changes
    left_out = [f"{number:,} {_WORDS.get(name, name)}" for name, number in omitted.items()]
    if left_out:
        lines.append(f"left out here, whole in the artifact: {', '.join(left_out)}")
    return "\n".join(lines)


_WORDS = {
    "delta.introduced": "introduced findings",
    "delta.resolved": "resolved findings",
    "delta.pending": "unjudged items",
    "messages": "messages cut short",
    "summary": "lines of the change summary",
    "normalized": "normalized files",
    "unwritten": "unwritten files",
    "unreadable": "unreadable files",
    "written": "written files",
    "decision": "parts of the decision",
}


def _plural(number: int, name: str) -> str:
    return f"{number:,} {name}" if number == 1 or name == "info" else f"{number:,} {name}s"


def _extras(
    summary: str, counts: Mapping[str, int], artifact: SpooledJsonArtifact, *, truncated: bool
) -> dict[str, Any]:
    return {
        "summary": summary,
        "counts": dict(counts),
        "truncated": truncated,
        "artifact": {"handle": artifact.handle, "total": artifact.total},
    }


def _place_key(item: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(item.get(name) for name in ("path", "line", "column", "engineId", "rule", "message"))


def _diagnostic_line(item: Mapping[str, Any]) -> str:
    where = str(item.get("path") or "workspace")
    if item.get("line") is not None:
        where += f":{item['line']}" + (f":{item['column']}" if item.get("column") is not None else "")
    rule = f" {item['rule']}" if item.get("rule") else ""
    return f"{where}: {item['severity']}{rule}: {item['message']} [{item.get('engineId') or 'devtools-lsp'}]"


# -- cutting -----------------------------------------------------------------------------------------------------


class _Cut:
    """A result that does not fit: takes what is most urgent until the budget is spent, and counts the rest."""

    def __init__(self, result: Result, ordered: Sequence[Diagnostic], counts: Mapping[str, int], budget: int) -> None:
        self._result = result
        self._ordered = ordered
        self._counts = counts
        self._budget = budget
        self._left = budget
        self._omitted: dict[str, int] = {}

    def reply(self, artifact: SpooledJsonArtifact) -> dict[str, Any]:
        """The cut reply."""
        result = self._result
        summary_lines = self._summary_lines()
        decision = self._decision()
        floor = int(self._budget * (1 - _STRUCTURE_SHARE))
        lists: dict[str, list[Any]] = {}
        for name in ("unwritten", "unreadable", "written", "changes", "normalized", "engines"):
            lists[name] = self._take(getattr(result, name), floor=floor)
        delta = result.delta
        new = set(delta.introduced) if delta is not None else set[Diagnostic]()
        new_errors = sum(1 for item in self._ordered if item.severity == "error" and item in new)
        errors = self._counts["error"]
        diagnostics = self._take(self._ordered[:new_errors], clip=True)
        introduced = self._take(_by_severity(delta.introduced), clip=True) if delta is not None else []
        if len(diagnostics) == new_errors:
            diagnostics += self._take(self._ordered[new_errors:errors], clip=True)
        gone = _by_severity(delta.resolved) if delta is not None else []
        mended = sum(1 for item in gone if item.severity == "error")
        # That an error went is what the call was made for; that an old warning stays is not.
        resolved = self._take(gone[:mended], clip=True)
        if len(diagnostics) == errors:
            diagnostics += self._take(self._ordered[errors:], clip=True)
        if len(resolved) == mended:
            resolved += self._take(gone[mended:], clip=True)
        pending = self._take(delta.pending) if delta is not None else []
        for name, taken in lists.items():
            taken += self._take(getattr(result, name)[len(taken) :])
            self._note(name, len(getattr(result, name)) - len(taken))
        self._note("diagnostics", len(self._ordered) - len(diagnostics))
        reply: dict[str, Any] = {
            "plan": result.plan,
            "diagnostics": diagnostics,
            **lists,
            "reads": msgspec.to_builtins(result.reads),
            "ok": result.ok,
            "lineCountsAvailable": result.line_counts_available,
            "atomic": result.atomic,
        }
        if delta is not None:
            self._note("delta.introduced", len(delta.introduced) - len(introduced))
            self._note("delta.resolved", len(delta.resolved) - len(resolved))
            self._note("delta.pending", len(delta.pending) - len(pending))
            reply["delta"] = {
                "introduced": introduced,
                "resolved": resolved,
                "unchanged": delta.unchanged,
                "pending": pending,
            }
        if decision is not None:
            reply["decision"] = decision
        summary = _summary(result, self._counts, summary_lines, self._omitted)
        reply |= _extras(summary, self._counts, artifact, truncated=bool(self._omitted))
        return reply | {"omitted": self._omitted} if self._omitted else reply

    def _note(self, name: str, number: int) -> None:
        if number > 0:
            self._omitted[name] = self._omitted.get(name, 0) + number

    def _spend(self, value: object, floor: int = 0) -> bool:
        cost = _cost(value) + 1
        if self._left - cost < floor:
            return False
        self._left -= cost
        return True

    def _take(self, items: Sequence[Any], *, floor: int = 0, clip: bool = False) -> list[Any]:
        """The first items that fit, as plain data; stops at the first that does not, so that order is priority."""
        taken: list[Any] = []
        for item in items:
            plain = msgspec.to_builtins(item)
            if clip and len(plain["message"]) > _LONGEST_MESSAGE:
                hidden = len(plain["message"]) - _LONGEST_MESSAGE
                plain["message"] = f"{plain['message'][:_LONGEST_MESSAGE]}… ({hidden:,} more characters)"
                if not self._spend(plain, floor):
                    break
                self._note("messages", 1)
            elif not self._spend(plain, floor):
                break
            taken.append(plain)
        return taken

    def _summary_lines(self) -> list[str]:
        floor = int(self._budget * (1 - _SUMMARY_SHARE))
        lines: list[str] = []
        for change in self._result.changes:
            line = change_line(change)
            if not self._spend(line, floor):
                break
            lines.append(line)
        self._note("summary", len(self._result.changes) - len(lines))
        return lines

    def _decision(self) -> dict[str, Any] | None:
        decision = self._result.decision
        if decision is None:
            return None
        plain: dict[str, Any] = msgspec.to_builtins(decision)
        if decision.note is not None and len(decision.note) > _LONGEST_NOTE:
            plain["note"] = decision.note[:_LONGEST_NOTE] + "…"
            self._note("decision", 1)
        if self._spend(plain):
            return plain
        self._note("decision", len(decision.edited) + len(decision.dropped) + (decision.note is not None))
        return {"approved": decision.approved, "edited": [], "dropped": [], "by": decision.by[:100]}


def _by_severity(findings: Sequence[Diagnostic]) -> list[Diagnostic]:
    return sorted(findings, key=lambda item: SEVERITY_ORDER[item.severity])
