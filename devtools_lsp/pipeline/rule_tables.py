"""Rules as a person writes them: tables in, `Rule` out, with their examples verified (SPEC 8.0.11, 8.1).

Every fault names the rule and the key. Where the tables come from is the configuration's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from devtools_lsp.errors import BadArgumentError, InvalidConfigError
from devtools_lsp.paths import PathPattern
from devtools_lsp.pipeline.rules import EDIT_FAMILY, MEMORY_STEPS, READING_STEPS, Question, Rule, RuleBook, Verdict
from devtools_lsp.ports import GateCall

GATED_STEPS = READING_STEPS | MEMORY_STEPS | EDIT_FAMILY | {"write", "bash", "undo"}
"""Every step name that a gate is asked about; a rule that names another could never match."""

RULE_TABLE_KEYS = (
    "decision",
    "name",
    "step",
    "paths",
    "agent",
    "fix",
    "command",
    "max_changed_lines",
    "no_new_errors",
    "match",
    "not_match",
)
_EXAMPLE_KEYS = ("step", "path", "paths", "agent", "fix", "command")

T = TypeVar("T")


def read_rules(tables: Sequence[Mapping[str, Any]], *, where: str = "gate.rules") -> tuple[Rule, ...]:
    """The rules of a list of tables, in order. Raises InvalidConfigError that names the rule, the key and why."""
    return tuple(read_rule(table, where=f"{where}[{index}]") for index, table in enumerate(tables))


def read_rule(table: Mapping[str, Any], *, where: str = "rule") -> Rule:
    """One rule; its `match` examples must match it and its `not_match` examples must not."""
    for key in table:
        if key not in RULE_TABLE_KEYS:
            near = get_close_matches(key, RULE_TABLE_KEYS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; a rule takes {', '.join(RULE_TABLE_KEYS)}"
            raise InvalidConfigError(f"{where}: unknown key {key!r}{hint}")
    take = _Taker(table, where)
    decision = take("decision", str, None)
    if decision not in ("allow", "ask", "deny"):
        raise InvalidConfigError(f"{where}.decision: must be allow, ask or deny, not {decision!r}")
    lines = take("max_changed_lines", int, None)
    if lines is not None and lines < 0:
        raise InvalidConfigError(f"{where}.max_changed_lines: must be 0 or more, not {lines}")
    rule = Rule(
        decision=decision,
        name=take("name", str, None) or where,
        steps=_steps(table, where),
        paths=_patterns(table, where),
        agent=take("agent", str, None),
        fix=take("fix", bool, None),
        command=take("command", str, None),
        max_changed_lines=lines,
        no_new_errors=take("no_new_errors", bool, None) or False,
    )
    if rule.paths and rule.command is not None:
        raise InvalidConfigError(f"{where}: a command has no paths, so a rule with both never matches; use one of them")
    if rule.fix is not None and rule.steps and "lint" not in rule.steps:
        raise InvalidConfigError(f"{where}.fix: only lint has it, and the rule is for {', '.join(sorted(rule.steps))}")
    verify_examples(rule, take.examples("match"), take.examples("not_match"), where=where)
    return rule


def verify_examples(rule: Rule, match: Sequence[Any], not_match: Sequence[Any], *, where: str = "rule") -> None:
    """Raise InvalidConfigError for the first example that the rule gets wrong. Limits are not judged here.

    An example is a path (or, for a rule with `command`, a command), or a table of step, path or paths, agent, fix
    and command. What it leaves out is what the rule asks for.
    """
    for key, examples, wanted in (("match", match, True), ("not_match", not_match, False)):
        for index, example in enumerate(examples):
            place = f"{where}.{key}[{index}]"
            if _matches_example(rule, example, place) != wanted:
                raise InvalidConfigError(
                    f"{place}: the rule {'does not match' if wanted else 'matches'} its example {example!r}; "
                    "mend the rule or the example"
                )


class _Taker:
    """Takes typed values out of a table, naming the key when the type is wrong."""

    def __init__(self, table: Mapping[str, Any], where: str) -> None:
        self._table = table
        self._where = where

    def __call__(self, key: str, kind: type[T], default: T | None) -> T | None:
        value = self._table.get(key)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise InvalidConfigError(f"{self._where}.{key}: must be {_TYPE_NAMES[kind]}, not {value!r}")
        return value

    def examples(self, key: str) -> list[Any]:
        value = self._table.get(key, [])
        if not isinstance(value, list):
            raise InvalidConfigError(f"{self._where}.{key}: must be a list, not {value!r}")
        return msgspec.convert(value, list[Any])


_TYPE_NAMES: dict[type, str] = {str: "a string", bool: "true or false", int: "an integer"}


def _strings(table: Mapping[str, Any], key: str, where: str) -> list[str]:
    value = table.get(key)
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    try:
        found = msgspec.convert(value, list[str])
    except msgspec.ValidationError:
        raise InvalidConfigError(f"{where}.{key}: must be a string or a list of strings, not {value!r}") from None
    if not found:
        raise InvalidConfigError(f"{where}.{key}: must not be empty; leave it out to match all")
    return found


def _steps(table: Mapping[str, Any], where: str) -> frozenset[str]:
    steps = _strings(table, "step", where)
    for step in steps:
        if step not in GATED_STEPS:
            near = get_close_matches(step, sorted(GATED_STEPS), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(GATED_STEPS))}"
            raise InvalidConfigError(f"{where}.step: no step is called {step!r}; {hint}")
    return frozenset(steps)


def _patterns(table: Mapping[str, Any], where: str) -> tuple[PathPattern, ...]:
    patterns: list[PathPattern] = []
    for text in _strings(table, "paths", where):
        try:
            patterns.append(PathPattern.parse(text))
        except BadArgumentError as error:
            raise InvalidConfigError(f"{where}.paths: {error.message}") from None
    return tuple(patterns)


def _matches_example(rule: Rule, example: Any, place: str) -> bool:
    """Whether the rule answers the example, its limits taken as kept by an allow rule and broken by the others."""
    unlimited = replace(rule, max_changed_lines=None, no_new_errors=False)
    verdict = RuleBook(user=(unlimited,)).judge(_example_question(rule, example, place))
    return isinstance(verdict, Verdict) and verdict.rule is unlimited


def _example_question(rule: Rule, example: Any, place: str) -> Question:
    table: Mapping[str, Any]
    if isinstance(example, str):
        table = {"command": example} if rule.command is not None else {"path": example}
    else:
        try:
            table = msgspec.convert(example, dict[str, Any])
        except msgspec.ValidationError:
            raise InvalidConfigError(f"{place}: an example is a path, a command or a table, not {example!r}") from None
    for key in table:
        if key not in _EXAMPLE_KEYS:
            raise InvalidConfigError(f"{place}: unknown key {key!r}; an example takes {', '.join(_EXAMPLE_KEYS)}")
    take = _Taker(table, place)
    args: dict[str, Any] = {}
    command = take("command", str, None)
    if command is not None:
        args["command"] = command
    if take("fix", bool, rule.fix):
        args["fix"] = True
    default_step = next(iter(sorted(rule.steps)), None) or (
        "bash" if command is not None else "lint" if rule.fix is not None else "edit"
    )
    step = take("step", str, None) or default_step
    targets = (*_strings(table, "path", place), *_strings(table, "paths", place))
    agent = take("agent", str, None) or (rule.agent or "agent").replace("*", "")
    return Question(GateCall(step, args, targets), agent)
