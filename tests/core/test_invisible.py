"""What a person cannot see is written out before they decide on it."""

from __future__ import annotations

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from devtools_lsp.core.invisible import TRAILING_BLANKS, find_invisible, is_invisible, may_hold_invisible, reveal


@pytest.mark.parametrize(
    ("character", "hidden"),
    [
        ("a", False),
        (" ", False),
        ("\t", False),
        ("é", False),
        ("😀", False),
        ("漢", False),
        ("\x00", True),
        ("\r", True),
        ("\x1b", True),
        ("\x7f", True),
        ("\x85", True),
        ("\u00a0", True),
        ("\u00ad", True),
        ("\u200b", True),
        ("\u200d", True),
        ("\u202e", True),
        ("\u2028", True),
        ("\u2066", True),
        ("\u3164", True),
        ("\ufeff", True),
        ("\U000e0041", True),
        ("\ud800", True),
    ],
)
def test_which_characters_are_invisible(character: str, hidden: bool):
    assert is_invisible(character) is hidden


def test_they_are_written_out_where_they_stand():
    assert reveal("a\u202eb\tc\x1b[2J\n") == "a<U+202E>b\tc<U+001B>[2J\n"
    assert reveal("plain 😀") == "plain 😀"


def test_they_are_found_with_their_place_and_name():
    text = "ok\nx = '\u200b'  \n\tlast\u00a0\n"
    assert list(find_invisible(text)) == [
        (2, 8, TRAILING_BLANKS),
        (2, 6, "U+200B ZERO WIDTH SPACE"),
        (3, 6, "U+00A0 NO-BREAK SPACE"),
    ]


@seed(87)
@settings(max_examples=400, deadline=None)
@given(st.text(max_size=60))
def test_the_quick_look_overlooks_nothing(text: str):
    if list(find_invisible(text)):
        assert may_hold_invisible(text)
    assert not any(is_invisible(character) for character in reveal(text))
