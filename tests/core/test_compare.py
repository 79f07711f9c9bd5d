"""Diagnostics introduced, resolved, unchanged (SPEC 3.12.4): positions carried over, nothing cancelled out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.core.compare import compare_diagnostics, line_map
from devtools_lsp.core.diagnostics import Diagnostic

SEEDED = settings(derandomize=True, deadline=None, max_examples=100)


def found(
    line: int | None, column: int | None = 1, message: str = "bad", *, path: str | None = "f", rule: str | None = "r",
    severity: str = "error", engine: str | None = "e",
) -> Diagnostic:  # fmt: skip
    return Diagnostic(path, severity, message, engine, False, rule, line, column)  # pyright: ignore[reportArgumentType]


def compared(
    old: str, new: str, before: list[Diagnostic], after: list[Diagnostic], renames: dict[str, str] | None = None
) -> tuple[list[Diagnostic], list[Diagnostic], int]:
    return compare_diagnostics(before, after, {"f": line_map(old, new)}, renames or {})


FORTY = "".join(f"line {number}\n" for number in range(1, 41))


def test_an_old_error_below_an_insertion_is_unchanged():
    new = FORTY.replace("line 10\n", "line 10\ninserted\n")
    assert compared(FORTY, new, [found(40)], [found(41)]) == ([], [], 1)


def test_another_error_at_the_same_place_is_introduced_and_the_old_one_resolved():
    old, new = "a = first\n", "a = other\n"
    before, after = found(1, 5, "first is not defined"), found(1, 5, "other is not defined")
    assert compared(old, new, [before], [after]) == ([after], [before], 0)


def test_counts_never_cancel_out_where_messages_are_alike():
    """One undefined name replaced by another under a message that does not say which."""
    old, new = "a = first + 1\n", "a = other + 1\n"
    before, after = found(1, 5, "undefined name"), found(1, 5, "undefined name")
    assert compared(old, new, [before], [after]) == ([after], [before], 0)


@pytest.mark.parametrize(
    ("old", "new", "place", "now"),
    [
        pytest.param("x\n", "x\n", (1, 1), (1, 1), id="nothing changed"),
        pytest.param("x=name\n", "x = name\n", (1, 3), (1, 5), id="the line is formatted"),
        pytest.param("f(a, name)\n", "f(\n    a,\n    name,\n)\n", (1, 6), (3, 5), id="the line is split"),
        pytest.param("f(\n    a,\n    name\n)\n", "f(a, name)\n", (3, 5), (1, 6), id="lines are joined"),
        pytest.param("old = name\n", "older = name\n", (1, 7), (1, 9), id="another word of the line changed"),
        pytest.param("x = 'é😀' + name\n", "xy = 'é😀' + name\n", (1, 12), (1, 13), id="columns are code points"),
        pytest.param("a\nb\n", "a\nb\n", (3, 1), (3, 1), id="behind the last line"),
        pytest.param("a\nb\n", "a\nnew\nb\n", (3, 1), (4, 1), id="behind the last line, which moved"),
        pytest.param("a\n\nb\n", "a\n\nx\n\nb\n", (3, 1), (5, 1), id="below lines that repeat"),
        pytest.param("  name\n", "    name\n", (1, None), (1, None), id="no column, a word stayed"),
        pytest.param("\tname\n", "\tname2\n", (1, 2), None, id="the word grew"),
        pytest.param("a\nname\nb\n", "a\nb\n", (2, 1), None, id="the line is gone"),
        pytest.param("name\n", "other\n", (1, None), None, id="no column, no word stayed"),
        pytest.param("a b\n", "a c d\n", (1, 4), (1, 6), id="the end of a line"),
    ],
)
def test_places_are_carried_over(old: str, new: str, place: tuple[int, int | None], now: tuple[int, int | None] | None):
    assert line_map(old, new).position(*place) == now
    if now is not None:
        assert compared(old, new, [found(*place)], [found(*now)]) == ([], [], 1)


def test_lines_are_carried_over():
    mapping = line_map("a\nb\nc\n", "x\na\nB\nc\n")
    assert [mapping.line(line) for line in (1, 2, 3, 4)] == [2, None, 4, 5]


def test_of_several_equal_ones_as_many_are_unchanged_as_both_sides_have():
    one = found(1)
    assert compared("x\n", "x\n", [one, one, one], [one]) == ([], [one, one], 1)
    assert compared("x\n", "x\n", [one], [one, one]) == ([one], [], 1)


@pytest.mark.parametrize(
    "other",
    [
        found(1, message="worse"),
        found(1, rule="s"),
        found(1, severity="warning"),
        found(1, engine="d"),
        found(1, 2),
        found(2),
        found(None, None),
        found(1, path="g"),
        found(1, path=None),
    ],
)
def test_what_tells_two_diagnostics_apart(other: Diagnostic):
    assert compared("x y\n", "x y\n", [found(1)], [other]) == ([other], [found(1)], 0)


def test_files_that_moved_keep_their_errors():
    before, after = found(2), found(3, path="g")
    assert compared("a\nb\n", "new\na\nb\n", [before], [after], {"f": "g"}) == ([], [], 1)
    assert compare_diagnostics([before], [found(2, path="g")], {}, {"f": "g"}) == ([], [], 1)


def test_a_file_without_a_map_did_not_change():
    other = found(7, path="elsewhere")
    assert compared("a\n", "b\n", [other], [other]) == ([], [], 1)


def test_line_numbers_in_messages_are_carried_over():
    old, new = "import os\nx = 1\nimport os\n", "# new\nimport os\nx = 1\nimport os\n"
    before = found(3, 8, "Redefinition of unused `os` from line 1")
    after = found(4, 8, "Redefinition of unused `os` from line 2")
    assert compared(old, new, [before], [after]) == ([], [], 1)
    beyond = found(3, 8, "at most 79 characters, see line 999 of the guide")
    assert compared(old, new, [beyond], [found(4, 8, beyond.message.replace("999", "1000"))]) == ([], [], 1)


def test_a_file_indented_anew_keeps_its_errors():
    old = "".join(f"if a{number}:\n\tcall(b{number})\n" for number in range(20_000))
    new = old.replace("\t", "    ")
    before = [found(line, 7) for line in range(2, 40_001, 2)]
    after = [found(line, 10) for line in range(2, 40_001, 2)]
    assert compared(old, new, before, after) == ([], [], 20_000)


def test_the_order_given_is_kept():
    before = [found(3, message="c"), found(1, message="a")]
    after = [found(2, message="z"), found(1, message="y")]
    introduced, resolved, unchanged = compared("1\n2\n3\n", "1\n2\n3\n", before, after)
    assert (introduced, resolved, unchanged) == (after, before, 0)


texts = st.lists(st.sampled_from(["a b\n", "c\n", "\n", "d e f\n"]), max_size=10).map("".join)


@SEEDED
@given(old=texts, new=texts)
def test_a_place_that_is_carried_over_holds_the_same_text(old: str, new: str):
    mapping = line_map(old, new)
    old_lines, new_lines = old.split("\n"), new.split("\n")
    for number, line in enumerate(old_lines, 1):
        for column, letter in enumerate(line, 1):
            place = mapping.position(number, column)
            if place is not None:
                assert new_lines[place[0] - 1][(place[1] or 0) - 1] == letter


@SEEDED
@given(old=texts, new=texts, data=st.data())
def test_every_diagnostic_is_counted_once(old: str, new: str, data: st.DataObject):
    some = st.lists(st.builds(found, st.integers(1, 8), st.integers(1, 4), st.sampled_from(["p", "q"])), max_size=8)
    before, after = data.draw(some), data.draw(some)
    introduced, resolved, unchanged = compared(old, new, before, after)
    assert len(introduced) + unchanged == len(after)
    assert len(resolved) + unchanged == len(before)
    if old == new:
        assert compared(old, new, before, before) == ([], [], len(before))
