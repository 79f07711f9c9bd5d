"""Hunks as people see and choose them (SPEC 8.0.8, 8.0.10)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.core.changeset import FileChange, Hunk
from devtools_lsp.core.hunks import (
    changed_ranges,
    choose_hunks,
    choose_spans,
    hunk_header,
    hunks_between,
    hunks_from_spans,
    render_unified,
)
from devtools_lsp.core.patch import apply_to_texts, parse_patch
from devtools_lsp.errors import BadArgumentError
from devtools_lsp.text import Span, apply_spans

SEEDED = settings(derandomize=True, deadline=None, max_examples=100)
texts = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "-- x\n", "a"]), max_size=24).map("".join)

TWELVE = "".join(f"l{number}\n" for number in range(1, 13))


def changed(old: str = TWELVE) -> tuple[str, list[Hunk]]:
    new = old.replace("l2\n", "L2\n").replace("l11\n", "L11\nextra\n")
    return new, hunks_between(old, new, path="f")


def test_hunks_show_context_and_counts():
    _, (first, second) = changed()
    assert hunk_header(first) == "@@ -1,5 +1,5 @@"
    assert first.text == " l1\n-l2\n+L2\n l3\n l4\n l5\n"
    assert hunk_header(second) == "@@ -8,5 +8,6 @@"
    assert second.text == " l8\n l9\n l10\n-l11\n+L11\n+extra\n l12\n"


def test_near_changes_share_a_hunk():
    new = TWELVE.replace("l3\n", "L3\n").replace("l10\n", "L10\n")
    assert len(hunks_between(TWELVE, new, path="f")) == 1
    assert len(hunks_between(TWELVE, new, path="f", context=2)) == 2


@pytest.mark.parametrize(
    ("old", "new", "header", "body"),
    [
        pytest.param("", "a\n", "@@ -0,0 +1 @@", "+a\n", id="into an empty file"),
        pytest.param("a\n", "", "@@ -1 +0,0 @@", "-a\n", id="everything goes"),
        pytest.param(
            "a", "a\n", "@@ -1 +1 @@", "-a\n\\ No newline at end of file\n+a\n", id="a final line break arrives"
        ),
        pytest.param(
            "a\nb", "a\nb\nc", "@@ -1,2 +1,3 @@",
            " a\n-b\n\\ No newline at end of file\n+b\n+c\n\\ No newline at end of file\n", id="below an open line",
        ),
        pytest.param("a\rb\n", "a\rc\n", "@@ -1 +1 @@", "-a\rb\n+a\rc\n", id="a lone CR is content"),
    ],
)  # fmt: skip
def test_bodies(old: str, new: str, header: str, body: str):
    (hunk,) = hunks_between(old, new, path="f")
    assert (hunk_header(hunk), hunk.text) == (header, body)


def test_without_context_an_insertion_names_the_line_before():
    (hunk,) = hunks_between("a\nb\n", "a\nx\nb\n", path="f", context=0)
    assert hunk_header(hunk) == "@@ -1,0 +2 @@"


def test_ids_are_the_same_for_the_same_proposal_and_differ_across_files():
    _, ours = changed()
    _, again = changed()
    assert [hunk.id for hunk in ours] == [hunk.id for hunk in again]
    (elsewhere, *_) = hunks_between(TWELVE, changed()[0], path="g")
    assert elsewhere.id != ours[0].id
    repeated = hunks_between("x\n" * 30, "x\n" + "y\n" + "x\n" * 20 + "y\n" + "x\n" * 9, path="f")
    assert len({hunk.id for hunk in repeated}) == len(repeated) == 2


@SEEDED
@given(old=texts, new=texts, context=st.integers(0, 4))
def test_taking_all_hunks_is_the_new_text_and_dropping_all_is_the_old(old: str, new: str, context: int):
    hunks = hunks_between(old, new, path="f", context=context)
    assert choose_hunks(old, hunks, dropped=(), edited={}) == new
    assert choose_hunks(old, hunks, dropped={hunk.id for hunk in hunks}, edited={}) == old
    assert choose_hunks(old, hunks, dropped=(), edited={hunk.id: hunk.text for hunk in hunks}) == new


@SEEDED
@given(old=texts, new=texts, data=st.data())
def test_dropped_hunks_leave_their_lines_alone(old: str, new: str, data: st.DataObject):
    """What is kept and what is dropped, applied one after the other, is the whole change."""
    hunks = hunks_between(old, new, path="f", context=0)
    dropped = [hunk.id for hunk in hunks if data.draw(st.booleans())]
    kept = [hunk.id for hunk in hunks if hunk.id not in dropped]
    spans = choose_spans(old, hunks, dropped=dropped, edited={})
    others = choose_spans(old, hunks, dropped=kept, edited={})
    assert apply_spans(old, sorted([*spans, *others], key=lambda span: (span.start, span.end))) == new


@SEEDED
@given(old=texts, data=st.data())
def test_hunks_of_spans_are_those_of_the_texts(old: str, data: st.DataObject):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(old)), max_size=4)))
    words = st.sampled_from(["", "x", "x\n", "p\nq\n"])
    spans = [Span(start, end, data.draw(words)) for start, end in zip(cuts[::2], cuts[1::2], strict=False)]
    hunks = hunks_from_spans(old, spans, path="f")
    assert choose_hunks(old, hunks, dropped=(), edited={}) == apply_spans(old, spans)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        pytest.param(" l1\n-l2\n+mine\n l3\n l4\n l5\n", "l1\nmine\nl3\n", id="another replacement"),
        pytest.param(" l1\n l2\n l3\n l4\n l5\n", "l1\nl2\nl3\n", id="a removal taken back"),
        pytest.param(" l1\n-l2\n-l3\n l4\n l5\n", "l1\nl4\nl5\n", id="one more line removed"),
        pytest.param("@@ -1,5 +1,5 @@\n l1\n-l2\n+x\n+y\n l3\n l4\n l5\n", "l1\nx\ny\nl3\n", id="with its header"),
        pytest.param(" l1\r\n-l2\r\n+crlf\r\n l3\r\n l4\r\n l5\r\n", "l1\ncrlf\nl3\n", id="with crlf"),
        pytest.param("+top\n l1\n-l2\n l3\n l4\n l5", "top\nl1\nl3\n", id="without final line break"),
    ],
)
def test_a_person_may_rewrite_a_hunk(body: str, outcome: str):
    _, (first, second) = changed()
    text = choose_hunks(TWELVE, [first, second], dropped={second.id}, edited={first.id: body})
    assert text.startswith(outcome)
    assert text.endswith("l10\nl11\nl12\n")


@pytest.mark.parametrize(
    ("body", "line", "says"),
    [
        pytest.param(" l1\n-WRONG\n+x\n l3\n l4\n l5\n", 2, "'l2'", id="an old line changed"),
        pytest.param(" l1\n-l2\n+x\n l3\n l4\n", 6, "'l5'", id="an old line lost"),
        pytest.param(" l1\n-l2\n l3\n l4\n l5\n l6\n", 6, "nothing more", id="an old line too many"),
        pytest.param(" l1\n-l2\nx\n l3\n l4\n l5\n", 3, "'x'", id="no sign"),
        pytest.param("\\ No newline at end of file\n l1\n", 1, "below a line", id="a marker first"),
        pytest.param(
            " l1\n-l2\n+x\n\\ No newline at end of file\n l3\n l4\n l5\n",
            None,
            "not the last",
            id="an open line within",
        ),
    ],
)
def test_a_body_that_is_no_hunk_any_more_is_refused(body: str, line: int | None, says: str):
    _, (first, second) = changed()
    with pytest.raises(BadArgumentError, match=says) as caught:
        choose_hunks(TWELVE, [first, second], dropped=(), edited={first.id: body})
    assert caught.value.reason == "malformed"
    assert caught.value.line == line


def test_a_hunk_is_not_dropped_and_edited_at_once():
    _, (first, second) = changed()
    with pytest.raises(BadArgumentError, match="both"):
        choose_hunks(TWELVE, [first, second], dropped={first.id}, edited={first.id: first.text})


def test_editors_that_strip_trailing_blanks_do_no_harm():
    old = "def f():\n\n    x = 1  \n"
    (hunk,) = hunks_between(old, old.replace("x = 1  ", "x = 2"), path="f")
    stripped = "\n".join(line.rstrip() for line in hunk.text.split("\n"))
    assert choose_hunks(old, [hunk], dropped=(), edited={hunk.id: stripped}) == "def f():\n\n    x = 2\n"


def test_a_line_added_below_an_open_last_line_does_not_join_it():
    (hunk,) = hunks_between("a\nb", "A\nb", path="f")
    body = "-a\n+A\n b\n\\ No newline at end of file\n+c\n"
    assert choose_hunks("a\nb", [hunk], dropped=(), edited={hunk.id: body}) == "A\nb\nc\n"


@pytest.mark.parametrize(
    ("old", "new", "ranges"),
    [
        ("a\nb\nc\n", "a\nB\nc\n", [(2, 2)]),
        ("a\nb\nc\n", "a\nx\ny\nb\nc\n", [(2, 3)]),
        ("a\nb\nc\n", "a\nc\n", [(2, 2)]),
        ("a\nb\nc\n", "a\nb\n", [(2, 2)]),
        ("a\n", "", [(1, 1)]),
        ("", "a\nb\n", [(1, 2)]),
        ("a\nb\nc\nd\n", "A\nb\nc\nD\n", [(1, 1), (4, 4)]),
        ("a\nb\nc\n", "A\nb\n", [(1, 2)]),
        ("a\n", "a\n", []),
    ],
)
def test_changed_ranges_are_lines_as_they_are_now(old: str, new: str, ranges: list[tuple[int, int]]):
    assert changed_ranges(old, new) == ranges


def test_changed_ranges_of_spans():
    spans = [Span(0, 1, "A"), Span(6, 6, "x\n")]
    assert apply_spans("a\nb\nc\n", spans) == "A\nb\nc\nx\n"
    assert changed_ranges("a\nb\nc\n", spans) == [(1, 1), (4, 4)]


def test_a_rendered_diff_has_the_headers_of_git():
    changes = [
        FileChange("new.txt", "added", None, hunks_between("", "a\n", path="new.txt")),
        FileChange("empty.txt", "added", None, []),
        FileChange("old.txt", "deleted", None, hunks_between("a\n", "", path="old.txt")),
        FileChange("to b.txt", "renamed", None, hunks_between("a\n", "b\n", path="to b.txt"), "from.txt"),
        FileChange('q"\t.txt', "renamed", None, [], "plain.txt"),
    ]
    assert render_unified(changes) == (
        "diff --git a/new.txt b/new.txt\nnew file mode 100644\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+a\n"
        "diff --git a/empty.txt b/empty.txt\nnew file mode 100644\n"
        "diff --git a/old.txt b/old.txt\ndeleted file mode 100644\n--- a/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
        "diff --git a/from.txt b/to b.txt\nrename from from.txt\nrename to to b.txt\n"
        "--- a/from.txt\n+++ b/to b.txt\t\n@@ -1 +1 @@\n-a\n+b\n"
        'diff --git a/plain.txt "b/q\\"\\t.txt"\nrename from plain.txt\nrename to "q\\"\\t.txt"\n'
    )


@SEEDED
@given(old=texts, new=texts)
def test_a_rendered_diff_applies_again(old: str, new: str):
    change = FileChange("d/f", "modified", None, hunks_between(old, new, path="d/f"))
    if change.hunks:
        operations = parse_patch(render_unified([change])).operations
        assert apply_to_texts(operations, {"d/f": old}) == {"d/f": new}


def test_git_applies_a_rendered_diff(tmp_path: Path, tool):
    git = tool("git")
    before = {"keep x b/y.txt": TWELVE, "gone.txt": "g", "grün/über.txt": "1\n2\n"}
    after = {"keep x b/y.txt": changed()[0], "grün/ü2.txt": "1\n2\n3", "fresh.txt": "f\n"}
    for name, text in before.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    diff = render_unified(
        [
            FileChange("fresh.txt", "added", None, hunks_between("", "f\n", path="fresh.txt")),
            FileChange("gone.txt", "deleted", None, hunks_between("g", "", path="gone.txt")),
            FileChange("grün/ü2.txt", "renamed", None, hunks_between("1\n2\n", "1\n2\n3", path="n"), "grün/über.txt"),
            FileChange("keep x b/y.txt", "modified", None, changed()[1]),
        ]
    )
    subprocess.run([git, "apply", "-"], input=diff.encode(), cwd=tmp_path, check=True)
    found = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == after
