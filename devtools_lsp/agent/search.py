"""glob and grep over a workspace: what matches, and what was not looked at.

Runs ripgrep where there is one. Owns what a search may see (never outside the root, never what policy denies), the
limits and the wording of the answer. Asks no gate: whoever calls has asked. A search never follows links, except
that a `path` which is a link is resolved first (`search_place.py`) and must stay inside; given `sight`, what was found
is looked at again before it is shown (`search_sight.py`), because a program can be led out by a swapped name.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from devtools_lsp.agent.search_found import FoundLines, FoundPaths, Judge
from devtools_lsp.agent.search_output import MatchedLine, SkipReason
from devtools_lsp.agent.search_place import SEARCH_STEP, Deny, Place, locate, relative_pattern
from devtools_lsp.agent.search_process import Outcome, Program, Query, run
from devtools_lsp.agent.search_rules import Glob, anywhere
from devtools_lsp.agent.search_sight import Sight, confirmed
from devtools_lsp.errors import BadArgumentError, CallCancelledError
from devtools_lsp.ports import Cancellation

_CLASS_OR_ESCAPE = re.compile(
    r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\(?:x\{[^}]*\}|x[0-9a-fA-F]{2}|o\{[^}]*\}|u[0-9a-fA-F]{4}|[0-7]{3}|.)", re.DOTALL
)
_LINE_FEED = re.compile(r"\\(?:n|R|x0[aA]|x\{0*[aA]\}|u000[aA]|012|o\{0*12\})")
"""A line break, as a regular expression may spell it."""

_ESCAPE = re.compile(r"\\(?:x\{[^}]*\}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_CARRIAGE_RETURN = re.compile(r"\\(?:r|x0[dD]|x\{0*[dD]\})")

_REFUSED = 2
"""The exit status of a program that does not understand the question; also of one that could not read something."""

_WORDS: dict[SkipReason, str] = {
    "ignored": "ignored by .gitignore",
    "dependencies": "dependencies, build output or caches",
    "binary": "binary",
    "oversized": "too large",
    "unreadable": "unreadable",
}


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Bounds of one search: lines and paths shown, bytes of a line shown, bytes of a file searched, seconds."""

    max_matches: int = 200
    max_paths: int = 500
    max_line_bytes: int = 400
    max_file_bytes: int = 2 * 1024 * 1024
    timeout_s: float = 20.0


DEFAULT_LIMITS = SearchLimits()


@dataclass(frozen=True, slots=True)
class GrepResult:
    """`content` for a model; `data` {matches: [{path, line, text, column?, cut?}], total, files, truncated, engine,
    skipped, notes} for a program.

    `line` and `column` are 1-based, columns in code points; `cut` marks a long line of which only the start is
    there. `total` counts what was collected before the cap; `truncated` says that there is more than shown.
    `skipped` counts places by reason, a directory once.
    """

    content: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class GlobResult:
    """`content` for a model; `data` {paths, total, truncated, engine, skipped, notes} for a program."""

    content: str
    data: dict[str, Any]


def _spells_line_break(pattern: str) -> bool:
    """Whether a regular expression asks for a line break, which no line holds; `[^\\n]` only excludes one."""
    return any(_LINE_FEED.fullmatch(token[0]) for token in _CLASS_OR_ESCAPE.finditer(pattern))


def _names_carriage_return(pattern: str) -> bool:
    """Whether a pattern is to see the carriage return before a line feed, which is else no part of a line."""
    return "\r" in pattern or any(_CARRIAGE_RETURN.fullmatch(token[0]) for token in _ESCAPE.finditer(pattern))


