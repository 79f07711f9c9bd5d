"""Bytes to text and back (SPEC 3.4): what decodes, what is refused, and which endings survive an edit."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.text import (
    UTF8_LF,
    NotTextError,
    Span,
    TextForm,
    apply_spans,
    decode,
    encode,
    join_endings,
    line_of,
    split_endings,
    split_lines,
    to_lf,
    unwritable,
)

SEEDED = settings(derandomize=True, deadline=None, max_examples=100)

pieces = st.sampled_from(["a", "b", " ", "é", "\u2028", "\f", "\x85", "\r", "\n", "\r\n", "😀", ""])
raw_texts = st.lists(pieces, max_size=24).map("".join)


@pytest.mark.parametrize(
    ("data", "text", "label"),
    [
        pytest.param(b"", "", "utf-8 lf", id="empty"),
        pytest.param(b"a\nb", "a\nb", "utf-8 lf", id="lf"),
        pytest.param(b"a\r\nb\r\n", "a\nb\n", "utf-8 crlf", id="crlf"),
        pytest.param(b"a\r\nb\nc\r\n", "a\nb\nc\n", "utf-8 mixed", id="mixed"),
        pytest.param(b"\xef\xbb\xbfa\n", "a\n", "utf-8-bom lf", id="bom"),
        pytest.param(b"\xef\xbb\xbf", "", "utf-8-bom lf", id="only a bom"),
        pytest.param(codecs.BOM_UTF16_LE + "ä\r\n".encode("utf-16-le"), "ä\n", "utf-16-le-bom crlf", id="utf-16-le"),
        pytest.param(codecs.BOM_UTF16_BE + "😀\n".encode("utf-16-be"), "😀\n", "utf-16-be-bom lf", id="utf-16-be"),
        pytest.param(b"a\rb\x0cc\xc2\x85d\xe2\x80\xa8e", "a\rb\fc\x85d\u2028e", "utf-8 lf", id="no line ends"),
        pytest.param(b"a\r\r\nb\r\r\n", "a\r\nb\r\n", "utf-8 crlf", id="cr before crlf"),
    ],
)
def test_decoding(data: bytes, text: str, label: str):
    decoded, form = decode(data)
    assert (decoded, form.label) == (text, label)
    assert encode(decoded, form) == data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b"caf\xe9\n", "byte 3", id="latin-1"),
        pytest.param(b"\x83n\x83\x8d\x81[", "byte 0", id="shift-jis"),
        pytest.param(b"a\0b", "NUL", id="nul"),
        pytest.param("ab".encode("utf-16-le"), "NUL", id="utf-16 without a mark"),
        pytest.param("ab".encode("utf-32"), "NUL", id="utf-32"),
        pytest.param(codecs.BOM_UTF16_LE + b"a\0b", "byte", id="odd utf-16"),
        pytest.param(codecs.BOM_UTF16_LE + b"\x00\xd8", "byte", id="half a surrogate pair"),
        pytest.param(b"\xed\xa0\x80", "byte 0", id="surrogate in utf-8"),
        pytest.param(b"\xef\xbb\xbfok \xff", "byte 6", id="position counts the mark"),
    ],
)
def test_what_is_not_text_is_refused_not_guessed(data: bytes, says: str):
    with pytest.raises(NotTextError, match=says):
        decode(data)


@SEEDED
@given(raw=raw_texts, encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be"]))
def test_bytes_survive_a_round_trip(raw: str, encoding: str):
    marks = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
    data = marks.get(encoding, b"") + raw.encode(encoding)
    assert encode(*decode(data)) == data


@SEEDED
@given(raw=raw_texts)
def test_endings_survive_a_round_trip(raw: str):
    assert join_endings(*split_endings(raw)) == raw


@pytest.mark.parametrize(
    ("raw", "span", "expected"),
    [
        pytest.param("a\r\nb\nc\r\n", (2, 3, "B"), "a\r\nB\nc\r\n", id="within a line"),
        pytest.param("a\r\nb\nc\r\n", (0, 4, "A\nB\n"), "A\r\nB\nc\r\n", id="each line takes the ending it replaces"),
        pytest.param("a\r\nb\nc\r\n", (2, 2, "x\n"), "a\r\nx\r\nb\nc\r\n", id="new lines take the dominant ending"),
        pytest.param("a\nb\r\nc\nd\n", (0, 2, ""), "b\r\nc\nd\n", id="a deleted line takes its ending with it"),
        pytest.param("a\nb\r\nc\n", (0, 6, "A\nB\nC\nD\n"), "A\nB\r\nC\nD\n", id="more lines than before"),
        pytest.param("a\nb\r\nc\n", (1, 2, " "), "a b\r\nc\n", id="lines joined"),
        pytest.param("a\r\nb", (3, 3, "\nc"), "a\r\nb\r\nc", id="uniform crlf"),
    ],
)
def test_endings_follow_an_edit(raw: str, span: tuple[int, int, str], expected: str):
    text, form = split_endings(raw)
    spans = [Span(*span)]
    assert join_endings(apply_spans(text, spans), form.after_spans(text, spans)) == expected


def test_a_form_whose_mixture_ends_is_uniform_again():
    text, form = split_endings("a\r\nb\nc\n")
    assert form.after_spans(text, [Span(0, 2, "")]) == UTF8_LF
    assert form.after_spans(text, [Span(2, 6, "")]) == TextForm(crlf=True)


def test_two_forms_make_the_same_bytes_where_no_line_ends():
    assert TextForm(crlf=True).same_bytes(UTF8_LF, "one line")
    assert not TextForm(crlf=True).same_bytes(UTF8_LF, "two\n")
    assert not TextForm(bom=True).same_bytes(UTF8_LF, "")


@st.composite
def texts_with_spans(draw: st.DrawFn) -> tuple[str, list[Span]]:
    raw = draw(raw_texts)
    text, _ = split_endings(raw)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pairs = zip(cuts[::2], cuts[1::2], strict=False)
    words = st.sampled_from(["", "x", "x\n", "\n", "p\nq\n", "\nz"])
    return raw, [Span(start, end, draw(words)) for start, end in pairs]


@SEEDED
@given(texts_with_spans())
def test_endings_outside_spans_are_kept(case: tuple[str, list[Span]]):
    """I15: every line break outside the spans keeps its bytes."""
    raw, spans = case
    text, form = split_endings(raw)
    result = join_endings(apply_spans(text, spans), form.after_spans(text, spans))
    positions = _raw_offsets(raw, text)
    at = 0
    cursor = 0
    for span in spans:
        kept = raw[positions[cursor] : positions[span.start]]
        assert result[at : at + len(kept)] == kept
        at += len(kept)
        written = result[at:]
        plain = to_lf_exact(written, span.replacement)
        assert plain is not None
        at += plain
        cursor = span.end
    assert result[at:] == raw[positions[cursor] :]


def _raw_offsets(raw: str, text: str) -> list[int]:
    """For each offset of the LF text, the offset of the raw text."""
    offsets: list[int] = []
    place = 0
    for letter in text:
        offsets.append(place)
        place += 2 if letter == "\n" and raw.startswith("\r\n", place) else 1
    return [*offsets, place]


def to_lf_exact(written: str, replacement: str) -> int | None:
    """How many characters of `written` spell the replacement, with either line end."""
    place = 0
    for letter in replacement:
        if letter == "\n" and written.startswith("\r\n", place):
            place += 2
        elif written.startswith(letter, place):
            place += 1
        else:
            return None
    return place


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("fine\n", None),
        ("😀", None),
        ("a\nb\0", "a NUL character (line 2)"),
        ("a\n\nx\ud83d", "the lone surrogate U+D83D (line 3)"),
    ],
)
def test_what_cannot_be_written_is_named(text: str, fault: str | None):
    assert unwritable(text) == fault


def test_small_things():
    assert to_lf("a\r\nb\rc\r\r\n") == "a\nb\rc\r\n"
    assert split_lines("a\n\fb\n") == ["a", "\fb"]
    assert split_lines("") == []
    assert split_lines("\n") == [""]
    assert line_of("a\nb\nc", 4) == 3
