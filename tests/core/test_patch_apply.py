"""Where hunks go and what a patch makes of files (SPEC 3.6.3, 3.6.4, 3.0.4)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.core.hunks import hunks_between
from devtools_lsp.core.patch import (
    AddFile,
    DeleteFile,
    ParsedPatch,
    PatchHunk,
    PatchLine,
    UpdateFile,
    apply_hunks,
    apply_operations,
    apply_to_texts,
    parse_patch,
)
from devtools_lsp.core.workspace import FileText
from devtools_lsp.errors import BadArgumentError, DevToolsError, StepFailedError
from devtools_lsp.text import UTF8_LF, TextForm, apply_spans, decode, split_endings

SEEDED = settings(derandomize=True, deadline=None, max_examples=100)


def update(*lines: str, path: str = "f") -> str:
    return "\n".join(["*** Begin Patch", f"*** Update File: {path}", *lines, "*** End Patch"])


def applied(text: str, patch: str) -> tuple[str, list[str]]:
    """One file's text after a patch, and what its notes say."""
    outcome = apply_operations(parse_patch(patch).operations, {"f": FileText(*split_endings(text))})
    notes = [note.message for note in outcome.notes]
    assert all(note.severity == "info" and note.path == "f" and note.engine_id is None for note in outcome.notes)
    return apply_to_texts(parse_patch(patch).operations, {"f": text})["f"], notes


def refused(text: str, patch: str) -> StepFailedError:
    with pytest.raises(StepFailedError) as caught:
        applied(text, patch)
    assert (caught.value.step, caught.value.path) == ("apply_patch", "f")
    return caught.value


TWO_FUNCTIONS = "def a():\n    x = 1\n    return x\n\n\ndef b():\n    x = 1\n    return x\n"
CLASSES = (
    "class A:\n    def run(self):\n        go()\n\n    def stop(self):\n        pass\n\n"
    "class B:\n    def run(self):\n        go()\n\n    def stop(self):\n        pass\n"
)
BRACES = "int main()\n{\n    go();\n}\n\nvoid other()\n{\n    go();\n}\n"
HEADINGS = "# One\n- item\n- item two\n\n# Two\n- item\n- item two\n"


@pytest.mark.parametrize(
    ("text", "patch", "after"),
    [
        pytest.param("a\nb\nc\n", update("-b", "+B"), "a\nB\nc\n", id="a removed line is context enough"),
        pytest.param("a\nb\n", update(" a", " b"), "a\nb\n", id="context alone changes nothing"),
        pytest.param("a\nb\nc\n", update(" a", "+x", " b"), "a\nx\nb\nc\n", id="between two lines"),
        pytest.param("a\nb\n", update("+x", " a"), "x\na\nb\n", id="before the first line"),
        pytest.param("a\nb\n", update("-a", "-b"), "", id="all lines removed"),
        pytest.param("", update("@@", "+x"), "x\n", id="into an empty file"),
        pytest.param("a\n", update("+x", "*** End of File"), "a\nx\n", id="appended"),
        pytest.param("a", update("+x", "*** End of File"), "a\nx", id="appended to an open line"),
        pytest.param("x\na\nx\n", update(" x", "+y", "*** End of File"), "x\na\nx\ny\n", id="the end settles it"),
        pytest.param("a\nb", update("-b", "+B"), "a\nB", id="an open last line stays open"),
        pytest.param("a\nb", update(" a", "-b"), "a", id="an open last line removed"),
        pytest.param("b", update("-b"), "", id="the only, open line removed"),
        pytest.param("a\nb", update("-a", "+A", " b"), "A\nb", id="above an open last line"),
        pytest.param("a\n1\na\n2\n", update(" a", "-2", "+3"), "a\n1\na\n3\n", id="the whole context decides"),
        pytest.param("p\nq\nr\n", update("@@", "-r", "+R", "@@", "-p", "+P"), "P\nq\nR\n", id="out of order"),
        pytest.param("x\nx\n", update("@@", "-x", "-x", "+y"), "y\n", id="lines that repeat"),
        pytest.param("p\nx\nq\nx\n", update("@@", " p", "-x", "@@", "-x", "+y"), "p\nq\ny\n", id="claims settle it"),
        pytest.param(
            "a\nb\nc\n", update("@@", "-a", "+A", " b", "@@", " b", "-c", "+C"), "A\nb\nC\n", id="context shared"
        ),
        pytest.param(
            "a\nb\n", update("@@", " a", "+x", "@@", " a", "+y"), "a\nx\ny\nb\n", id="two additions at one place"
        ),
        pytest.param("a\r\nb\r\n", update("-b", "+B", "+c"), "a\r\nB\r\nc\r\n", id="crlf"),
        pytest.param("a\r\nb\nc\r\n", update("-b", "+B", "+x", " c"), "a\r\nB\nx\r\nc\r\n", id="mixed"),
        pytest.param("a\rb\nc\n", update(" a\rb", "-c", "+d"), "a\rb\nd\n", id="lone CR"),
        pytest.param("a\fb\n", update("-a\fb", "+\u2028"), "\u2028\n", id="form feed and separator"),
    ],
)
def test_exact_places(text: str, patch: str, after: str):
    assert applied(text, patch) == (after, [])


