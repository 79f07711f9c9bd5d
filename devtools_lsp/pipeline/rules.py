"""The gate's rules: which of them answers a call, and when a person must (SPEC 8.0.11). Pure.

Owns the order of rules, what makes one match, the built-in ones and what a condition needs to know. It never
asks for a preview itself: `RuleBook.judge` says that it needs one and is called again with the facts. Who waits,
who is shown what and where rules come from is other people's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from devtools_lsp.core.changeset import FileChange, Preview
from devtools_lsp.paths import PathPattern
from devtools_lsp.pipeline.rule_matching import (
    all_covered,
    any_overlap,
    command_allowed,
    command_concerned,
    glob_matches,
)
from devtools_lsp.ports import GateCall

Outcome = Literal["allow", "ask", "deny"]
Mode = Literal["editor", "allow", "deny"]
Origin = Literal["remembered", "user", "built-in"]
Needs = Literal["diff", "consequences"]
AlwaysAsks = Callable[[str], bool]

READING_STEPS = frozenset({"acquire", "read_lines", "check", "search"})
"""Steps that never change anything."""
MEMORY_STEPS = frozenset({"edit", "apply_patch", "format", "lint"})
"""Steps that change the disk only when the runtime marks them with `persists`, or through an in-place engine."""
EDIT_FAMILY = frozenset({"edit", "apply_patch", "edit_file", "write_file"})
"""Steps that count as one when a decision is remembered: different tools for the same act."""


class Question(msgspec.Struct, frozen=True):
    """One gate call as the rules see it. `aliases` are its paths with links resolved, where that makes a difference."""

    call: GateCall
    agent: str
    session: str = ""
    in_place: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Everything that may be touched, by every name it has: a link must not lead around a rule."""
        return (*self.call.targets, *self.call.may_create, *self.aliases)

    @property
    def persists(self) -> bool:
        """Whether the runtime marked the step as one that will write."""
        return self.call.args.get("persists") is True

    @property
    def fixes(self) -> bool:
        """Whether a lint was asked to fix."""
        return self.call.args.get("fix") is True

    @property
    def command(self) -> str | None:
        """The command of a shell step."""
        command = self.call.args.get("command")
        return command if isinstance(command, str) else None

    @property
    def writes_what_is_shown(self) -> bool:
        """Whether the step writes exactly what its diff shows: no command, and no engine that works in place."""
        return (self.persists or self.call.step == "write") and not self.in_place

    @property
    def touches_disk(self) -> bool:
        """Whether the step may change the disk. Steps that nobody knows count as if they did."""
        if self.in_place or self.persists:
            return True
        if self.call.step == "write" and not self.paths:
            # Everything is on the disk already.
            return False
        return self.call.step not in READING_STEPS and self.call.step not in MEMORY_STEPS


@dataclass(frozen=True, slots=True)
class Facts:
    """What a preview told: None where it could not tell. `complete` says that consequences were asked for.

    `introduced_errors` is what is known so far; it is the whole truth only when `judged`.
    """

    changed_lines: int | None = None
    introduced_errors: int = 0
    judged: bool = False
    complete: bool = False


def facts_of(preview: Preview, question: Question, *, complete: bool) -> Facts:
    """The facts in a preview. An in-place engine never runs inside one and a command has none: nothing is known."""
    if question.in_place or not preview.files:
        return Facts(complete=complete)
    return Facts(
        changed_lines=sum(count_changed_lines(preview.files)),
        introduced_errors=sum(diagnostic.severity == "error" for diagnostic in preview.introduced),
        judged=complete and not preview.pending,
        complete=complete,
    )