async def grep(
    root: str,
    pattern: str,
    *,
    path: str | None = None,
    glob: str | None = None,
    case_insensitive: bool = False,
    limits: SearchLimits = DEFAULT_LIMITS,
    deny: Deny | None = None,
    sight: Sight | None = None,
    signal: Cancellation | None = None,
    program: Program | None = None,
) -> GrepResult:
    """Lines that match a regular expression, ordered by path and line.

    `path` narrows to a file or directory and is searched even where it is ignored; `glob` filters files, by name
    when it has no slash, else relative to the root or to `path`. Raises BadArgumentError for a pattern or path that
    makes no sense, PolicyError for one that may not be looked at, CallCancelledError.
    """
    if not pattern or "\n" in pattern or "\0" in pattern or _spells_line_break(pattern):
        raise BadArgumentError(
            "pattern: give a regular expression for a single line; it cannot be empty or hold a line break or NUL",
            step=SEARCH_STEP,
            reason="malformed",
        )
    wanted = _parsed(anywhere, glob) if glob is not None else None
    prefix = wanted.literal_prefix if wanted is not None and path is None else ()
    place = await asyncio.to_thread(locate, root, path, prefix, deny)
    judge = Judge(place, deny)
    found = FoundLines(place, judge, wanted, limits.max_matches)
    if place.missing:
        outcome = Outcome(program or "ripgrep", tells=True)
    else:
        query = Query(
            root=place.root,
            base=place.base,
            pattern=pattern,
            case_insensitive=case_insensitive,
            honour_ignores=place.honour_ignores,
            parent_rules=place.parent_rules,
            file_names=tuple((wanted.file_names() if wanted is not None else None) or ()),
            crlf=not _names_carriage_return(pattern),
            max_file_bytes=limits.max_file_bytes,
            # ripgrep counts the line end, too.
            max_line_bytes=limits.max_line_bytes + 2,
            timeout_s=limits.timeout_s,
        )
        outcome = await run(query, found.consume, found.skipped, signal=signal, program=program)
    _raise_complaint(outcome, pattern)
    shown = found.first(limits.max_matches, limits.max_line_bytes)
    notes = _cap_notes(len(shown), found.total, outcome, "matching line", limits)
    gone = 0
    if sight is not None:
        still = await confirmed(sight, shown)
        gone = len(shown) - len(still)
        notes += _gone_notes(gone, "matching line")
        shown, deny = still, await _blind_to(sight, outcome, deny)
    lines = [_grep_line(name, match) for name, match in shown]
    notes += _skip_notes(outcome, judge, place, deny, found=bool(found.total))
    if not shown:
        lines.append("no matches")
    return GrepResult(
        content="\n".join([*lines, *(f"[{note}]" for note in notes)]) + "\n",
        data={
            "matches": [_match_data(name, match) for name, match in shown],
            "total": found.total - gone,
            "files": len({name for name, _ in shown}) if gone else found.files,
            "truncated": found.total - gone > len(shown) or bool(outcome.stopped),
            "engine": outcome.program,
            "skipped": _skip_data(outcome, judge),
            "notes": notes,
        },
    )


async def glob(
    root: str,
    pattern: str,
    *,
    path: str | None = None,
    limits: SearchLimits = DEFAULT_LIMITS,
    deny: Deny | None = None,
    sight: Sight | None = None,
    signal: Cancellation | None = None,
    program: Program | None = None,
) -> GlobResult:
    """Files whose path below `path` (the root) matches a glob pattern, ordered by path.

    The directories that the pattern spells before its first wildcard are entered even where they are ignored.
    Raises as `grep` does.
    """
    relative = await asyncio.to_thread(relative_pattern, root, pattern)
    wanted = _parsed(Glob.parse, relative)
    prefix = wanted.literal_prefix
    place = await asyncio.to_thread(locate, root, path, prefix, deny)
    judge = Judge(place, deny)
    found = FoundPaths(place, judge, wanted.below(len(prefix)), limits.max_paths)
    if place.missing:
        outcome = Outcome(program or "ripgrep", tells=True)
    else:
        query = Query(
            root=place.root,
            base=place.base,
            honour_ignores=place.honour_ignores,
            parent_rules=place.parent_rules,
            timeout_s=limits.timeout_s,
        )
        outcome = await run(query, found.consume, found.skipped, signal=signal, program=program)
    _raise_complaint(outcome, pattern)
    shown = found.first()
    notes = _cap_notes(len(shown), found.total, outcome, "file", limits)
    gone = 0
    if sight is not None:
        standing = await sight.standing(shown)
        gone = len(shown) - len(standing)
        notes += _gone_notes(gone, "file")
        shown = [path for path in shown if path in standing]
        deny = await _blind_to(sight, outcome, deny)
    notes += _skip_notes(outcome, judge, place, deny, found=bool(shown))
    lines = shown or ["no files match"]
    if not shown and "/" not in relative:
        notes.append(f"only names directly in {place.base or 'the root'} were meant; **/{relative} means any depth")
    return GlobResult(
        content="\n".join([*lines, *(f"[{note}]" for note in notes)]) + "\n",
        data={
            "paths": shown,
            "total": found.total - gone,
            "truncated": found.total - gone > len(shown) or bool(outcome.stopped),
            "engine": outcome.program,
            "skipped": _skip_data(outcome, judge),
            "notes": notes,
        },
    )