@pytest.mark.parametrize(
    ("text", "patch", "after"),
    [
        pytest.param(
            TWO_FUNCTIONS, update("@@ def b():", "-    x = 1", "+    x = 2"),
            TWO_FUNCTIONS[:-23] + "    x = 2\n    return x\n", id="the second of two",
        ),
        pytest.param(
            TWO_FUNCTIONS, update("@@ def a():", "-    x = 1", "+    x = 2"),
            TWO_FUNCTIONS.replace("x = 1", "x = 2", 1), id="the first of two",
        ),
        pytest.param(
            TWO_FUNCTIONS, update("@@ def b():", " def b():", "-    x = 1", "+    x = 2"),
            TWO_FUNCTIONS[:-23] + "    x = 2\n    return x\n", id="the anchor repeated as context",
        ),
        pytest.param(
            TWO_FUNCTIONS, update("@@ def b():", "+    y = 0"),
            TWO_FUNCTIONS.replace("def b():\n", "def b():\n    y = 0\n"), id="an addition below its anchor",
        ),
        pytest.param(
            CLASSES, update("@@ class B:", "@@     def run(self):", "-        go()", "+        halt()"),
            CLASSES[:-54] + CLASSES[-54:].replace("go()", "halt()"), id="nested anchors",
        ),
        pytest.param(
            CLASSES, update("@@ class A:", "-        go()", "+        halt()"),
            CLASSES.replace("go()", "halt()", 1), id="the block of a class",
        ),
        pytest.param(
            HEADINGS, update("@@ # One", "-- item", "+- thing"),
            HEADINGS.replace("- item\n", "- thing\n", 1), id="a section under a heading",
        ),
        pytest.param(
            BRACES, update("@@ void other()", "-    go();", "+    stop();"),
            BRACES[:-11] + BRACES[-11:].replace("go", "stop"), id="a block in braces",
        ),
        pytest.param(
            "one\ntwo\nthree\n", update("@@ one", "-three", "+3"), "one\ntwo\n3\n", id="anything further down",
        ),
    ],
)  # fmt: skip
def test_anchors_scope_what_follows(text: str, patch: str, after: str):
    assert applied(text, patch) == (after, [])


@pytest.mark.parametrize(
    ("text", "patch", "after", "note"),
    [
        pytest.param("a  \nb\n", update(" a", "-b", "+c"), "a  \nc\n", "trailing blanks", id="trailing blanks"),
        pytest.param("\ta\nb\n", update("     a", "-b", "+c"), "\ta\nc\n", "surrounding blanks", id="tab for blanks"),
        pytest.param("“a” – …\nc\n", update(' "a" - ...', "-c", "+d"), "“a” – …\nd\n", "typographic", id="quotes"),
        pytest.param("a\u00a0b\nc\n", update(" a b", "-c", "+d"), "a\u00a0b\nd\n", "typographic", id="no-break space"),
        pytest.param("  x\n", update("-x", "+y"), "y\n", "surrounding blanks", id="a removed line"),
        pytest.param("x \ny\nx\ny\n", update(" x", "-y", "+z"), "x \ny\nx\nz\n", None, id="an exact place is better"),
        pytest.param(
            "def f(a, b):  # why\n    x\ndef g():\n    x\n", update("@@ def f(a, b):", "-    x", "+    y"),
            "def f(a, b):  # why\n    y\ndef g():\n    x\n", "@@ line by its beginning", id="an anchor cut short",
        ),
        pytest.param(
            "class C:\n    def f(self):\n        x\n", update("@@ def f(self):", "-        x", "+        y"),
            "class C:\n    def f(self):\n        y\n", "@@ line without surrounding", id="an anchor not indented",
        ),
        pytest.param(
            "def f():\n    a\ndef g():\n    b\n", update("@@ def f():", "-    b", "+    c"),
            "def f():\n    a\ndef g():\n    c\n", "behind the block", id="behind the block of its anchor",
        ),
        pytest.param("a\nb\n", update("-b", "+c", " "), "a\nc\n", "empty line", id="the empty line behind the last"),
        pytest.param("a\nb\n", update("-b", "+c", " ", " "), None, None, id="two empty lines are one too many"),
    ],
)  # fmt: skip
def test_tolerance_never_rewrites_context(text: str, patch: str, after: str | None, note: str | None):
    """SPEC 3.6.3: a looser match is an info diagnostic, and kept lines keep their bytes."""
    if after is None:
        assert refused(text, patch).reason == "noMatch"
        return
    result, notes = applied(text, patch)
    assert result == after
    assert len(notes) == (note is not None)
    assert all(note in message for message in notes if note)


