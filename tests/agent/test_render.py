"""Replies: what is inline, in which order, and that nothing goes missing unsaid."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.agent.artifacts import SpooledJsonArtifact
from devtools_lsp.agent.render import (
    BYTES_PER_TOKEN,
    ENVELOPE_TOKENS,
    decision_lines,
    refusal_text,
    render_reply,
    render_text,
)
from devtools_lsp.core.diagnostics import Diagnostic, Pending
from devtools_lsp.core.result import (
    Change,
    DecisionReport,
    DiagnosticsDelta,
    EngineUse,
    Normalized,
    Read,
    Result,
    Unreadable,
    Written,
)
from devtools_lsp.errors import ConflictError, StepFailedError
from tests.results import result_of

ARTIFACT = SpooledJsonArtifact("h" * 22, 7)


def finding(severity="error", line=1, message="broken", path="src/a.py", **more) -> Diagnostic:
    return Diagnostic(
        path=path, severity=severity, message=message, engine_id="ruff", out_of_scope=False, line=line, **more
    )


def test_an_error_that_went_is_told_before_old_warnings():
    old = [finding("warning", line=line, message="old " * 20) for line in range(1, 200)]
    gone = [*(finding("warning", line=line, message="mended " * 20) for line in range(1, 50)), finding(message="fixed")]
    delta = DiagnosticsDelta(introduced=[], resolved=gone, unchanged=len(old), pending=[])
    reply = render_reply(result_of(diagnostics=old, delta=delta), ARTIFACT, inline_tokens=1000)
    assert reply["delta"]["resolved"][0]["message"] == "fixed"
    assert reply["omitted"]["delta.resolved"]


def test_a_small_result_is_whole():
    full = result_of(
        diagnostics=[finding("warning", 3), finding("error", 9)],
        changes=[Change("src/a.py", "modified", added=3, removed=1), Change("b.py", "renamed", from_="a.py")],
        reads={"a": Read("a", 1, 2, 2, "x\ny\n")},
        delta=DiagnosticsDelta([finding("error", 9)], [], 1, []),
    )
    reply = render_reply(full, ARTIFACT, inline_tokens=2000)
    expected = full.to_wire()
    expected["diagnostics"].reverse()
    assert reply == {
        **expected,
        "summary": "done, with errors: 2 files changed, 1 error, 1 warning; introduced 1, resolved 0, unchanged 1\n"
        "M  src/a.py +3 -1\nR  a.py -> b.py",
        "counts": {"error": 1, "warning": 1, "info": 0},
        "truncated": False,
        "artifact": {"handle": "h" * 22, "total": 7},
    }


def test_nothing_happened():
    reply = render_reply(result_of(), ARTIFACT, inline_tokens=2000)
    assert reply["summary"] == "ok: 0 files changed, nothing was linted or checked"


def test_clean_and_not_judged_are_different_words():
    clean = result_of(delta=DiagnosticsDelta([], [], 0, []))
    assert render_reply(clean, ARTIFACT, inline_tokens=2000)["summary"].startswith("ok: 0 files changed, no findings;")
    unjudged = result_of(delta=DiagnosticsDelta([], [], 0, [Pending(reason="still indexing")]))
    assert render_reply(unjudged, ARTIFACT, inline_tokens=2000)["summary"].startswith("not fully judged: 0 files")


def test_errors_and_what_is_new_come_first():
    old_error, new_error = finding("error", 5), finding("error", 6)
    old_warning, new_warning = finding("warning", 1), finding("warning", 2)
    old_info, new_info = finding("info", 3), finding("info", 4)
    full = result_of(
        diagnostics=[old_info, old_warning, new_warning, old_error, new_error, new_info],
        delta=DiagnosticsDelta([new_info, new_warning, new_error], [], 0, []),
    )
    reply = render_reply(full, ARTIFACT, inline_tokens=2000)
    order = [item["line"] for item in reply["diagnostics"]]
    assert order == [item.line for item in (new_error, old_error, new_warning, new_info, old_warning, old_info)]


def test_when_it_is_cut_the_new_errors_stay():
    old = [finding("error", number, "o" * 50) for number in range(1, 2_000)]
    new = [finding("error", 5_000, "n" * 50), finding("warning", 5_001, "n" * 50)]
    full = result_of(diagnostics=[*old, *new], delta=DiagnosticsDelta(new, [], 0, []))
    reply = render_reply(full, ARTIFACT, inline_tokens=500)
    assert reply["truncated"]
    assert reply["diagnostics"][0]["line"] == 5_000
    assert {item["line"] for item in reply["delta"]["introduced"]} == {5_000, 5_001}
    assert reply["counts"] == {"error": 2_000, "warning": 1, "info": 0}
    assert f"{reply['omitted']['diagnostics']:,} diagnostics" in reply["summary"]
    assert "in the artifact" in reply["summary"]


def test_what_was_read_is_never_cut():
    """The caller chose its size."""
    text = "line of text\n" * 5_000
    full = result_of(reads={"a": Read("a", 1, 5_000, 5_000, text)}, diagnostics=[finding(message="m" * 90)] * 300)
    reply = render_reply(full, ARTIFACT, inline_tokens=100)
    assert reply["reads"]["a"]["text"] == text
    assert reply["truncated"]
    assert not render_reply(result_of(reads=full.reads), ARTIFACT, inline_tokens=100)["truncated"]


def test_a_long_message_is_cut_and_says_so():
    reply = render_reply(result_of(diagnostics=[finding(message="x" * 100_000)]), ARTIFACT, inline_tokens=1000)
    (item,) = reply["diagnostics"]
    assert item["message"].endswith("… (99,400 more characters)")
    assert reply["omitted"] == {"messages": 1}
    assert "1 messages cut short" in reply["summary"]


@pytest.mark.parametrize(
    ("decision", "lines"),
    [
        (None, []),
        ({"approved": True, "edited": [], "dropped": [], "by": "editor"}, []),
        (
            {"approved": True, "edited": [], "dropped": [], "by": "editor", "note": "as you like"},
            ["approved by editor, who says: as you like"],
        ),
        (
            {"approved": True, "edited": ["a.py"], "dropped": ["h2", "h3"], "by": "terminal", "note": "shorter"},
            ["approved by terminal, who changed a.py; left out h2, h3; says: shorter"],
        ),
    ],
)
def test_what_a_person_did_is_said(decision: dict[str, object] | None, lines: list[str]):
    """A model that is shown text alone learns that its edit was not taken as it was."""
    assert decision_lines(decision) == lines


def test_text():
    full = result_of(
        diagnostics=[finding("error", 3, "undefined name", rule="F821", column=5), finding("warning", 9)],
        changes=[Change("src/a.py", "modified", added=1, removed=1)],
        reads={"top": Read("src/a.py", 1, 2, 40, "import os\nimport re\n")},
        delta=DiagnosticsDelta(
            [finding("error", 3, "undefined name", rule="F821", column=5), finding("error", 2, path="src/other.py")],
            [finding("warning", 1, "gone")],
            1,
            [Pending("the deadline passed", path="src/far.py", engine_id="pyright")],
        ),
    )
    reply = render_reply(full, ARTIFACT, inline_tokens=2000)
    assert render_text(reply) == (
        "done, with errors: 1 file changed, 1 error, 1 warning; introduced 2, resolved 1, unchanged 1\n"
        "not judged: 1 item (pending, not clean)\n"
        "M  src/a.py +1 -1\n"
        "src/a.py:3:5: error F821: undefined name [ruff] (new)\n"
        "src/a.py:9: warning: broken [ruff]\n"
        "src/other.py:2: error: broken [ruff] (new)\n"
        "resolved: src/a.py:1: warning: gone [ruff]\n"
        "not judged: src/far.py: the deadline passed\n"
        "--- top lines 1-2 of 40\n"
        "import os\nimport re\n"
    )


# -- the property ------------------------------------------------------------------------------------------------

TEXT = st.one_of(
    st.text(max_size=20),
    st.integers(100, 3_000).map(lambda size: "x" * size),
    st.integers(50, 1_200).map(lambda size: '"\\\n€' * (size // 4)),
)
PATHS = st.one_of(st.sampled_from(["a.py", "src/b.py"]), st.integers(20, 4_000).map(lambda size: "p" * size))
FINDINGS = st.lists(
    st.builds(
        lambda severity, line, message, path: finding(severity, line, message, path),
        st.sampled_from(["error", "warning", "info"]),
        st.integers(1, 10**6),
        TEXT,
        st.one_of(st.none(), PATHS),
    ),
    max_size=30,
)
KINDS = st.sampled_from(["modified", "added", "deleted", "renamed"])
RESULTS = st.builds(
    result_of,
    diagnostics=FINDINGS,
    changes=st.lists(st.builds(Change, PATHS, KINDS, st.one_of(st.none(), PATHS)), max_size=40),
    written=st.lists(st.builds(Written, PATHS, KINDS), max_size=40),
    unwritten=st.lists(PATHS, max_size=10),
    unreadable=st.lists(st.builds(Unreadable, PATHS, TEXT), max_size=5),
    normalized=st.lists(st.builds(Normalized, PATHS, st.just("utf-8 crlf"), st.just("utf-8 lf")), max_size=10),
    engines=st.lists(st.builds(EngineUse, TEXT, TEXT, PATHS), max_size=5),
    reads=st.dictionaries(TEXT, st.builds(Read, PATHS, st.just(1), st.just(2), st.just(2), TEXT), max_size=2),
    delta=st.one_of(
        st.none(),
        st.builds(
            DiagnosticsDelta, FINDINGS, FINDINGS, st.integers(0, 9), st.lists(st.builds(Pending, TEXT), max_size=9)
        ),
    ),
    decision=st.one_of(
        st.none(),
        st.builds(DecisionReport, st.booleans(), st.lists(PATHS, max_size=5), st.lists(TEXT, max_size=5), TEXT, TEXT),
    ),
)


@settings(max_examples=200, deadline=None)
@given(RESULTS, st.sampled_from([0, 1, 100, 500, 2_000, 20_000]))
def test_every_reply_keeps_to_its_budget_and_nothing_is_dropped_unsaid(full: Result, inline_tokens: int):
    reply = render_reply(full, ARTIFACT, inline_tokens=inline_tokens)
    spent = len(msgspec.json.encode({**reply, "reads": {}}))
    assert spent <= (inline_tokens + ENVELOPE_TOKENS) * BYTES_PER_TOKEN
    omitted = reply.get("omitted", {})
    assert reply["truncated"] == bool(omitted)
    whole = full.to_wire()
    assert set(whole) <= set(reply)
    assert reply["reads"] == whole["reads"]
    for name in ("diagnostics", "changes", "written", "unwritten", "unreadable", "normalized", "engines"):
        assert len(reply[name]) + omitted.get(name, 0) == len(whole[name])
    if full.delta is not None:
        for name in ("introduced", "resolved", "pending"):
            assert len(reply["delta"][name]) + omitted.get(f"delta.{name}", 0) == len(whole["delta"][name])
        assert reply["delta"]["unchanged"] == full.delta.unchanged
    if full.decision is not None:
        assert reply["decision"]["approved"] == full.decision.approved
        assert reply["decision"] == whole["decision"] or "decision" in omitted
    assert sum(reply["counts"].values()) == len(full.diagnostics)
    for number in omitted.values():
        assert f"{number:,} " in reply["summary"]
    for field in ("plan", "ok", "lineCountsAvailable", "atomic"):
        assert reply[field] == whole[field]
    render_text(reply)


def test_a_refusal_in_words_is_complete():
    error = ConflictError(
        "someone else changed it",
        reason="stale",
        step="edit",
        path="a.py",
        line=3,
        paths=["a.py", "b.py"],
        written=[{"path": "c.py", "kind": "modified"}],
        matches=[{"path": "a.py", "line": 7}],
        alternatives=["lint"],
        note="ask me first",
    )
    assert refusal_text(error).splitlines() == [
        "E_DEV_CONFLICT (stale): someone else changed it",
        "at: edit a.py:3",
        "fits at: a.py:7",
        "files: a.py, b.py",
        "instead: lint",
        "already on disk: c.py (modified)",
        "the person says: ask me first",
        "the call may be repeated",
    ]
    assert refusal_text(StepFailedError("no")) == "E_DEV_STEP_FAILED: no\ncorrect the call and repeat it"


def test_a_new_member_of_a_result_is_not_forgotten_in_cut_replies():
    """Whoever adds a field decides what a cut reply does with it, here and in `render.py`."""
    absent = {"delta", "decision"}
    cut = render_reply(result_of(diagnostics=[finding()] * 500), ARTIFACT, inline_tokens=100)
    fields = {field.encode_name for field in msgspec.structs.fields(Result)}
    assert fields - absent == set(cut) - {"summary", "counts", "truncated", "artifact", "omitted"}


@pytest.mark.parametrize("count", [10_000])
def test_a_large_result_is_cut_quickly(count: int):
    """No more than 20 ms of the loop, whatever the checkers found."""
    import time

    full = result_of(
        diagnostics=[finding(("error", "warning", "info")[n % 3], n, f"finding {n}") for n in range(count)],
        delta=DiagnosticsDelta([], [], 0, []),
    )
    best = 1.0
    for _ in range(5):
        began = time.process_time()
        render_reply(full, ARTIFACT, inline_tokens=2000)
        best = min(best, time.process_time() - began)
    assert best < 0.02
