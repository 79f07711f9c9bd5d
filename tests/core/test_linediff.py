"""The line diff: right always, small where it can be, bounded where sequences are hostile."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.core.linediff import differences, enclosing_span, line_spans, lines_of, runs_between, runs_of_spans
from devtools_lsp.text import Span, apply_spans

SEEDED = settings(derandomize=True, deadline=None, max_examples=100)

sequences = st.lists(st.integers(0, 4), max_size=30)
texts = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "a", "\r\n"]), max_size=20).map("".join)


@SEEDED
@given(old=sequences, new=sequences)
def test_differences_lie_between_equal_stretches(old: list[int], new: list[int]):
    position, following = 0, 0
    for gap in differences(old, new):
        assert old[position : gap.old_start] == new[following : gap.new_start]
        assert gap.old_start < gap.old_end or gap.new_start < gap.new_end
        position, following = gap.old_end, gap.new_end
    assert old[position:] == new[following:]


def test_differences_are_about_the_smallest_there_are():
    """Dividing by unique elements may cost a little against the optimum where elements move."""
    draw = random.Random(5)
    kept, best = 0, 0
    for _ in range(200):
        old = [draw.randrange(6) for _ in range(40)]
        new = [draw.randrange(6) for _ in range(40)]
        kept += len(old) - sum(gap.old_end - gap.old_start for gap in differences(old, new))
        best += _longest_common(old, new)
    assert kept >= 0.98 * best


def _longest_common(old: list[int], new: list[int]) -> int:
    row = [0] * (len(new) + 1)
    for a in old:
        previous = row
        row = [0]
        for index, b in enumerate(new):
            row.append(previous[index] + 1 if a == b else max(previous[index + 1], row[-1]))
    return row[-1]


@SEEDED
@given(old=texts, new=texts)
def test_spans_of_lines_turn_one_text_into_the_other(old: str, new: str):
    assert apply_spans(old, line_spans(old, new)) == new
    span = enclosing_span(old, new)
    assert apply_spans(old, [span]) == new


@SEEDED
@given(old=texts, data=st.data())
def test_runs_of_spans_make_the_same_text(old: str, data: st.DataObject):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(old)), max_size=6)))
    words = st.sampled_from(["", "x", "x\n", "\n", "p\nq\n", "\nz"])
    spans = [Span(start, end, data.draw(words)) for start, end in zip(cuts[::2], cuts[1::2], strict=False)]
    runs = runs_of_spans(old, spans)
    new = apply_spans(old, spans)
    assert apply_spans(old, [run.span() for run in runs]) == new
    lines = lines_of(new)
    for run in runs:
        assert old[run.start : run.end] == "".join(run.old)
        assert run.line == old.count("\n", 0, run.start)
        assert tuple(lines[run.new_line : run.new_line + len(run.new)]) == run.new


def test_spans_that_meet_at_an_open_end_are_one_run():
    (run,) = runs_of_spans("a", [Span(0, 1, ""), Span(1, 1, "x")])
    assert (run.old, run.new) == (("a",), ("x",))


def test_a_line_without_line_break_differs_from_the_same_with_one():
    (run,) = runs_between("a\nb", "a\nb\n")
    assert (run.old, run.new) == (("b",), ("b\n",))


def test_an_insertion_is_found_between_lines_that_repeat():
    (run,) = runs_between("a\n\nb\n", "a\n\nx\n\nb\n")
    assert (run.line, run.old) == (2, ())
    assert run.new == ("x\n", "\n")


def hostile() -> dict[str, tuple[list[int], list[int]]]:
    draw = random.Random(7)
    return {
        "two symbols": ([draw.randrange(2) for _ in range(30_000)], [draw.randrange(2) for _ in range(30_000)]),
        "few symbols": ([draw.randrange(900) for _ in range(30_000)], [draw.randrange(900) for _ in range(30_000)]),
        "reversed": (list(range(60_000)), list(range(60_000))[::-1]),
        "only blanks shared": (
            [n if n % 4 else -1 for n in range(60_000)],
            [-n if n % 4 else -1 for n in range(60_000)],
        ),
        "one symbol": ([0] * 60_000, [0] * 59_000 + [1] * 10),
    }


@pytest.mark.parametrize("name", hostile())
def test_hostile_sequences_take_bounded_time(name: str):
    old, new = hostile()[name]
    began = time.process_time()
    gaps = differences(old, new)
    assert time.process_time() - began < 8
    rebuilt: list[int] = []
    position = 0
    for gap in gaps:
        rebuilt += old[position : gap.old_start] + new[gap.new_start : gap.new_end]
        position = gap.old_end
    assert rebuilt + old[position:] == new