def numbered(header: str, *body: str) -> str:
    return "\n".join(["--- a/f", "+++ b/f", header, *body, ""])


@pytest.mark.parametrize(
    ("text", "patch", "after"),
    [
        pytest.param("x\nx\nx\n", numbered("@@ -2 +2 @@", "-x", "+y"), "x\ny\nx\n", id="the number settles a tie"),
        pytest.param("a\nb\nc\n", numbered("@@ -9 +9 @@", "-b", "+B"), "a\nB\nc\n", id="a wrong number is no obstacle"),
        pytest.param("x\n1\n2\n3\nx\n", numbered("@@ -4 +4 @@", "-x", "+y"), "x\n1\n2\n3\ny\n", id="the nearest place"),
        pytest.param("a\nb\n", numbered("@@ -1,0 +2 @@", "+x"), "a\nx\nb\n", id="an insertion without context"),
        pytest.param("a\nb\n", numbered("@@ -0,0 +1 @@", "+x"), "x\na\nb\n", id="an insertion at the top"),
        pytest.param("a\nb\n", numbered("@@ -2,0 +3 @@", "+x"), "a\nb\nx\n", id="an insertion at the end"),
        pytest.param(
            "new\nx\n1\nx\n2\nx\n",
            numbered("@@ -2 +2 @@", "-1", "+one", "@@ -3 +3 @@", "-x", "+y"),
            "new\nx\none\ny\n2\nx\n",
            id="later numbers drift with earlier hunks",
        ),
        pytest.param("a", numbered("@@ -1 +1 @@", "-a", "\\ No newline at end of file", "+b"), "b\n", id="closed"),
        pytest.param("a\n", numbered("@@ -1 +1 @@", "-a", "+b", "\\ No newline at end of file"), "b", id="opened"),
        pytest.param(
            "a", numbered("@@ -1 +1 @@", "-a", "\\ No newline at end of file", "+a"), "a\n", id="only the line break"
        ),
        pytest.param("a\nb", numbered("@@ -1,2 +1,2 @@", "-a", "+A", " b", "\\ No newline"), "A\nb", id="open, kept"),
        pytest.param("a\nb\n", numbered("@@ -1,2 +1,2 @@", "-a", "+A", " b", "\\ No newline"), "A\nb\n", id="not so"),
        pytest.param("a\nb", numbered("@@ -1,2 +1 @@", " a", "-b", "\\ No newline"), "a\n", id="an open line removed"),
        pytest.param("a\r\nb", numbered("@@ -2 +2 @@", "-b", "\\ No newline", "+b"), "a\r\nb\r\n", id="crlf closed"),
    ],
)
def test_line_numbers_and_open_ends(text: str, patch: str, after: str):
    assert applied(text, patch)[0] == after


@pytest.mark.parametrize(
    ("text", "patch", "lines", "says"),
    [
        pytest.param("x\ny\nx\n", update("-x", "+z"), [1, 3], "@@ line", id="twice"),
        pytest.param("x\n" * 50, update("-x", "+z"), list(range(1, 21)), "and more", id="often"),
        pytest.param("x\n1\nx\n", numbered("@@ -2 +2 @@", "-x", "+y"), [1, 3], "2 places", id="equally near"),
        pytest.param(" x\nx \n", update("-\tx", "+z"), [1, 2], "2 places", id="at a loose tier"),
        pytest.param(
            "def f():\n    x\n    x\n", update("@@ def f():", "-    x"), [2, 3], "more telling", id="in a block"
        ),
        pytest.param("f\n1\nf\n2\n", update("@@ f", "+x"), [2, 4], "2 places", id="two anchors for an addition"),
        pytest.param("f\n x\nf\n x\n", update("@@ f", "- x"), [2, 4], "2 places", id="two anchors with the lines"),
    ],
)
def test_equally_good_places_are_listed(text: str, patch: str, lines: list[int], says: str):
    error = refused(text, patch)
    assert error.reason == "ambiguous"
    assert error.matches == [{"path": "f", "line": line} for line in lines]
    assert says in error.message