def count_changed_lines(files: Sequence[FileChange]) -> tuple[int, int]:
    """(added, removed) lines in the hunks of a proposal."""
    texts = [hunk.text for file in files for hunk in file.hunks]
    added = sum(text.count("\n+") + text.startswith("+") for text in texts)
    removed = sum(text.count("\n-") + text.startswith("-") for text in texts)
    return added, removed


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Conditions that are None (or empty) are not conditions; all others must hold.

    `paths` are patterns over targets and mayCreate: deny and ask need one that matches, allow needs all to match.
    `agent` and `command` take `*`. `max_changed_lines` and `no_new_errors` are limits: an allow rule holds while
    they are kept, an ask or deny rule strikes when one is broken; where a limit could not be judged, allow does
    not hold and ask and deny make it a question for a person.

    `session`, `exact_command`, `in_place`, `touches_disk` and `always_asking` serve remembered and built-in rules.
    """

    decision: Outcome
    name: str = ""
    origin: Origin = "user"
    steps: frozenset[str] = frozenset()
    paths: tuple[PathPattern, ...] = ()
    agent: str | None = None
    fix: bool | None = None
    command: str | None = None
    max_changed_lines: int | None = None
    no_new_errors: bool = False
    session: str = ""
    exact_command: str | None = None
    in_place: bool | None = None
    touches_disk: bool | None = None
    always_asking: bool = False

    @property
    def limited(self) -> bool:
        """Whether the rule has a limit that only a preview can judge."""
        return self.max_changed_lines is not None or self.no_new_errors

    def to_wire(self) -> dict[str, Any]:
        """The rule as `status` shows it: conditions that it does not have are absent."""
        shown: dict[str, Any] = {"name": self.name, "origin": self.origin, "decision": self.decision}
        if self.steps:
            shown["step"] = sorted(self.steps)
        if self.paths:
            shown["paths"] = [pattern.text for pattern in self.paths]
        optional = {
            "agent": self.agent,
            "fix": self.fix,
            "command": self.exact_command if self.exact_command is not None else self.command,
            "maxChangedLines": self.max_changed_lines,
            "noNewErrors": self.no_new_errors or None,
            "inPlace": self.in_place,
            "touchesDisk": self.touches_disk,
            "alwaysAsking": self.always_asking or None,
        }
        return shown | {key: value for key, value in optional.items() if value is not None}


class Verdict(msgspec.Struct, frozen=True):
    """The rules' answer: `allow` and `deny` settle it, `ask` is for a person. `why` is in words."""

    decision: Outcome
    why: str
    rule: Rule | None = None


@dataclass(frozen=True, slots=True)
class NeedsPreview:
    """No answer yet: a rule's limit must be judged first, from the diff alone or with its consequences."""

    needs: Needs


BUILT_IN: dict[Mode, tuple[Rule, ...]] = {
    "editor": (
        Rule("ask", "in-place engines", "built-in", in_place=True),
        Rule("allow", "reading", "built-in", steps=READING_STEPS),
        Rule("allow", "lint without fix", "built-in", steps=frozenset({"lint"}), fix=False),
        Rule("allow", "steps that leave the disk alone", "built-in", touches_disk=False),
        Rule("ask", "everything that reaches the disk", "built-in"),
    ),
    "allow": (
        Rule("ask", "names that always ask", "built-in", always_asking=True),
        Rule("allow", "mode allow", "built-in"),
    ),
    "deny": (
        Rule("allow", "steps that leave the disk alone", "built-in", touches_disk=False),
        Rule("deny", "mode deny", "built-in"),
    ),
}
"""The built-in rules by mode: the first match answers, after the remembered ones and the user's.

Mode `deny` refuses whatever would have asked; the user's own allow and ask rules come before it.
"""


