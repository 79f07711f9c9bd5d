"""Positions of the three encodings in our coordinates, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools_lsp.engines.messages import Position, Range, TextEdit
from devtools_lsp.engines.positions import PositionEncoding, TextPositions
from devtools_lsp.text import apply_spans

ENCODINGS: tuple[PositionEncoding, ...] = ("utf-8", "utf-16", "utf-32")
TEXTS = st.text(alphabet="ab\t\n\ré中😀\u2028\x0c", max_size=40)


@pytest.mark.parametrize(("encoding", "character"), [("utf-16", 14), ("utf-32", 13), ("utf-8", 16)])
def test_after_an_emoji(encoding: PositionEncoding, character: int) -> None:
    """P95."""
    positions = TextPositions("x = '😀'; y = undefined_name\n", encoding)
    assert positions.line_and_column(positions.from_lsp_position(Position(0, character))) == (1, 14)
    assert positions.to_lsp_position(13) == Position(0, character)


@given(TEXTS, st.sampled_from(ENCODINGS), st.data())
def test_there_and_back(text: str, encoding: PositionEncoding, data: st.DataObject) -> None:
    positions = TextPositions(text, encoding)
    offset = data.draw(st.integers(0, len(text)))
    if offset and text[offset - 1 : offset + 1] == "\r\n":
        return  # Between CR and LF there is no place for the protocol.
    back = positions.from_lsp_position(positions.to_lsp_position(offset))
    assert back == offset


@given(TEXTS, st.sampled_from(ENCODINGS), st.integers(0, 50), st.integers(0, 50))
def test_any_position_is_clamped_into_the_text(
    text: str, encoding: PositionEncoding, line: int, character: int
) -> None:
    positions = TextPositions(text, encoding)
    offset = positions.from_lsp_position(Position(line, character))
    assert 0 <= offset <= len(text)
    our_line, column = positions.line_and_column(offset)
    assert 1 <= our_line <= text.count("\n") + 1
    assert 1 <= column <= len(text.split("\n")[our_line - 1]) + 1


def test_a_lone_carriage_return_ends_a_line_for_the_server_only() -> None:
    positions = TextPositions("a\rbad\nbad\n", "utf-16")
    assert positions.from_lsp_range(Range(Position(1, 0), Position(1, 3))) == (1, 3, 1, 6)
    assert positions.from_lsp_range(Range(Position(2, 0), Position(2, 3))) == (2, 1, 2, 4)


def test_edits_are_sorted_and_insertions_keep_their_order() -> None:
    text = "one two\nthree\n"
    positions = TextPositions(text, "utf-16")
    edits = [
        TextEdit(Range(Position(1, 0), Position(1, 5)), "3"),
        TextEdit(Range(Position(0, 0), Position(0, 0)), "a"),
        TextEdit(Range(Position(0, 0), Position(0, 0)), "b"),
        TextEdit(Range(Position(0, 0), Position(0, 3)), "1"),
    ]
    assert apply_spans(text, positions.from_lsp_edits(edits)) == "ab1 two\n3\n"


def test_overlapping_edits_are_refused() -> None:
    positions = TextPositions("abcdef", "utf-16")
    edits = [
        TextEdit(Range(Position(0, 0), Position(0, 3)), ""),
        TextEdit(Range(Position(0, 2), Position(0, 4)), ""),
    ]
    with pytest.raises(ValueError, match="overlap"):
        positions.from_lsp_edits(edits)


def test_the_whole_text() -> None:
    assert TextPositions("a\n😀b", "utf-16").whole() == Range(Position(0, 0), Position(1, 3))
    assert TextPositions("a\n", "utf-8").whole() == Range(Position(0, 0), Position(1, 0))
