"""Small values in words: change lines, names in quotes, characters that look like others."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.core.lookalikes import essence, fold_typography, is_blank, name_character, name_run
from devtools_lsp.core.quoting import quote_name, unquote_name
from devtools_lsp.core.result import Change
from devtools_lsp.core.summary import change_line, summary_lines

SEEDED = settings(derandomize=True, deadline=None, max_examples=100)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (Change(path="src/a.py", kind="modified", added=3, removed=1), "M  src/a.py +3 -1"),
        (Change(path="n", kind="added", added=10, removed=0), "A  n +10 -0"),
        (Change(path="o", kind="deleted"), "D  o"),
        (Change(path="b", kind="renamed", from_="a"), "R  a -> b"),
        (Change(path="b", kind="renamed", from_="a", added=0, removed=0), "R  a -> b +0 -0"),
        (Change(path="two\nlines", kind="added"), 'A  "two\\nlines"'),
        (Change(path="b", kind="modified", added=1), "M  b"),
    ],
)
def test_change_lines(change: Change, line: str):
    """I12: a count that is not known is left out."""
    assert change_line(change) == line
    assert summary_lines([change, change]) == [line, line]


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("a b/é.txt", "a b/é.txt"),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        ("a\tb\nc", '"a\\tb\\nc"'),
        ("\x01\x7f", '"\\001\\177"'),
    ],
)
def test_names_are_quoted_where_they_would_not_survive(name: str, quoted: str):
    assert quote_name(name) == quoted
    if quoted.startswith('"'):
        assert unquote_name(quoted + " rest") == (name, len(quoted))


@SEEDED
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_quoted_names_are_read_again(name: str):
    quoted = quote_name(name)
    assert quoted == name or unquote_name(quoted) == (name, len(quoted))
    octal = '"' + "".join(f"\\{byte:03o}" for byte in name.encode()) + '"'
    assert unquote_name(octal) == (name, len(octal))


@pytest.mark.parametrize("text", ["a", '"a', '"\\x"', '"\\400"', '"\\377"', '"\\', '"\\12"'])
def test_what_is_no_quoted_name(text: str):
    with pytest.raises(ValueError, match=r"quote|escape|UTF-8"):
        unquote_name(text)


def test_typography_is_folded_to_ascii():
    assert fold_typography("“a” ‘b’ c–d—e… f\u00a0g\u3000h") == "\"a\" 'b' c-d-e... f g h"
    assert fold_typography("é Ω 漢") == "é Ω 漢"


def test_essence_is_what_a_reader_sees():
    assert essence("\t“a”\u200b  b\u00a0c ") == '"a" b c'
    assert essence("ｆｕｌｌ ｗｉｄｔｈ") == "full width"
    assert essence("cafe\u0301") == essence("café")
    assert essence("p\u0430y") == "pay"
    assert essence("a\rb\fc") == "a b c"


def test_what_leaves_no_mark_leaves_none_in_the_essence():
    for point in (*range(0x20000), *range(0xE0000, 0xE0200)):
        character = chr(point)
        category = unicodedata.category(character)
        if category in ("Cc", "Cf", "Zl", "Zp"):
            assert essence(f"a{character}b") in ("ab", "a b"), hex(point)
            assert is_blank(character), hex(point)
        elif category[0] in "LNPS" and point not in (0x115F, 0x1160, 0x2800, 0x3164, 0xFFA0):
            assert not is_blank(character), hex(point)


@pytest.mark.parametrize(
    ("character", "name"),
    [
        ("x", "'x'"),
        ("'", '"\'"'),
        (" ", "a blank (U+0020)"),
        ("\t", "U+0009 tab"),
        ("\r", "U+000D carriage return"),
        ("\u00a0", "U+00A0 NO-BREAK SPACE"),
        ("\u200b", "U+200B ZERO WIDTH SPACE"),
        ("\u0301", "U+0301 COMBINING ACUTE ACCENT"),
        ("“", "'“' (U+201C LEFT DOUBLE QUOTATION MARK)"),
        ("\U0001f600", "'😀' (U+1F600 GRINNING FACE)"),
        ("\x02", "U+0002"),
        ("\ue000", "U+E000"),
    ],
)
def test_characters_have_names(character: str, name: str):
    assert name_character(character) == name


def test_runs_of_blanks_in_words():
    assert name_run("    ") == "4 blanks (U+0020)"
    assert name_run("\t ") == "1 tab (U+0009), 1 blank (U+0020)"
    assert name_run("\u00a0\u00a0") == "2 x U+00A0 NO-BREAK SPACE"
    assert name_run("") == "nothing"
    assert [is_blank(letter) for letter in " \t\u200b\u3000x"] == [True, True, True, True, False]