class RuleBook(msgspec.Struct, frozen=True):
    """All rules in force: the user's, those remembered, and the built-in ones of the mode."""

    mode: Mode = "editor"
    user: tuple[Rule, ...] = ()
    remembered: tuple[Rule, ...] = ()
    always_asks: AlwaysAsks = msgspec.field(default=lambda _path: False)

    def all_rules(self) -> tuple[Rule, ...]:
        """In the order in which the first match answers."""
        return (*self.remembered, *self.user, *BUILT_IN[self.mode])

    def judge(self, question: Question, facts: Facts | None = None) -> Verdict | NeedsPreview:
        """Which rule answers. With `facts` from a complete preview the answer is always a Verdict."""
        unsure: Rule | None = None
        needs: NeedsPreview | None = None
        asking = [path for path in question.paths if self.always_asks(path)] if question.touches_disk else []
        for rule in (*self.remembered, *self.user):
            if rule.decision != "deny" or not _matches(rule, question, asking):
                continue
            kept = _limit_kept(rule, facts)
            if not rule.limited or kept is False:
                return Verdict("deny", f"{_called(rule)} denies it", rule)
            if isinstance(kept, NeedsPreview):
                needs = needs or kept
            elif kept is None:
                unsure = unsure or rule
        if needs is not None:
            return needs
        return self._first_match(question, asking, facts, unsure)

    def _first_match(
        self, question: Question, asking: Sequence[str], facts: Facts | None, unsure: Rule | None
    ) -> Verdict | NeedsPreview:
        for rule in self.all_rules():
            if (rule.decision == "deny" and rule.origin != "built-in") or not _matches(rule, question, asking):
                continue
            if rule.limited:
                kept = _limit_kept(rule, facts)
                if isinstance(kept, NeedsPreview):
                    return kept
                # An allow rule holds while its limits are kept; an ask rule strikes when they are not.
                if (kept is True) != (rule.decision == "allow"):
                    continue
            if rule.decision == "allow" and unsure is not None:
                return Verdict("ask", f"{_called(unsure)} has a limit that could not be judged", unsure)
            return Verdict(rule.decision, f"{_called(rule)} {_VERBS[rule.decision]}", rule)
        return Verdict("ask", "no rule answers")


_VERBS: dict[Outcome, str] = {"allow": "allows it", "ask": "asks a person", "deny": "denies it"}


def _matches(rule: Rule, question: Question, asking: Sequence[str]) -> bool:
    """Everything but the limits. `asking` are the paths that a person is always asked about."""
    call = question.call
    if rule.steps and call.step not in rule.steps:
        return False
    if rule.agent is not None and not glob_matches(rule.agent, question.agent):
        return False
    if rule.session and rule.session != question.session:
        return False
    if rule.fix is not None and (call.step != "lint" or question.fixes != rule.fix):
        return False
    if rule.in_place is not None and question.in_place != rule.in_place:
        return False
    if rule.touches_disk is not None and question.touches_disk != rule.touches_disk:
        return False
    if (rule.command is not None or rule.exact_command is not None) and not _command_matches(rule, question.command):
        return False
    if rule.paths and not _paths_match(rule, question):
        return False
    if rule.always_asking:
        return bool(asking)
    if rule.decision == "allow" and asking and rule.origin != "built-in":
        return rule.origin == "user" and all(_spells(rule, path) for path in asking)
    return True


def _called(rule: Rule) -> str:
    return f"the {rule.origin} rule {rule.name!r}" if rule.name else f"a {rule.origin} rule"


def _limit_kept(rule: Rule, facts: Facts | None) -> bool | NeedsPreview | None:
    """Whether the rule's limits are kept: True, False, None for unknowable, or the preview that must come first."""
    if not rule.limited:
        return True
    if facts is None:
        return NeedsPreview("diff" if rule.max_changed_lines is not None else "consequences")
    unknown = False
    if rule.max_changed_lines is not None:
        if facts.changed_lines is None:
            unknown = True
        elif facts.changed_lines > rule.max_changed_lines:
            return False
    if rule.no_new_errors:
        if not facts.complete:
            return NeedsPreview("consequences")
        if facts.introduced_errors:
            return False
        unknown = unknown or not facts.judged
    return None if unknown else True


def _command_matches(rule: Rule, command: str | None) -> bool:
    if rule.exact_command is not None:
        return command == rule.exact_command
    if rule.command is None:
        return True
    if command is None:
        return False
    match = command_allowed if rule.decision == "allow" else command_concerned
    return match(rule.command, command)


def _paths_match(rule: Rule, question: Question) -> bool:
    if not question.paths:
        return False
    match: Callable[[Sequence[PathPattern], Sequence[str]], bool]
    match = all_covered if rule.decision == "allow" else any_overlap
    return match(rule.paths, question.paths)


def _spells(rule: Rule, path: str) -> bool:
    """Whether one of the rule's patterns matches the path and writes its last component out."""
    name = path.rpartition("/")[2]
    return any(pattern.segments[-1:] == (name,) and pattern.matches(path, dot_names=True) for pattern in rule.paths)
