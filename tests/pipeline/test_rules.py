"""The gate's rules as tables: who wins, what matches, what a limit needs, what is remembered (SPEC 8.0.11)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from devtools_lsp.core.changeset import FileChange, Hunk, Preview
from devtools_lsp.core.diagnostics import Diagnostic, Pending
from devtools_lsp.errors import InvalidConfigError
from devtools_lsp.paths import PathPattern
from devtools_lsp.pipeline.remembering import kept_table, remember_words, remembered_rule
from devtools_lsp.pipeline.rule_matching import command_allowed, command_concerned, covers, overlaps
from devtools_lsp.pipeline.rule_tables import read_rule, read_rules
from devtools_lsp.pipeline.rules import Facts, NeedsPreview, Question, Rule, RuleBook, Verdict, facts_of
from devtools_lsp.ports import GateCall

ALWAYS_ASK = {"package.json", ".npmrc", "Cargo.toml"}


def always_asks(path: str) -> bool:
    return path.rpartition("/")[2] in ALWAYS_ASK


def ask(
    step: str = "edit",
    *targets: str,
    may_create: tuple[str, ...] = (),
    agent: str = "claude",
    session: str = "s1",
    in_place: bool = False,
    **args: Any,
) -> Question:
    return Question(GateCall(step, args, targets, may_create), agent, session, in_place)


def edit(*targets: str, **more: Any) -> Question:
    return ask("edit", *targets, persists=True, **more)


def book(*tables: dict[str, Any], mode: Any = "editor", remembered: tuple[Rule, ...] = ()) -> RuleBook:
    return RuleBook(mode, read_rules(tables), remembered, always_asks)


def outcome(rules: RuleBook, question: Question, facts: Facts | None = None) -> str:
    verdict = rules.judge(question, facts)
    return verdict.decision if isinstance(verdict, Verdict) else f"needs {verdict.needs}"


ALLOW_DOCS = {"step": "edit", "paths": ["docs/**"], "decision": "allow"}
DENY_LOCKED = {"step": "edit", "paths": ["locked/**"], "decision": "deny"}


def test_every_name_of_a_file_counts():
    """A link must not lead around a rule: deny and ask match by any name, allow needs all of them."""
    rules = book(DENY_LOCKED, ALLOW_DOCS)
    linked = edit("docs/a.md")
    assert outcome(rules, linked) == "allow"
    assert outcome(rules, replace(linked, aliases=("docs/b.md",))) == "allow"
    assert outcome(rules, replace(linked, aliases=("src/b.md",))) == "ask"
    assert outcome(rules, replace(linked, aliases=("locked/b.md",))) == "deny"
    assert outcome(rules, replace(linked, aliases=("docs/package.json",))) == "ask"
    assert outcome(book(mode="allow"), replace(linked, aliases=("docs/package.json",))) == "ask"


@pytest.mark.parametrize(
    ("question", "editor", "allow", "deny"),
    [
        (ask("acquire", "a.py"), "allow", "allow", "allow"),
        (ask("read_lines", "a.py"), "allow", "allow", "allow"),
        (ask("search"), "allow", "allow", "allow"),
        (ask("check"), "allow", "allow", "allow"),
        (ask("lint", "a.py"), "allow", "allow", "allow"),
        (ask("lint", "a.py", fix=True), "allow", "allow", "allow"),
        (ask("lint", "a.py", fix=True, persists=True), "ask", "allow", "deny"),
        (ask("lint", "a.py", in_place=True), "ask", "allow", "deny"),
        (ask("format", "a.py"), "allow", "allow", "allow"),
        (ask("format", "a.py", persists=True), "ask", "allow", "deny"),
        (ask("edit", "a.py"), "allow", "allow", "allow"),
        (edit("a.py"), "ask", "allow", "deny"),
        (ask("apply_patch", "a.py", persists=True), "ask", "allow", "deny"),
        (ask("write", "a.py"), "ask", "allow", "deny"),
        (ask("write_file", "a.py"), "ask", "allow", "deny"),
        (ask("bash", command="ls"), "ask", "allow", "deny"),
        (ask("undo"), "ask", "allow", "deny"),
        (ask("a step of the future"), "ask", "allow", "deny"),
        (edit("package.json"), "ask", "ask", "deny"),
        (edit("web/package.json", "a.py"), "ask", "ask", "deny"),
        (ask("apply_patch", may_create=("package.json",), persists=True), "ask", "ask", "deny"),
        (ask("read_lines", "package.json"), "allow", "allow", "allow"),
        (ask("edit", "package.json"), "allow", "allow", "allow"),
    ],
)
def test_the_built_in_rules(question: Question, editor: str, allow: str, deny: str):
    assert outcome(book(), question) == editor
    assert outcome(book(mode="allow"), question) == allow
    assert outcome(book(mode="deny"), question) == deny


def test_a_deny_wins_over_every_allow_before_and_after_it():
    rules = book(
        {"decision": "allow", "paths": ["**"]},
        {"decision": "deny", "paths": ["SECRET.md"]},
        {"decision": "allow", "paths": ["SECRET.md"]},
    )
    assert outcome(rules, edit("SECRET.md")) == "deny"
    assert outcome(rules, edit("a.txt", "SECRET.md")) == "deny", "deny matches if any path does"
    assert outcome(rules, edit("a.txt")) == "allow"


def test_a_remembered_rule_never_beats_a_deny():
    remembered = remembered_rule(edit("SECRET.md"), always_asks)
    assert remembered is not None
    rules = book({"decision": "deny", "paths": ["SECRET.md"]}, remembered=(remembered,))
    assert outcome(rules, edit("SECRET.md")) == "deny"
    assert outcome(rules, edit("a.txt")) == "allow"


def test_the_first_match_answers_among_the_users_own():
    rules = book({"decision": "ask", "paths": ["docs/secret/**"]}, ALLOW_DOCS)
    assert outcome(rules, edit("docs/secret/a.md")) == "ask"
    assert outcome(rules, edit("docs/a.md")) == "allow"


def test_allow_needs_all_paths_and_ask_any():
    rules = book({"decision": "ask", "paths": ["a/**"]}, {"decision": "allow", "paths": ["b/**", "a/**"]})
    assert outcome(rules, edit("b/x", "a/x")) == "ask"
    assert outcome(rules, edit("b/x", "b/y")) == "allow"
    assert outcome(rules, edit("b/x", "c/y")) == "ask", "nothing but the built-in rule answers"
    assert outcome(book(ALLOW_DOCS), edit("docs/a", may_create=("src/a",))) == "ask", "mayCreate counts"
    assert outcome(book(ALLOW_DOCS), edit("docs/a", may_create=("docs/b",))) == "allow"


@pytest.mark.parametrize("decision", ["allow", "ask", "deny"])
def test_a_rule_with_paths_never_matches_a_call_without_any(decision: str):
    rules = book({"decision": decision, "paths": ["**"]}, mode="allow" if decision == "ask" else "editor")
    assert outcome(rules, ask("bash", command="ls")) == ("allow" if decision == "ask" else "ask")


@pytest.mark.parametrize(
    ("table", "matching", "other"),
    [
        ({"step": "format"}, ask("format", "a", persists=True), edit("a")),
        ({"step": ["format", "edit"]}, edit("a"), ask("apply_patch", "a", persists=True)),
        ({"agent": "claude"}, edit("a"), edit("a", agent="other")),
        ({"agent": "cl*"}, edit("a"), edit("a", agent="eclair")),
        ({"fix": True}, ask("lint", "a", fix=True, persists=True), ask("format", "a", persists=True)),
        ({"command": "git *"}, ask("bash", command="git log -3"), ask("bash", command="gitk")),
        ({"paths": ["**/.env"]}, edit("x/.env"), edit("x/.environment")),
        ({"paths": ["src/*"]}, edit("src/.hidden"), edit("src/a/b")),
    ],
)
def test_conditions(table: dict[str, Any], matching: Question, other: Question):
    assert outcome(book({"decision": "allow", **table}), matching) == "allow"
    assert outcome(book({"decision": "allow", **table}), other) == "ask"
    assert outcome(book({"decision": "deny", **table}), matching) == "deny"
    assert outcome(book({"decision": "deny", **table}), other) == "ask"


def test_a_name_that_always_asks_is_settled_only_by_a_rule_that_spells_it():
    anything = {"decision": "allow", "paths": ["**"]}
    assert outcome(book(anything), edit("a.py")) == "allow"
    assert outcome(book(anything), edit("web/package.json")) == "ask"
    assert outcome(book(anything, mode="allow"), edit("web/package.json")) == "ask"
    spelled = {"decision": "allow", "paths": ["**/package.json"]}
    assert outcome(book(spelled), edit("web/package.json")) == "allow"
    assert outcome(book({"decision": "allow", "paths": ["web/package.*"]}), edit("web/package.json")) == "ask"
    assert outcome(book(spelled), edit("web/package.json", "a.py")) == "ask", "a.py is not covered"
    both = {"decision": "allow", "paths": ["**/package.json", "**"]}
    assert outcome(book(both), edit("web/package.json", "a.py")) == "allow"
    assert outcome(book(both), edit("web/package.json", "Cargo.toml")) == "ask"


# -- limits ------------------------------------------------------------------------------------------------------

SMALL = {"decision": "allow", "max_changed_lines": 10}
CLEAN = {"decision": "allow", "no_new_errors": True}


@pytest.mark.parametrize(
    ("table", "facts", "expected"),
    [
        (SMALL, None, "needs diff"),
        (SMALL, Facts(changed_lines=10), "allow"),
        (SMALL, Facts(changed_lines=11), "ask"),
        (SMALL, Facts(changed_lines=None), "ask"),
        (CLEAN, None, "needs consequences"),
        (CLEAN, Facts(changed_lines=1), "needs consequences"),
        (CLEAN, Facts(1, 0, judged=True, complete=True), "allow"),
        (CLEAN, Facts(1, 1, judged=True, complete=True), "ask"),
        (CLEAN, Facts(1, 0, judged=False, complete=True), "ask"),
        ({**SMALL, **CLEAN}, Facts(changed_lines=11), "ask"),
        ({**SMALL, **CLEAN}, Facts(changed_lines=5), "needs consequences"),
        ({"decision": "deny", "max_changed_lines": 10}, Facts(changed_lines=11), "deny"),
        ({"decision": "deny", "max_changed_lines": 10}, Facts(changed_lines=10), "ask"),
        ({"decision": "deny", "no_new_errors": True}, Facts(1, 2, judged=False, complete=True), "deny"),
    ],
)
def test_limits(table: dict[str, Any], facts: Facts | None, expected: str):
    assert outcome(book(table), edit("a"), facts) == expected


def test_a_preview_is_asked_for_only_by_a_rule_that_could_match():
    rules = book({"step": "format", **CLEAN})
    assert outcome(rules, edit("a")) == "ask"
    assert outcome(rules, ask("read_lines", "a")) == "allow"
    unlimited_first = book({"decision": "allow", "paths": ["docs/**"]}, CLEAN)
    assert outcome(unlimited_first, edit("docs/a")) == "allow"
    assert isinstance(unlimited_first.judge(edit("src/a")), NeedsPreview)


def test_a_deny_that_could_not_be_judged_makes_an_allow_a_question():
    rules = book({"decision": "deny", "no_new_errors": True}, mode="allow")
    unknown = Facts(1, 0, judged=False, complete=True)
    assert outcome(rules, edit("a"), unknown) == "ask"
    assert outcome(rules, edit("a"), Facts(1, 0, judged=True, complete=True)) == "allow"


def test_an_ask_rule_with_a_limit_strikes_when_it_is_broken_or_unknown():
    rules = book({"decision": "ask", "max_changed_lines": 10}, mode="allow")
    assert outcome(rules, edit("a"), Facts(changed_lines=10)) == "allow"
    assert outcome(rules, edit("a"), Facts(changed_lines=11)) == "ask"
    assert outcome(rules, edit("a"), Facts(changed_lines=None)) == "ask"


def preview(introduced: int = 0, pending: bool = False, text: str = " a\n-b\n+c\n+d\n") -> Preview:
    error = Diagnostic("a", "error", "broken", "checker", False)
    return Preview(
        diff="",
        files=[FileChange("a", "modified", "0", [Hunk("h1", 1, 2, 1, 3, text)])],
        normalized=[],
        introduced=[error] * introduced,
        resolved=[error],
        pending=[Pending("slow")] if pending else [],
    )


def test_facts_are_what_the_preview_says_and_nothing_where_it_cannot_know():
    assert facts_of(preview(), edit("a"), complete=False) == Facts(3, 0, judged=False, complete=False)
    assert facts_of(preview(1), edit("a"), complete=True) == Facts(3, 1, judged=True, complete=True)
    assert facts_of(preview(0, pending=True), edit("a"), complete=True) == Facts(3, 0, judged=False, complete=True)
    in_place = ask("format", "a", in_place=True)
    assert facts_of(preview(), in_place, complete=True) == Facts(complete=True)
    empty = Preview("", [], [], [], [], [])
    assert facts_of(empty, ask("bash", command="ls"), complete=True) == Facts(complete=True)


def test_a_resolved_error_never_cancels_an_introduced_one():
    """D2: one introduced, one resolved; a rule `no_new_errors` does not hold."""
    facts = facts_of(preview(1), edit("a"), complete=True)
    assert outcome(book(CLEAN), edit("a"), facts) == "ask"


# -- commands ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "command", "allowed", "concerned"),
    [
        ("git *", "git log -3", True, True),
        ("git *", "git log; rm -rf .", False, True),
        ("git *", "git log > x", False, True),
        ("git *", "git log $(rm x)", False, True),
        ("git *", "git log `rm x`", False, True),
        ("git *", "git log\nrm x", False, True),
        ("git *", "git log && rm x", False, True),
        ("rm *", "cd x && rm -rf y", False, True),
        ("rm *", "echo $(rm y)", False, True),
        ("rm *", "charm school", False, False),
        ("a && b", "a && b", True, True),
        ("pytest", " pytest ", True, True),
        ("pytest", "pytest -q", False, False),
        ("*", "anything at all", True, True),
        ("*", "two; commands", False, True),
    ],
)
def test_commands(pattern: str, command: str, allowed: bool, concerned: bool):
    assert command_allowed(pattern, command) is allowed
    assert command_concerned(pattern, command) is concerned


# -- patterns against patterns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "other", "covered", "overlapping"),
    [
        ("docs/**", "docs/*.md", True, True),
        ("docs/*", "docs/**", False, True),
        ("docs/*", "docs/a*", True, True),
        ("docs/a*", "docs/*", False, True),
        ("**/*.snap", "src/**/*.snap", True, True),
        ("src/**/*.snap", "**/*.snap", False, True),
        ("src/*", "**", False, True),
        ("**", "a/**/b", True, True),
        ("a/*/c", "a/**/c", False, True),
        ("a/*b", "a/c*", False, True),
        ("a/*.py", "a/*.js", False, False),
        ("a/**", "b/**", False, False),
        ("*", "a/*", False, False),
        ("a/**", "a", True, True),
    ],
)
def test_patterns_against_patterns(pattern: str, other: str, covered: bool, overlapping: bool):
    parsed = PathPattern.parse(pattern)
    assert covers(parsed, other) is covered
    assert overlaps(parsed, other) is overlapping


SEGMENT = st.sampled_from(["a", "b", "ab", "*", "a*", "*b", "**"])
PATTERN = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)
NAME = st.sampled_from(["a", "b", "ab", "ba", "aab"])
PATH = st.lists(NAME, min_size=1, max_size=5).map("/".join)


@seed(8011)
@settings(max_examples=600, deadline=None)
@given(PATTERN, PATTERN, PATH)
def test_covering_and_overlapping_agree_with_what_the_patterns_match(left: str, right: str, path: str):
    outer, inner = PathPattern.parse(left), PathPattern.parse(right)
    in_outer, in_inner = outer.matches(path, dot_names=True), inner.matches(path, dot_names=True)
    if in_inner and covers(outer, right):
        assert in_outer
    if in_inner and in_outer:
        assert overlaps(outer, right)


# -- remembering -------------------------------------------------------------------------------------------------


def remembering(question: Question) -> tuple[RuleBook, Rule]:
    rule = remembered_rule(question, always_asks)
    assert rule is not None
    return book(remembered=(rule,)), rule


def test_what_is_remembered_is_scoped_to_agent_session_step_family_and_directory():
    rules, rule = remembering(edit("src/a.py"))
    assert outcome(rules, edit("src/b.py")) == "allow"
    assert outcome(rules, ask("apply_patch", "src/a.py", persists=True)) == "allow"
    assert outcome(rules, ask("write_file", "src/new.py")) == "allow"
    assert outcome(rules, edit("src/deep/b.py")) == "ask"
    assert outcome(rules, edit("src/a.py", agent="other")) == "ask"
    assert outcome(rules, edit("src/a.py", session="s2")) == "ask"
    assert outcome(rules, ask("format", "src/a.py", persists=True)) == "ask"
    assert remember_words(rule) == (
        "Let claude change files directly in src/ without asking, until its session ends; "
        "names that always ask still ask"
    )


def test_six_files_of_one_patch_are_remembered_together():
    paths = ("a.py", "src/b.py", "src/c.py", "src/deep/d.py", "e.py", "docs/f.md")
    rules, _ = remembering(ask("apply_patch", *paths, persists=True))
    for path in paths:
        assert outcome(rules, edit(path)) == "allow"


def test_remembering_never_covers_names_that_always_ask():
    rules, _ = remembering(edit("package.json", "a.py"))
    assert outcome(rules, edit("a.py")) == "allow"
    assert outcome(rules, edit("package.json")) == "ask"
    assert outcome(rules, edit("package.json", "a.py")) == "ask"
    assert remembered_rule(edit("package.json"), always_asks) is None


def test_a_remembered_command_is_that_command_alone():
    rules, rule = remembering(ask("bash", command="pytest -q\x1b[2J"))
    assert outcome(rules, ask("bash", command="pytest -q\x1b[2J")) == "allow"
    assert outcome(rules, ask("bash", command="pytest -q")) == "ask"
    assert remember_words(rule).endswith("pytest -q<U+001B>[2J")


def test_directories_with_odd_names_are_remembered_and_wildcards_in_names_are_not():
    rules, _ = remembering(edit("app/[id]/page.tsx"))
    assert outcome(rules, edit("app/[id]/other.tsx")) == "allow"
    assert outcome(rules, edit("app/i/other.tsx")) == "ask"
    assert remembered_rule(edit("src/*/a.py"), always_asks) is None
    assert remembered_rule(edit("a.py", agent="*"), always_asks) is None
    assert remembered_rule(ask("undo"), always_asks) is None


def test_in_place_engines_are_remembered_apart():
    rules, _ = remembering(ask("format", "src/a.py", persists=True))
    assert outcome(rules, ask("format", "src/a.py", persists=True)) == "allow"
    assert outcome(rules, ask("format", "src/a.py", persists=True, in_place=True)) == "ask"


def kept(question: Question) -> RuleBook:
    """The rules of a configuration into which a person put what was remembered."""
    rule = remembered_rule(question, always_asks)
    assert rule is not None
    table = kept_table(rule)
    assert table is not None
    return book(table)


@pytest.mark.parametrize(
    "question",
    [
        edit("src/a.py"),
        edit("a.py"),
        edit("package.json", "a.py"),
        ask("apply_patch", "a.py", "src/deep/b.py", may_create=("docs/new.md",), persists=True),
        ask("format", "src/a.py", persists=True),
        ask("format", "src/a.py", may_create=("gen/**",), persists=True, in_place=True),
        ask("lint", "src/a.py", fix=True, persists=True),
        ask("write", "src/a.py"),
        ask("undo", "src/a.py"),
        ask("bash", command="make clean && echo $HOME\n./run 'a b'"),
    ],
    ids=lambda question: question.call.step,
)
def test_what_is_kept_for_good_settles_the_same_call_in_every_session(question: Question):
    rules = kept(question)
    expected = "ask" if any(map(always_asks, question.paths)) else "allow"
    assert outcome(rules, replace(question, session="another")) == expected
    assert outcome(rules, replace(question, agent="other")) == "ask"
    assert outcome(rules, edit("elsewhere/a.py")) == "ask"
    assert outcome(rules, ask("bash", command="make")) == "ask"


@pytest.mark.parametrize(
    "question", [edit("app/[id]/page.tsx"), ask("bash", command="rm *.pyc"), ask("bash", command=" ls")]
)
def test_what_a_table_would_say_otherwise_is_not_kept(question: Question):
    """A `*` of a command would become a wildcard, and a pattern refuses brackets."""
    rule = remembered_rule(question, always_asks)
    assert rule is not None
    assert kept_table(rule) is None


# -- tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "decision"),
        ({"decision": "perhaps"}, "allow, ask or deny"),
        ({"decision": "allow", "path": ["a"]}, "did you mean 'paths'"),
        ({"decision": "allow", "paths": []}, "must not be empty"),
        ({"decision": "allow", "paths": ["a?"]}, "paths"),
        ({"decision": "allow", "paths": [1]}, "list of strings"),
        ({"decision": "allow", "step": "edti"}, "did you mean 'edit'"),
        ({"decision": "allow", "fix": "yes"}, "true or false"),
        ({"decision": "allow", "fix": True, "step": "edit"}, "only lint has it"),
        ({"decision": "allow", "max_changed_lines": True}, "an integer"),
        ({"decision": "allow", "max_changed_lines": -1}, "0 or more"),
        ({"decision": "allow", "command": "ls", "paths": ["a"]}, "never matches"),
        ({"decision": "allow", "paths": ["a/**"], "match": ["b/c"]}, "does not match its example 'b/c'"),
        ({"decision": "deny", "paths": ["a/**"], "not_match": ["a/c"]}, "matches its example 'a/c'"),
        ({"decision": "allow", "match": [3]}, "an example is a path"),
        ({"decision": "allow", "match": "a"}, "must be a list"),
        ({"decision": "allow", "match": [{"pth": "a"}]}, "unknown key 'pth'"),
    ],
)
def test_a_table_that_is_wrong_names_the_rule_the_key_and_why(table: dict[str, Any], words: str):
    with pytest.raises(InvalidConfigError, match=r"gate\.rules\[1\]") as caught:
        read_rules([{"decision": "ask"}, table])
    assert words in caught.value.message


def test_examples_are_verified():
    read_rule(
        {
            "decision": "allow",
            "step": "lint",
            "fix": True,
            "paths": ["src/**"],
            "match": ["src/a.py", {"paths": ["src/a.py", "src/b.py"]}],
            "not_match": ["docs/a.py", {"path": "src/a.py", "fix": False}, {"paths": ["src/a.py", "docs/b.py"]}],
        }
    )
    read_rule({"decision": "deny", "command": "rm *", "match": ["rm -rf x", "ls; rm x"], "not_match": ["ls"]})
    read_rule({"decision": "allow", "paths": ["a"], "no_new_errors": True, "agent": "cl*", "match": ["a"]})


def test_the_built_in_rules_can_be_shown():
    shown = [rule.to_wire() for rule in book(ALLOW_DOCS).all_rules()]
    assert shown[0] == {
        "name": "gate.rules[0]",
        "origin": "user",
        "decision": "allow",
        "step": ["edit"],
        "paths": ["docs/**"],
    }
    assert {entry["origin"] for entry in shown} == {"user", "built-in"}
    assert shown[-1]["name"] == "everything that reaches the disk"