@pytest.mark.parametrize(
    ("text", "patch", "line", "says"),
    [
        pytest.param("a\nb\nc\n", update(" a", "-B", "+x"), 2, ["'b'", "'B'"], id="the differing line"),
        pytest.param("a\n  b\n c d\n", update(" a", " b", "-c  d"), 3, ["1 blank", "2 blanks"], id="not what passes"),
        pytest.param("a\nb\u200b\n", update(" a", "-b"), 2, ["U+200B"], id="an invisible character"),
        pytest.param(
            "a\nb\n", update(" a", " b", "-c"), 2, ["ends where the patch goes on with 'c'"], id="past the end"
        ),
        pytest.param("q\n" * 30, numbered("@@ -7 +7 @@", "-zz", "+y"), 7, ["'q'", "'zz'"], id="by the number at least"),
        pytest.param("q\n" * 30 + "f\nr\n", update("@@ f", "-zz"), 32, ["'r'", "'zz'"], id="by the anchor at least"),
        pytest.param("q\n" * 30, update("-zz"), 1, ["'q'", "'zz'"], id="or by the first line"),
        pytest.param("", update("-a"), None, ["empty"], id="an empty file"),
        pytest.param("f\nx\n", update("@@ g", "-x"), 1, ["no line is 'g'"], id="no anchor"),
        pytest.param(
            "x\nf\n", update("@@ f", "-x"), 1, ["before line 2", "@@ line names"], id="only before the anchor"
        ),
        pytest.param("x\ny\n", update("-x", "*** End of File"), 1, ["not the end"], id="not at the end"),
        pytest.param("x\n", update("@@", "-x", "@@", "-x"), 1, ["earlier hunk"], id="taken by an earlier hunk"),
        pytest.param("a\nb\n", update("@@", "-a", "@@", " a", "-b"), 1, ["earlier hunk"], id="context that is gone"),
        pytest.param("a\n", update("+x"), None, ["does not say where"], id="an addition anywhere"),
        pytest.param("a\n", numbered("@@ -7,0 +8 @@", "+x"), None, ["has 1 lines"], id="an addition past the end"),
        pytest.param(
            "a\nb\n", numbered("@@ -1 +1 @@", "-a", "\\ No newline", "+x"), 1, ["not the end"], id="open but within"
        ),
    ],
)
def test_no_place_names_the_first_differing_line(text: str, patch: str, line: int | None, says: list[str]):
    error = refused(text, patch)
    assert (error.reason, error.line) == ("noMatch", line)
    for words in says:
        assert words in error.message
    assert "patch line" in error.message


# -- whole patches -----------------------------------------------------------------------------------------------

FILES = {"a": "1\n", "b": "2\n", "c": "3\n"}


def hunk(*rows: str) -> PatchHunk:
    return PatchHunk(tuple(PatchLine(row[0], row[1:]) for row in rows))


def move(old: str, new: str) -> UpdateFile:
    return UpdateFile(old, (), new)


