"""What "remember" means: the rule that a decision leaves behind, and its words for people (SPEC 8.0.11). Pure.

A remembered rule allows; it is scoped to the agent, its session, the step (the editing steps count as one) and
the directories or the exact command that were approved. It never covers names that always ask.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from devtools_lsp.core.invisible import reveal
from devtools_lsp.errors import BadArgumentError
from devtools_lsp.paths import PathPattern, is_pattern, parent_of
from devtools_lsp.pipeline.rules import EDIT_FAMILY, AlwaysAsks, Question, Rule

_SHOWN_PLACES = 5


@dataclass(frozen=True, slots=True)
class RulesPlace:
    """Where a person writes the user's rules: a file at the root, and the name of the list of tables in it."""

    file: str = "devtools.toml"
    tables: str = "gate.rules"


def remembered_rule(question: Question, always_asks: AlwaysAsks) -> Rule | None:
    """The rule that would answer calls like this one from now on; None when nothing can be remembered.

    Nothing can be for calls that touch names that always ask alone, for names that hold a `*` (it would be taken
    for a wildcard), and for calls with neither paths nor a command. The rule's name says in words what it covers.
    """
    if "*" in question.agent:
        return None
    step = question.call.step
    steps = EDIT_FAMILY if step in EDIT_FAMILY else frozenset({step})
    patterns: tuple[PathPattern, ...] = ()
    if question.command is None:
        if any("*" in path for path in question.call.targets):
            return None
        covered = sorted({_around(path) for path in question.paths if not always_asks(path)})
        if not covered:
            return None
        # Directory names may hold characters that a pattern written by hand may not, so none is parsed here.
        patterns = tuple(PathPattern(text, tuple(text.split("/"))) for text in covered)
    rule = Rule(
        decision="allow",
        origin="remembered",
        steps=steps,
        paths=patterns,
        agent=question.agent,
        fix=question.fixes if step == "lint" else None,
        session=question.session,
        exact_command=question.command,
        in_place=question.in_place,
    )
    return replace(rule, name=remember_words(rule))


def _around(path: str) -> str:
    """The pattern for a path's own directory; a pattern stands for itself."""
    if is_pattern(path):
        return path
    directory = parent_of(path)
    return f"{directory}/*" if directory else "*"


def kept_table(rule: Rule) -> dict[str, Any] | None:
    """The table of `[[gate.rules]]` that says what a remembered rule says, for good; None when none can.

    It holds for every session of that agent and, for format and lint, for in-place engines too: a table has no
    conditions for either. None can for a command with a `*`, and for names that a pattern may not spell.
    """
    table: dict[str, Any] = {"name": _words(rule, ""), "decision": rule.decision, "agent": rule.agent}
    if rule.exact_command is not None:
        if "*" in rule.exact_command or rule.exact_command != rule.exact_command.strip():
            return None
        return table | {"step": sorted(rule.steps), "command": rule.exact_command}
    try:
        for pattern in rule.paths:
            PathPattern.parse(pattern.text)
    except BadArgumentError:
        return None
    table |= {"step": sorted(rule.steps), "paths": [pattern.text for pattern in rule.paths]}
    return table | ({"fix": rule.fix} if rule.fix is not None else {})


def kept_rule(rule: Rule, place: RulesPlace) -> str | None:
    """That table in TOML, as an entry of the list that the place names; None when none can say it."""
    table = kept_table(rule)
    if table is None:
        return None
    return "\n".join([f"[[{place.tables}]]", *(f"{key} = {toml_value(value)}" for key, value in table.items())]) + "\n"


def toml_value(value: Any) -> str:
    """A string, truth value, or list of strings in TOML: as JSON, but that TOML escapes DEL, too."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def remember_words(rule: Rule) -> str:
    """What a remembered rule covers, in words: who, what, where and until when."""
    return _words(rule, ", until its session ends")


def _words(rule: Rule, until: str) -> str:
    who = reveal(rule.agent or "any agent")
    if rule.exact_command is not None:
        return f"Let {who} run exactly this command without asking{until}: {_one_line(rule.exact_command)}"
    act = "change files" if rule.steps == EDIT_FAMILY else f"{'/'.join(sorted(rule.steps))} files"
    if rule.in_place:
        act = f"let engines {'/'.join(sorted(rule.steps))} files in place"
    places = [_place(pattern.text) for pattern in rule.paths[:_SHOWN_PLACES]]
    if len(rule.paths) > _SHOWN_PLACES:
        places.append(f"{len(rule.paths) - _SHOWN_PLACES} more places")
    return f"Let {who} {act} {' and '.join(places)} without asking{until}; names that always ask still ask"


def _place(pattern: str) -> str:
    if pattern == "*":
        return "directly in the root"
    if pattern.endswith("/*") and not is_pattern(pattern[:-2]):
        return f"directly in {reveal(pattern[:-1])}"
    return f"matching {reveal(pattern)}"


def _one_line(command: str, limit: int = 200) -> str:
    shown = reveal(" ".join(command.split()))
    return shown if len(shown) <= limit else shown[:limit] + "…"
