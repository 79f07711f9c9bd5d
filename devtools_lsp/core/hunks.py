"""A proposal's diff as people see it and choose from it: hunks with stable ids (SPEC 8.0.8, 8.0.10).

Owns how line runs become hunks and unified diffs, and how a person's choice of hunks becomes text again. Lines
are 1-based as in unified diffs; a start of 0 with 0 lines means "before the first line". Which files there are,
and what is asked of whom, is not known here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence

from devtools_lsp.core.changeset import FileChange, Hunk
from devtools_lsp.core.linediff import LineRun, lines_of, runs_between, runs_of_spans
from devtools_lsp.core.quoting import quote_name
from devtools_lsp.errors import BadArgumentError
from devtools_lsp.text import Span, apply_spans, to_lf

NO_NEWLINE = "\\ No newline at end of file"
"""What stands below a line that does not end with a line break."""

_HEADER = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")


# -- from texts to hunks -----------------------------------------------------------------------------------------


def hunks_between(old: str, new: str, *, path: str, context: int = 3) -> list[Hunk]:
    """The hunks that turn one text into another; `path` makes their ids unique across files."""
    return _hunks(old, runs_between(old, new), path, context)


def hunks_from_spans(old: str, spans: Sequence[Span], *, path: str, context: int = 3) -> list[Hunk]:
    """The hunks of sorted, non-overlapping spans, without comparing whole texts."""
    return _hunks(old, runs_of_spans(old, spans), path, context)


def _hunks(old: str, runs: Sequence[LineRun], path: str, context: int) -> list[Hunk]:
    hunks: list[Hunk] = []
    group: list[LineRun] = []
    for run in runs:
        if group and run.line - (group[-1].line + len(group[-1].old)) > 2 * context:
            hunks.append(_hunk(old, group, path, context))
            group = []
        group.append(run)
    if group:
        hunks.append(_hunk(old, group, path, context))
    return hunks


def _hunk(old: str, group: Sequence[LineRun], path: str, context: int) -> Hunk:
    first, last = group[0], group[-1]
    before = _lines_before(old, first.start, context)
    after = _lines_after(old, last.end, context)
    body = [_body(" ", before)]
    kept = len(before) + len(after)
    position = first.start
    for run in group:
        between = lines_of(old[position : run.start])
        kept += len(between)
        body += (_body(" ", between), _body("-", run.old), _body("+", run.new))
        position = run.end
    body.append(_body(" ", after))
    old_lines = kept + sum(len(run.old) for run in group)
    new_lines = kept + sum(len(run.new) for run in group)
    old_start = first.line - len(before) + (1 if old_lines else 0)
    new_start = first.new_line - len(before) + (1 if new_lines else 0)
    text = "".join(body)
    return Hunk(
        id=_identity(path, old_start, text),
        old_start=old_start,
        old_lines=old_lines,
        new_start=new_start,
        new_lines=new_lines,
        text=text,
    )


def _identity(path: str, start: int, text: str) -> str:
    """Derived from what the hunk is, so that the same proposal has the same ids wherever it is computed."""
    seed = f"{path}\0{start}\0{text}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(seed).hexdigest()[:16]


def _body(sign: str, lines: Sequence[str]) -> str:
    return "".join(sign + line if line.endswith("\n") else f"{sign}{line}\n{NO_NEWLINE}\n" for line in lines)


def _lines_before(text: str, offset: int, count: int) -> list[str]:
    """At most `count` whole lines that end at an offset, which starts a line."""
    lines: list[str] = []
    while offset > 0 and len(lines) < count:
        start = text.rfind("\n", 0, offset - 1) + 1
        lines.append(text[start:offset])
        offset = start
    lines.reverse()
    return lines


def _lines_after(text: str, offset: int, count: int) -> list[str]:
    """At most `count` whole lines that begin at an offset, which starts a line."""
    lines: list[str] = []
    while offset < len(text) and len(lines) < count:
        boundary = text.find("\n", offset)
        end = len(text) if boundary < 0 else boundary + 1
        lines.append(text[offset:end])
        offset = end
    return lines


def changed_ranges(old: str, new: str | Sequence[Span]) -> list[tuple[int, int]]:
    """The 1-based inclusive line ranges of the new text that changed, given the new text or the spans.

    A pure deletion gives the line that stands where the deleted ones were (the last one after a deletion at the
    end), so that every change can be shown.
    """
    runs = runs_between(old, new) if isinstance(new, str) else runs_of_spans(old, new)
    ranges: list[tuple[int, int]] = []
    for run in runs:
        if run.new:
            start, end = run.new_line + 1, run.new_line + len(run.new)
        else:
            start = end = max(1, run.new_line if run.end == len(old) else run.new_line + 1)
        if ranges and start <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(end, ranges[-1][1]))
        else:
            ranges.append((start, end))
    return ranges


# -- from hunks to a unified diff --------------------------------------------------------------------------------


def render_unified(changes: Sequence[FileChange]) -> str:
    """The whole proposal as one git-style diff; every file has its header, also one that is only moved."""
    return "".join(_render_file(change) for change in changes)


def _render_file(change: FileChange) -> str:
    before, after = change.from_ or change.path, change.path
    lines = [f"diff --git {quote_name('a/' + before)} {quote_name('b/' + after)}"]
    old_name, new_name = _header_name("a/" + before), _header_name("b/" + after)
    if change.kind == "added":
        lines.append("new file mode 100644")
        old_name = "/dev/null"
    elif change.kind == "deleted":
        lines.append("deleted file mode 100644")
        new_name = "/dev/null"
    elif change.kind == "renamed":
        lines += (f"rename from {quote_name(before)}", f"rename to {quote_name(after)}")
    if change.hunks:
        lines += (f"--- {old_name}", f"+++ {new_name}")
    return "\n".join(lines) + "\n" + "".join(hunk_header(hunk) + "\n" + hunk.text for hunk in change.hunks)


def hunk_header(hunk: Hunk) -> str:
    """The `@@` line of a hunk."""
    return f"@@ -{_extent(hunk.old_start, hunk.old_lines)} +{_extent(hunk.new_start, hunk.new_lines)} @@"


def _extent(start: int, count: int) -> str:
    return str(start) if count == 1 else f"{start},{count}"


def _header_name(name: str) -> str:
    """As git does, a name with blanks gets a tab behind it, so that no reader takes its end for a time stamp."""
    quoted = quote_name(name)
    return quoted + "\t" if " " in quoted else quoted


# -- from a person's choice to text ------------------------------------------------------------------------------


def choose_hunks(old: str, hunks: Sequence[Hunk], *, dropped: Collection[str], edited: Mapping[str, str]) -> str:
    """The text after a person dropped some hunks and replaced the bodies of others.

    Raises BadArgumentError like `choose_spans`.
    """
    return apply_spans(old, choose_spans(old, hunks, dropped=dropped, edited=edited))


def choose_spans(old: str, hunks: Sequence[Hunk], *, dropped: Collection[str], edited: Mapping[str, str]) -> list[Span]:
    """The spans of `old` that the chosen hunks replace; ids of other files' hunks are no business of this call.

    `hunks` are those computed for `old`, in order. `edited` maps hunk ids to unified-diff bodies, with or without
    their `@@` line. A body must still hold the hunk's old lines (those with a blank or `-`, in order; trailing
    blanks may have been lost on the way); added lines are free. Raises BadArgumentError (`malformed`) with the
    line in the body when it does not, and when a hunk is both dropped and edited.
    """
    spans: list[Span] = []
    offset, line = 0, 1
    for hunk in hunks:
        if hunk.id in dropped and hunk.id in edited:
            raise BadArgumentError(f"hunk {hunk.id} is both dropped and edited; choose one", reason="malformed")
        if hunk.id in dropped:
            continue
        first = hunk.old_start if hunk.old_lines else hunk.old_start + 1
        offset = _offset_of_line(old, offset, line, first)
        line = first
        spans += _body_spans(old, offset, hunk, edited.get(hunk.id))
    return spans


def _offset_of_line(text: str, offset: int, line: int, wanted: int) -> int:
    """The offset of 1-based line `wanted`, counting on from a line whose offset is known."""
    for _ in range(wanted - line):
        boundary = text.find("\n", offset)
        if boundary < 0:
            return len(text)
        offset = boundary + 1
    return offset


def _body_spans(old: str, offset: int, hunk: Hunk, body: str | None) -> list[Span]:
    expected = _lines_after(old, offset, hunk.old_lines)
    rows = _rows(hunk.id, hunk.text if body is None else body)
    spans: list[Span] = []
    run_start, position, taken = offset, offset, 0
    added: list[str] = []

    def close_run() -> None:
        if position > run_start or added:
            # A line added below a last line without a line break must not run into it.
            opened = run_start == len(old) > 0 and not old.endswith("\n")
            spans.append(Span(run_start, position, ("\n" if opened else "") + "".join(added)))

    for number, sign, content in rows:
        if sign == "+":
            added.append(content)
            continue
        if taken == len(expected) or content.rstrip() != expected[taken].rstrip():
            held = repr(expected[taken].rstrip("\n")) if taken < len(expected) else "nothing more"
            raise BadArgumentError(
                f"line {number} of hunk {hunk.id} is not what the file has there ({held}): keep the lines that start "
                "with a blank or '-'; to keep a line turn its '-' into a blank, to remove one turn its blank into '-'",
                reason="malformed",
                line=number,
            )
        following = position + len(expected[taken])
        taken += 1
        if sign == " ":
            close_run()
            added = []
            run_start = following
        position = following
    close_run()
    if taken < len(expected):
        raise BadArgumentError(
            f"hunk {hunk.id} has lost the old line {expected[taken].rstrip()!r}: put it back with a blank or a '-' "
            "before it",
            reason="malformed",
            line=len(rows) + 1,
        )
    _refuse_open_line(old, spans, hunk.id)
    return spans


def _rows(hunk_id: str, body: str) -> list[tuple[int, str, str]]:
    """A body's lines as (1-based line in the body, sign, content with its line break)."""
    rows: list[tuple[int, str, str]] = []
    lines = to_lf(body).split("\n")
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, 1):
        if number == 1 and _HEADER.match(line):
            continue
        if line.startswith("\\"):
            if not rows:
                raise BadArgumentError(
                    f"line {number} of hunk {hunk_id}: {NO_NEWLINE!r} belongs below a line",
                    reason="malformed",
                    line=number,
                )
            above = rows[-1]
            rows[-1] = (above[0], above[1], above[2].removesuffix("\n"))
        elif line[:1] in ("", " ", "-", "+"):
            rows.append((number, line[:1] or " ", line[1:] + "\n"))
        else:
            raise BadArgumentError(
                f"line {number} of hunk {hunk_id} starts with {line[0]!r}: every line starts with a blank (kept), "
                "'-' (removed) or '+' (added)",
                reason="malformed",
                line=number,
            )
    return rows


def _refuse_open_line(old: str, spans: Sequence[Span], hunk_id: str) -> None:
    """A line without a line break may only be the text's last one; anywhere else two lines would run together."""
    for span in spans:
        lines = span.replacement
        if lines and not lines.endswith("\n") and span.end < len(old):
            raise BadArgumentError(
                f"hunk {hunk_id}: {NO_NEWLINE!r} stands below a line that is not the last of the file; remove it",
                reason="malformed",
            )