@pytest.mark.parametrize(
    ("operations", "after"),
    [
        pytest.param([AddFile("d/e", "x")], {**FILES, "d/e": "x"}, id="add"),
        pytest.param([DeleteFile("a")], {"b": "2\n", "c": "3\n"}, id="delete"),
        pytest.param([UpdateFile("a", (), "d")], {"b": "2\n", "c": "3\n", "d": "1\n"}, id="move"),
        pytest.param([UpdateFile("a", (), "a")], FILES, id="move to itself"),
        pytest.param([DeleteFile("b"), UpdateFile("a", (), "b")], {"b": "1\n", "c": "3\n"}, id="onto a deleted one"),
        pytest.param([UpdateFile("a", (), "b"), DeleteFile("b")], {"b": "1\n", "c": "3\n"}, id="deleted afterwards"),
        pytest.param([move("b", "d"), move("a", "b")], {"b": "1\n", "c": "3\n", "d": "2\n"}, id="moved along"),
        pytest.param([move("a", "b"), move("b", "d")], {"b": "1\n", "c": "3\n", "d": "2\n"}, id="pushed along"),
        pytest.param([move("a", "b"), move("b", "a")], {"a": "2\n", "b": "1\n", "c": "3\n"}, id="exchanged"),
        pytest.param(
            [UpdateFile("a", (hunk("-1", "+x"),), "b"), UpdateFile("b", (), "c"), UpdateFile("c", (), "a")],
            {"a": "3\n", "b": "x\n", "c": "2\n"}, id="round",
        ),
        pytest.param([move("a", "d"), move("d", "e")], {"b": "2\n", "c": "3\n", "e": "1\n"}, id="chain"),
        pytest.param([move("a", "d"), move("d", "a")], FILES, id="there and back"),
        pytest.param([UpdateFile("a", (), "d"), AddFile("a", "n\n")], {**FILES, "a": "n\n", "d": "1\n"}, id="taken"),
        pytest.param([DeleteFile("a"), AddFile("a", "n\n")], {**FILES, "a": "n\n"}, id="replaced"),
        pytest.param([AddFile("d", "x\n"), UpdateFile("d", (hunk("-x", "+y"),))], {**FILES, "d": "y\n"}, id="updated"),
        pytest.param([AddFile("d", "x\n"), DeleteFile("d")], FILES, id="add, delete"),
        pytest.param(
            [UpdateFile("a", (hunk("-1", "+x"),)), UpdateFile("a", (hunk("-x", "+y"),))], {**FILES, "a": "y\n"}, id="2x"
        ),
        pytest.param([DeleteFile("a", (hunk("-1"),))], {"b": "2\n", "c": "3\n"}, id="delete what is shown"),
    ],
)  # fmt: skip
def test_whole_patches(operations: list[AddFile | DeleteFile | UpdateFile], after: dict[str, str]):
    assert apply_to_texts(operations, FILES) == after
    outcome = apply_operations(operations, {path: FileText(text) for path, text in FILES.items()})
    carried = {path: text for path, text in FILES.items() if path not in outcome.deleted}
    carried = {outcome.renamed.get(path, path): text for path, text in carried.items()}
    for old, spans in outcome.spans.items():
        target = outcome.renamed.get(old, old)
        carried[target] = apply_spans(FILES[old], spans)
        assert outcome.changed[target].text == carried[target]
    assert {**carried, **{path: content.text for path, content in outcome.added.items()}} == after
    assert set(outcome.added).isdisjoint(outcome.changed)
    assert set(outcome.deleted).isdisjoint(outcome.renamed)


@pytest.mark.parametrize(
    ("operations", "kind", "reason", "path"),
    [
        pytest.param([AddFile("a", "")], StepFailedError, "exists", "a", id="add over a file"),
        pytest.param(
            [AddFile("a", ""), DeleteFile("a")], StepFailedError, "exists", "a", id="add over one deleted later"
        ),
        pytest.param([UpdateFile("a", (), "b")], StepFailedError, "exists", "b", id="move onto a file"),
        pytest.param([AddFile("d", ""), UpdateFile("a", (), "d")], StepFailedError, "exists", "d", id="onto a new one"),
        pytest.param([UpdateFile("d", (hunk("-x"),))], BadArgumentError, "notFound", "d", id="update a missing one"),
        pytest.param([DeleteFile("d")], BadArgumentError, "notFound", "d", id="delete a missing one"),
        pytest.param([UpdateFile("d", (), "e")], BadArgumentError, "notFound", "d", id="move a missing one"),
        pytest.param([DeleteFile("a"), DeleteFile("a")], BadArgumentError, "notFound", "a", id="delete twice"),
        pytest.param([UpdateFile("a", (), "d"), DeleteFile("a")], BadArgumentError, "notFound", "a", id="moved away"),
        pytest.param([UpdateFile("a", (hunk("-9"),))], StepFailedError, "noMatch", "a", id="no place"),
        pytest.param([DeleteFile("a", (hunk("-9"),))], StepFailedError, "noMatch", "a", id="delete another text"),
    ],
)
def test_an_operation_that_cannot_be_done_refuses_the_patch(
    operations, kind: type[DevToolsError], reason: str, path: str
):
    files = {path: FileText(text) for path, text in FILES.items()}
    with pytest.raises(kind) as caught:
        apply_operations([UpdateFile("c", (hunk("-3", "+4"),)), *operations], files)
    assert (caught.value.reason, caught.value.path, caught.value.step) == (reason, path, "apply_patch")
    assert {path: content.text for path, content in files.items()} == FILES