def _parsed(parse: Callable[[str], Glob], pattern: str) -> Glob:
    try:
        return parse(pattern)
    except BadArgumentError as error:
        raise error.at(step=SEARCH_STEP) from None


# -- what is said ------------------------------------------------------------------------------------------------


def _raise_complaint(outcome: Outcome, pattern: str) -> None:
    if outcome.stopped == "cancelled":
        raise CallCancelledError("the search was cancelled", step=SEARCH_STEP)
    if outcome.complaint and outcome.status == _REFUSED and not outcome.stopped:
        raise BadArgumentError(
            f"pattern {pattern!r} was refused:\n{outcome.complaint.strip()}", step=SEARCH_STEP, reason="malformed"
        )


def _grep_line(name: str, match: MatchedLine) -> str:
    text = match.text.decode("utf-8", "replace")
    if match.cut:
        return f"{name}:{match.line}:{text}… [long line cut; first match at byte {match.column}]"
    return f"{name}:{match.line}:{text}"


def _match_data(name: str, match: MatchedLine) -> dict[str, Any]:
    data: dict[str, Any] = {"path": name, "line": match.line, "text": match.text.decode("utf-8", "replace")}
    if match.cut:
        data["cut"] = True
    if match.column - 1 <= len(match.text):
        data["column"] = len(match.text[: match.column - 1].decode("utf-8", "replace")) + 1
    return data


def _cap_notes(shown: int, total: int, outcome: Outcome, what: str, limits: SearchLimits) -> list[str]:
    notes: list[str] = []
    if outcome.stopped == "timeout":
        notes.append(f"stopped after {limits.timeout_s:g} s: the answer is incomplete; narrow the search")
    if outcome.stopped == "enough":
        notes.append(f"showing {shown:,} of more than {total - 1:,} {what}s; narrow the search with path or glob")
    elif total > shown:
        notes.append(f"showing the first {shown:,} of {total:,} {what}s; narrow the search to see the others")
    if outcome.program == "python":
        notes.append("ripgrep was not found: a slower search with Python's regular expressions was used")
    elif not outcome.tells and not outcome.stopped:
        notes.append("this version of ripgrep does not tell what it skipped")
    return notes


def _gone_notes(count: int, what: str) -> list[str]:
    """What was found and is not there any more: changed meanwhile, or seen through a link that leaves the root."""
    return [f"{count:,} {what}{'s' if count > 1 else ''} left out: changed while it was searched"] if count else []


async def _blind_to(sight: Sight, outcome: Outcome, deny: Deny | None) -> Deny:
    """`deny`, and whatever the program skipped that the workspace does not have."""
    examples = list(dict.fromkeys(path for paths in outcome.skipped.examples.values() for path in paths))
    standing = await sight.standing(examples) if examples else frozenset[str]()
    return lambda path: path not in standing or (deny is not None and deny(path))


def _skip_notes(outcome: Outcome, judge: Judge, place: Place, deny: Deny | None, *, found: bool) -> list[str]:
    notes: list[str] = []
    if place.missing:
        notes.append(f"there is nothing named {place.missing!r}")
    parts: list[str] = []
    for reason, count in outcome.skipped.counts.items():
        examples = [path for path in outcome.skipped.examples[reason] if deny is None or not deny(path)]
        shown = f" ({', '.join(examples[:3])}{', …' if count > len(examples[:3]) else ''})" if examples else ""
        parts.append(f"{count:,} {_WORDS[reason]}{shown}")
    if judge.foreign:
        parts.append(f"{judge.foreign:,} files in other worktrees")
    if judge.unnameable:
        parts.append(f"{judge.unnameable:,} files whose names are not UTF-8")
    if parts:
        notes.append("skipped: " + "; ".join(parts))
    if not found and {"ignored", "dependencies"} & set(outcome.skipped.counts):
        notes.append("to look into a skipped directory, name it in path")
    if not found and deny is not None:
        notes.append("files that policy denies for reading are never shown")
    return notes


def _skip_data(outcome: Outcome, judge: Judge) -> dict[str, int]:
    counts: dict[str, int] = {reason: outcome.skipped.counts.get(reason, 0) for reason in _WORDS}
    return {**counts, "otherWorktrees": judge.foreign, "unnameable": judge.unnameable}
