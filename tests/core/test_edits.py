"""The step edit (SPEC 3.5): where blocks are found, what they claim, what a refusal says."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.core.edits import Edit, plan_edits
from devtools_lsp.core.workspace import FileText
from devtools_lsp.errors import BadArgumentError, StepFailedError
from devtools_lsp.text import Span, apply_spans, decode, encode, split_endings, to_lf

SEEDED = settings(derandomize=True, deadline=None, max_examples=100)


def refused(text: str, *pairs: tuple[str, str]) -> StepFailedError:
    with pytest.raises(StepFailedError) as caught:
        plan_edits("src/f.py", text, [Edit(find, replace) for find, replace in pairs])
    error = caught.value
    assert (error.step, error.path, error.retry) == ("edit", "src/f.py", "afterCorrection")
    return error


@pytest.mark.parametrize(
    ("before", "pairs", "after"),
    [
        pytest.param("a\nb\nc\n", [("b", "B")], "a\nB\nc\n", id="one block"),
        pytest.param("a\nb\nc\n", [("c", "C"), ("a", "A")], "A\nb\nC\n", id="blocks out of order"),
        pytest.param("a\nb\n", [("a", "b"), ("b", "c")], "b\nc\n", id="what a block inserts is not searched"),
        pytest.param("x = x0\n", [("x0", "y"), ("x", "z")], "z = y\n", id="a claimed part does not make ambiguous"),
        pytest.param("abcd", [("ab", "1"), ("cd", "2")], "12", id="neighbouring claims"),
        pytest.param("aab", [("ab", "x"), ("a", "y")], "yx", id="the rest of an overlapping run"),
        pytest.param("a\r\nb\r\n", [("a\r\nb", "c\r\nd")], "c\r\nd\r\n", id="crlf in find and replace"),
        pytest.param("a\nb\n", [("a\r\nb", "c\r\nd")], "c\nd\n", id="crlf blocks in an lf file"),
        pytest.param("a\nb\n", [("a\n", "")], "b\n", id="a line removed"),
        pytest.param("a", [("a", "a\nb")], "a\nb", id="a line added at an open end"),
        pytest.param("a\n", [("a", "$1\\n\\1\t")], "$1\\n\\1\t\n", id="the replacement is verbatim"),
        pytest.param("(a+)*\n", [("(a+)*", "[b]?")], "[b]?\n", id="the find is no pattern"),
        pytest.param("a\n", [("a", "a")], "a\n", id="nothing changes"),
        pytest.param("😀 x\n", [("😀", "é")], "é x\n", id="beyond the basic plane"),
        pytest.param("x\ry\n", [("x\ry", "z")], "z\n", id="a lone CR is a character"),
        pytest.param("\u2028\n", [("\u2028", "\f")], "\f\n", id="separators are characters"),
    ],
)
def test_edits(before: str, pairs: list[tuple[str, str]], after: str, edit_bytes):
    assert edit_bytes(before, *pairs) == after.encode()


def test_a_byte_order_mark_is_not_seen_by_a_block_that_has_it(edit_bytes):
    marked = "\ufeffa = 1\n".encode()
    assert edit_bytes(marked, ("\ufeffa = 1", "\ufeffa = 2")) == "\ufeffa = 2\n".encode()
    assert edit_bytes(marked, ("\ufeffa = 1", "a = 2")) == "\ufeffa = 2\n".encode()


def test_spans_are_sorted_and_go_no_further_than_what_differs():
    text = "one\ntwo\nthree\nfour\nfive\n"
    edits = [Edit("four\nfive", "FOUR\nfive"), Edit("one\ntwo\nthree", "one\nTWO\nthree\nmore")]
    assert plan_edits("f", text, edits) == [
        Span(4, 8, "TWO\n"),
        Span(13, 13, "\nmore"),
        Span(14, 19, "FOUR\n"),
    ]


@pytest.mark.parametrize(
    ("raw", "pair", "after"),
    [
        pytest.param("a\r\nb\nc\r\nd\n", ("b", "B"), "a\r\nB\nc\r\nd\n", id="one line"),
        pytest.param(
            "a\r\nb\nc\r\nd\n",
            ("a\nb\nc\nd", "a\nnew\nb\nc\nD"),
            "a\r\nnew\nb\nc\r\nD\n",
            id="repeated lines keep theirs",
        ),
        pytest.param(
            "a\r\nb\r\nc\n", ("b\n", "b\nx\ny\n"), "a\r\nb\r\nx\r\ny\r\nc\n", id="new lines: the dominant ending"
        ),
    ],
)
def test_mixed_endings_stay_line_by_line(raw: str, pair: tuple[str, str], after: str, edit_bytes):
    """I15: an edited line takes the ending it had, others are not touched."""
    assert edit_bytes(raw, pair) == after.encode()


@pytest.mark.parametrize(
    ("text", "find", "lines"),
    [
        pytest.param("n\nm\nn\n", "n", [1, 3], id="two lines"),
        pytest.param("aaa", "aa", [1, 1], id="overlapping places count"),
        pytest.param("x\n\n\n\ny", "\n\n", [1, 2, 3], id="line breaks"),
        pytest.param("q\n" * 100, "q", list(range(1, 21)), id="many are cut"),
    ],
)
def test_an_ambiguous_block_lists_its_lines(text: str, find: str, lines: list[int]):
    error = refused(text, (find, "z"))
    assert error.reason == "ambiguous"
    assert error.matches == [{"path": "src/f.py", "line": line} for line in lines]
    assert ", ".join(map(str, dict.fromkeys(lines))) in error.message


def test_claims_count_before_ambiguity_does():
    error = refused("k k k", ("k k", "1"), ("k", "2"))
    assert error.reason == "ambiguous"
    assert len(error.matches or []) == 2
    assert plan_edits("f", "k k", [Edit("k k", "1")]) == [Span(0, 3, "1")]


def test_a_block_found_only_where_another_took_it_says_so():
    error = refused("a\nb\nc\n", ("a\nb", "X"), ("b", "Y"))
    assert (error.reason, error.line) == ("noMatch", 2)
    assert "block 2 of 2" in error.message
    assert "earlier block" in error.message


@pytest.mark.parametrize(
    ("text", "find", "line", "says"),
    [
        pytest.param("a\n\tif x:\n", "    if x:", 2, ["1 tab (U+0009)", "4 blanks (U+0020)"], id="tab for blanks"),
        pytest.param("a\n    if x:\n", "\tif x:", 2, ["4 blanks", "1 tab"], id="blanks for a tab"),
        pytest.param("a\n    if x:\n", "  if y:", 2, ["line 2"], id="another word"),
        pytest.param("foo  \nbar\n", "foo\nbar", 1, ["end of the line", "2 blanks", "lacks"], id="trailing blanks"),
        pytest.param("foo\nbar\n", "foo \nbar", 1, ["end of the line", "1 blank", "lacks"], id="no trailing blank"),
        pytest.param("x\u00a0= 1\n", "x = 1", 1, ["U+00A0 NO-BREAK SPACE", "column 2"], id="no-break space"),
        pytest.param("x\u202f= 1\n", "x = 1", 1, ["U+202F"], id="narrow no-break space"),
        pytest.param("say “hi”\n", 'say "hi"', 1, ["U+201C", "column 5"], id="typographic quotes"),
        pytest.param("it’s\n", "it's", 1, ["U+2019"], id="apostrophe"),
        pytest.param("it's\n", "it’s", 1, ["U+2019"], id="apostrophe in the block"),
        pytest.param("a – b\n", "a - b", 1, ["U+2013"], id="dash"),
        pytest.param("wait…\n", "wait...", 1, ["U+2026"], id="ellipsis"),
        pytest.param("a\u200bb\n", "ab", 1, ["U+200B ZERO WIDTH SPACE", "column 2"], id="zero width"),
        pytest.param("ab\n", "a\u200bb", 1, ["U+200B", "block has"], id="zero width in the block"),
        pytest.param("a\u202eb\n", "ab", 1, ["U+202E"], id="bidi control"),
        pytest.param("\ufeffa = 1\n", "\u2060a = 1", 1, ["U+FEFF"], id="mark within the text"),
        pytest.param("p\u0430y\n", "pay", 1, ["U+0430", "column 2"], id="cyrillic letter"),
        pytest.param("cafe\u0301\n", "caf\u00e9", 1, ["U+0301", "U+00E9"], id="decomposed accent"),
        pytest.param("x\rq\ny\n", "x\nq", 1, ["U+000D"], id="lone CR"),
        pytest.param("x\fq\n", "x q", 1, ["U+000C"], id="form feed"),
        pytest.param("Foo(bar)\n", "foo(bar)", 1, ["'Foo'", "'foo'"], id="letter case"),
        pytest.param("if (a) {\n  b();\n}\n", "if (a)\n{\n  b();\n}", 1, ["1 blank", "lacks"], id="other breaks"),
        pytest.param("end", "end\n", 1, ["line break", "lacks"], id="no final line break"),
        pytest.param("total = 1\n", "totl = 1", 1, ["'total'", "'totl'"], id="a typing error"),
        pytest.param("x\n" * 50 + "def f():\n    return a\n", "def f():\n    return b", 52, ["'a'", "'b'"], id="2nd"),
        pytest.param("n = 1\n" * 30 + "limit = 12\n", "limit = 21", 31, ["'12'", "'21'"], id="the rare word decides"),
    ],
)  # fmt: skip
def test_a_near_miss_names_what_differs(text: str, find: str, line: int, says: list[str]):
    error = refused(text, (find, "z"))
    assert (error.reason, error.line) == ("noMatch", line)
    for words in says:
        assert words in error.message
    assert f"{line} | " in error.message


@pytest.mark.parametrize(
    ("find", "says"),
    [
        ("   1\ta = 1\n   2\tb = 2", "line numbers"),
        ("1: a = 1", "line numbers"),
        ("2 | b = 2", "line numbers"),
        ("a = 1\\nb = 2", "escape"),
    ],
)
def test_a_block_in_another_dress_is_recognized(find: str, says: str):
    assert says in refused("a = 1\nb = 2\n", (find, "z")).message


def test_nothing_alike_says_so():
    error = refused("alpha\n" * 40, ("zzz(qqq)", "z"))
    assert error.line is None
    assert "nor anything like it" in error.message


def test_a_long_line_is_shown_around_the_difference():
    text = " ".join(f"w{number}" for number in range(4000))
    error = refused(text, ("w2999  w3000", "z"))
    assert len(error.message) < 700
    assert "w2999 w3000" in error.message


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (Edit("", "x"), "empty"),
        (Edit("a", "x\0"), "NUL"),
        (Edit("a\0", "x"), "NUL"),
        (Edit("a", "x\ud800"), "U+D800"),
        (Edit("\udfff", "x"), "U+DFFF"),
    ],
)
def test_arguments_that_no_file_can_hold(edit: Edit, says: str):
    with pytest.raises(BadArgumentError, match="find block 2 of 2") as caught:
        plan_edits("f", "a\n", [Edit("a", "b"), edit])
    assert says in caught.value.message
    assert caught.value.reason == "malformed"


def test_no_edits_at_all_are_refused():
    with pytest.raises(BadArgumentError):
        plan_edits("f", "a\n", [])


# -- properties --------------------------------------------------------------------------------------------------

raw_texts = st.lists(st.sampled_from(["a", "b", "c", " ", "\n", "\r\n", "é"]), min_size=1, max_size=40).map("".join)


@SEEDED
@given(raw=raw_texts, data=st.data())
def test_an_edit_touches_no_byte_outside_its_match(raw: str, data: st.DataObject):
    """I15: what stands before and after the match is the same, byte for byte."""
    text, form = split_endings(raw)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    find, replacement = text[start:end], data.draw(st.sampled_from(["", "x", "x\n", "p\nq", "\n"]))
    if text.find(find) != start or text.find(find, start + 1) >= 0:
        return
    file = FileText(text, form)
    edited = file.edited(plan_edits("f", text, [Edit(find, replacement)]))
    result = edited.to_bytes("preserve").decode()
    before = encode(text[:start], form).decode()
    tail_breaks = text.count("\n", 0, end)
    after = encode(text[end:], form if form.mixed is None else form.after_spans(text, [Span(0, end, "")])).decode()
    assert tail_breaks == text.count("\n") - text[end:].count("\n")
    assert result.startswith(before)
    assert result.endswith(after)
    assert decode(result.encode())[0] == text[:start] + replacement + text[end:]


@SEEDED
@given(raw=raw_texts, data=st.data())
def test_an_edit_and_its_inverse_are_nothing(raw: str, data: st.DataObject):
    text, _ = split_endings(raw)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    find = text[start:end]
    if text.find(find) != start or text.find(find, start + 1) >= 0:
        return
    changed = apply_spans(text, plan_edits("f", text, [Edit(find, "<new>")]))
    assert apply_spans(changed, plan_edits("f", changed, [Edit("<new>", find)])) == text


odd_texts = st.lists(
    st.sampled_from(
        ["a", "foo", " ", "\t", "\n", "\r", "“", '"', "\u00a0", "\u200b", "é", "e\u0301", "\u2028", "A", "…", "漢"]
    ),
    min_size=1,
    max_size=14,
).map("".join)


@settings(derandomize=True, deadline=None, max_examples=250)
@given(text=odd_texts, find=odd_texts)
def test_any_block_is_found_once_or_refused_with_a_line_of_the_file(text: str, find: str):
    try:
        plan_edits("f", text, [Edit(find, "z")])
    except StepFailedError as error:
        told = error
    else:
        assert text.count(to_lf(find)) == 1
        return
    assert told.reason == ("ambiguous" if to_lf(find) in text else "noMatch")
    assert told.line is None or 1 <= told.line <= text.count("\n") + 1


# -- bounds ------------------------------------------------------------------------------------------------------

MEBIBYTE = 1 << 20


@pytest.mark.parametrize(
    ("text", "find"),
    [
        pytest.param("x = 1;\n" * (2 * MEBIBYTE // 7), "x = 2; missing", id="repeated lines"),
        pytest.param("a" * (2 * MEBIBYTE), "a" * 5000 + "b", id="one long line"),
        pytest.param("ab" * MEBIBYTE, "ba" * 5000 + "c", id="periodic"),
        pytest.param("\n" * (2 * MEBIBYTE), "\n\nq", id="only line breaks"),
        pytest.param("\t\tcall(value);\n" * 150_000, "    call(other)", id="tabs"),
        pytest.param("é “x” \u00a0\n" * 150_000, 'é "y"\nz', id="not ascii"),
        pytest.param("line of text\n" * 160_000, "line of text\n" * 20_000 + "end", id="a long block"),
        pytest.param("a b c d e f\n" * 170_000, " ".join("abcdef" * 30_000), id="a long row"),
    ],
)
def test_a_miss_in_a_large_file_is_explained_in_bounded_time(text: str, find: str):
    began = time.process_time()
    refused(text, (find, "z"))
    assert time.process_time() - began < 6


def test_many_blocks_in_a_large_file_take_bounded_time():
    text = "".join(f"value {number} here\n" for number in range(100_000))
    edits = [Edit(f"value {number} here", f"VALUE {number}") for number in range(0, 100_000, 200)]
    began = time.process_time()
    assert len(plan_edits("f", text, edits)) == 500
    assert time.process_time() - began < 6