def test_a_deletion_must_show_the_whole_file():
    with pytest.raises(StepFailedError, match="whole file"):
        apply_to_texts([DeleteFile("a", (hunk("-x"),))], {"a": "x\ny\n"})


@pytest.mark.parametrize("order", [1, -1])
def test_hunks_that_contradict_each_other_are_refused(order: int):
    parts = ["@@ -1,2 +0,0 @@\n-a\n-b\n", "@@ -1,0 +2 @@\n+x\n"]
    with pytest.raises(StepFailedError, match="join them into one"):
        apply_to_texts(parse_patch("--- a/f\n+++ b/f\n" + "".join(parts[::order])).operations, {"f": "a\nb\nc\n"})


def test_forms_are_kept_and_new_files_get_the_plain_one():
    files = {"a": FileText(*split_endings("1\r\n2\r\n")), "b": FileText(*split_endings("x\r\n"))}
    patch = [UpdateFile("a", (hunk("-2", "+3"),), "d"), AddFile("n", "n\n"), DeleteFile("b"), AddFile("b", "y\nz\n")]
    outcome = apply_operations(patch, files)
    assert outcome.changed["d"].to_bytes("preserve") == b"1\r\n3\r\n"
    assert outcome.added["n"].form == UTF8_LF
    assert outcome.changed["b"].to_bytes("preserve") == b"y\r\nz\r\n"
    assert apply_to_texts(patch, {"a": "1\r\n2\r\n", "b": "x\r\n"}) == {
        "d": "1\r\n3\r\n",
        "n": "n\n",
        "b": "y\r\nz\r\n",
    }


def test_a_byte_order_mark_is_not_seen_even_where_a_diff_shows_it():
    files = {"a": FileText(*decode("\ufeffone\ntwo\n".encode()))}
    for rows in [("-one", "+1"), ("-\ufeffone", "+\ufeff1"), (" \ufeffone", "-two", "+2")]:
        outcome = apply_operations([UpdateFile("a", (hunk(*rows),))], files)
        assert outcome.changed["a"].to_bytes("preserve").count("\ufeff".encode()) == 1
        assert "\ufeff" not in outcome.changed["a"].text
    assert apply_operations([DeleteFile("a", (hunk("-\ufeffone", "-two"),))], files).deleted == ("a",)
    added = apply_operations([AddFile("n", "\ufeffx\n")], {}).added["n"]
    assert (added.text, added.form) == ("x\n", TextForm(bom=True))
    assert parse_patch("\ufeff" + update("-x")) == parse_patch(update("-x"))


def test_notes_speak_of_files_as_they_are_called_afterwards():
    patch = [UpdateFile("a", (hunk("-1", "+2"),), "d")]
    outcome = apply_operations(patch, {"a": FileText(" 1\n")})
    assert [note.path for note in outcome.notes] == ["d"]


def test_hunks_can_be_applied_to_a_plain_text_whose_endings_stay():
    assert apply_hunks("a\r\nb\nc\r\n", [hunk("-b", "+B", "+x")]) == "a\r\nB\nx\r\nc\r\n"
    with pytest.raises(StepFailedError, match=r"notes\.md"):
        apply_hunks("a\n", [hunk("-b")], path="notes.md")


# -- properties --------------------------------------------------------------------------------------------------

lines = st.lists(st.sampled_from(["a", "b", "c", "", "  a", "d "]), max_size=16)
texts = st.builds(lambda rows, end: "\n".join(rows) + end, lines, st.sampled_from(["", "\n"]))


def between(old: str, new: str, context: int) -> list[PatchHunk]:
    """The hunks that a diff of two texts gives."""
    body = "".join(
        f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@\n{hunk.text}"
        for hunk in hunks_between(old, new, path="f", context=context)
    )
    (operation,) = parse_patch("--- a/f\n+++ b/f\n" + body).operations
    assert isinstance(operation, UpdateFile)
    return list(operation.hunks)


@SEEDED
@given(old=texts, new=texts, context=st.integers(0, 3))
def test_a_diff_applied_and_inverted_is_nothing(old: str, new: str, context: int):
    if old == new:
        return
    assert apply_hunks(old, between(old, new, context)) == new
    assert apply_hunks(new, between(new, old, context)) == old


@SEEDED
@given(old=texts, new=texts, above=lines)
def test_a_diff_applies_where_its_text_has_moved(old: str, new: str, above: list[str]):
    """Numbers are off by as many lines as came above; the context still leads there when it is unique."""
    if old == new:
        return
    shifted = "".join(f"{row}!\n" for row in above)
    assert apply_hunks(shifted + old, between(old, new, 99)) == shifted + new or not old


@SEEDED
@given(raw=st.lists(st.sampled_from(["a\n", "b\r\n", "c\n", "d\r\n"]), max_size=12).map("".join), data=st.data())
def test_untouched_lines_keep_their_endings(raw: str, data: st.DataObject):
    """I15: a patch changes no byte of a line that it keeps."""
    rows = raw.splitlines(keepends=True)
    if not rows:
        return
    at = data.draw(st.integers(0, len(rows) - 1))
    plain = [row.rstrip("\r\n") for row in rows]
    patch = hunk(*(f" {row}" for row in plain[:at]), f"-{plain[at]}", "+new", *(f" {row}" for row in plain[at + 1 :]))
    result = apply_hunks(raw, [patch]).splitlines(keepends=True)
    assert result[:at] == rows[:at]
    assert result[at + 1 :] == rows[at + 1 :]
    assert result[at] == "new" + rows[at][1:]


paths = st.sampled_from(["a", "b", "d/c", "é x", 'q"t'])
rows = st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), max_size=5).filter(
    lambda row: not row.endswith("\r")
)
hunks = st.builds(
    PatchHunk,
    lines=st.lists(st.builds(PatchLine, st.sampled_from(" -+"), rows), min_size=1, max_size=4).map(tuple),
    anchors=st.lists(st.sampled_from(["def f():", "  x", "class C"]), max_size=2).map(tuple),
    at_end=st.booleans(),
)
operations = st.one_of(
    st.builds(AddFile, paths, st.lists(rows, max_size=4).map(lambda found: "".join(row + "\n" for row in found))),
    st.builds(DeleteFile, paths),
    st.builds(UpdateFile, paths, st.lists(hunks, min_size=1, max_size=3).map(tuple), st.none() | paths),
)


@SEEDED
@given(st.lists(operations, min_size=1, max_size=5))
def test_a_rendered_envelope_parses_to_the_same(found: list[AddFile | DeleteFile | UpdateFile]):
    patch = ParsedPatch(tuple(found), "envelope")
    assert parse_patch(patch.render()) == patch
    assert parse_patch(f"```\n{patch.render()}```") == patch


@SEEDED
@given(st.lists(operations, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_a_rendered_diff_parses_to_the_same(found: list[AddFile | DeleteFile | UpdateFile], draw):
    plain: list[AddFile | DeleteFile | UpdateFile] = []
    for operation in found:
        if isinstance(operation, UpdateFile):
            counted = tuple(PatchHunk(hunk.lines, start=draw.randrange(1, 99)) for hunk in operation.hunks)
            target = None if operation.move_to == operation.path else operation.move_to
            plain.append(UpdateFile(operation.path, counted, target))
        else:
            plain.append(operation)
    patch = ParsedPatch(tuple(plain), "unified")
    assert parse_patch(patch.render()) == patch


PIECES = [
    "*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Update File: f", "*** Delete File: b", "*** Move to: c",
    "*** End of File", "@@", "@@ x", "@@ -1,2 +1,2 @@", "@@ -0,0 +1 @@", "@@ -2 +2 @@ y", " x", "-x", "+y", "-y", " ",
    "",
    "+", "\\ No newline at end of file", "--- a/f", "+++ b/f", "+++ /dev/null", "--- /dev/null", "diff --git a/f b/f",
    "rename from f", "rename to g", "new file mode 100644", "deleted file mode 100644", "```", "-- ", "2.1", "  x",
    "-“x",
    '--- "a/f"', "EOF", "apply_patch <<EOF", "\r", "\ufeff", "Binary files a/f and b/f differ",
]  # fmt: skip
FRAMES = [
    "{}",
    "*** Begin Patch\n*** Update File: f\n{}\n*** End Patch",
    "--- a/f\n+++ b/f\n{}",
    "--- a/f\n+++ b/f\n@@\n{}",
]


@settings(derandomize=True, deadline=None, max_examples=250)
@given(
    frame=st.sampled_from(FRAMES),
    pieces=st.lists(st.sampled_from(PIECES), max_size=9),
    text=st.lists(st.sampled_from(["x\n", "y\n", "\n", " x\n", "“x\n", "x"]), max_size=5).map("".join),
)
def test_any_patch_applies_or_is_refused_with_a_place(frame: str, pieces: list[str], text: str):
    patch = frame.format("\n".join(pieces))
    try:
        parsed = parse_patch(patch)
        assert parse_patch(parsed.render()) == parsed
        apply_to_texts(parsed.operations, {"f": text, "b": "1\n"})
    except DevToolsError as error:
        told = error
    else:
        return
    if told.reason == "malformed":
        assert 1 <= (told.line or 0) <= patch.count("\n") + 1
    else:
        assert told.path in parsed.targets


# -- bounds ------------------------------------------------------------------------------------------------------


def timed(seconds: float, call):
    began = time.process_time()
    result = call()
    assert time.process_time() - began < seconds
    return result


def test_ten_thousand_hunks_apply_in_bounded_time():
    text = "".join(f"value {number} = {number % 7}\n" for number in range(60_000))
    new = "".join(f"value {number} = {number % 7 + (number % 6 == 0)}\n" for number in range(60_000))
    patch = "--- a/f\n+++ b/f\n" + "".join(
        f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@\n{hunk.text}"
        for hunk in hunks_between(text, new, path="f", context=1)
    )
    assert patch.count("@@ -") == 10_000
    assert timed(10, lambda: apply_to_texts(parse_patch(patch).operations, {"f": text})) == {"f": new}


@pytest.mark.parametrize(
    ("text", "patch"),
    [
        pytest.param("x\n" * 100_000, update(*["@@", " x", "-x", "+y"] * 10_000), id="equal lines"),
        pytest.param(
            "x\n" * 100_000, numbered(*["@@ -50000,3 +50000,3 @@", " x", "-q", "+y", " x"] * 5_000), id="no place"
        ),
        pytest.param("x\n" * 60_000 + "y\n", update(*["@@ x", "@@ x", "-z"] * 3_000), id="anchors everywhere"),
        pytest.param("x {\n" * 60_000 + "y\n", update(*["@@ x", "-y", "+z"] * 3_000), id="anchors by their beginning"),
        pytest.param("x\n" * 60_000, update(*["@@", *[" x"] * 30_000, "-y"]), id="a long context"),
    ],
)
def test_hostile_patches_end_in_bounded_time(text: str, patch: str):
    def refuse() -> None:
        with pytest.raises(StepFailedError):
            apply_to_texts(parse_patch(patch).operations, {"f": text})

    timed(12, refuse)


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param("*** Begin Patch\n*** Add File: f\n" + "+x\n" * 1_700_000 + "*** End Patch", id="5 MB added"),
        pytest.param("--- a/f\n+++ b/f\n" + "@@ -1 +1 @@\n-x\n+y\n" * 20_000, id="many hunks"),
        pytest.param(update("@@ " + "@" * 5_000_000, "-x"), id="one anchor"),
    ],
)
def test_large_patches_parse_in_bounded_time(patch: str):
    assert len(timed(15, lambda: parse_patch(patch)).operations) == 1


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param("*** Begin Patch\n" + "*** Delete File: f\n" * 250_000, id="no end"),
        pytest.param("@@\n" * 1_700_000, id="only marks"),
        pytest.param("--- a/f\n" * 600_000, id="half headers"),
        pytest.param("diff --git a/f b/f\n" * 260_000, id="headers without content"),
        pytest.param("diff --git " + "a " * 2_500_000 + "\n", id="one header"),
        pytest.param('--- "' + "\\303\\266" * 600_000 + '"\n+++ "b"\n@@\n-x\n', id="one quoted name"),
        pytest.param("*** Begin Patch\n*** Delete File: " + "d/" * 2_500_000 + "\n*** End Patch", id="one deep path"),
        pytest.param("```\n" * 1_200_000, id="fences"),
        pytest.param("--- a/f\n+++ b/f\n@@\n" + "-- \n" * 1_200_000 + "@@\n", id="signatures"),
        pytest.param("x" * 5_000_000, id="one line"),
        pytest.param("--- a/f\n+++ b/f\n@@ -1,2000000 +1,1 @@\n" + "-x\n" * 1_600_000, id="fewer lines than said"),
    ],
)
def test_five_malformed_megabytes_are_refused_in_bounded_time(patch: str):
    def refuse() -> BadArgumentError:
        with pytest.raises(BadArgumentError) as caught:
            parse_patch(patch)
        return caught.value

    error = timed(15, refuse)
    assert error.line is not None
    assert len(error.message) < 1000
