"""What is told of a landed plan is the same, whether there was time to work it out beforehand or not."""

from __future__ import annotations

import pytest

from devtools_lsp.core.workspace import FileText
from devtools_lsp.pipeline.ahead import Ahead
from devtools_lsp.pipeline.off_loop import SMALL
from devtools_lsp.pipeline.proposal import Proposed


def counter(old: str, new: str) -> tuple[int, int]:
    return new.count("\n"), old.count("\n")


def entries(size: int = 1) -> list[Proposed]:
    old, new = "one\ntwo\n" * size, "one\nthree\n" * size
    return [Proposed("a.txt", FileText(old), FileText(new)), Proposed("new.txt", None, FileText("x\n"))]


async def test_what_is_light_is_worked_out_when_there_is_time():
    plan = entries()
    then: list[object] = []
    old, new = (side.text for side in (plan[0].before, plan[0].after) if side is not None)
    ahead = Ahead(plan, counter, announced=True, then=lambda: then.append(ahead.counts("a.txt", old, new)))
    await ahead.begin()
    assert ahead.light
    assert ahead.counts("a.txt", old, new) is None
    ahead.work()
    assert ahead.counts("a.txt", old, new) == (2, 2)
    assert then == [(2, 2)]
    assert ahead.counts("new.txt", "", new) is None, "counted for other texts"
    assert ahead.counts("b.txt", old, new) is None
    assert [(file.path, file.kind, file.ranges) for file in ahead.files()] == [
        ("a.txt", "modified", ((2, 2),)),
        ("new.txt", "added", ((1, 1),)),
    ]


@pytest.mark.parametrize("size", [1, SMALL])
@pytest.mark.parametrize("begun", [True, False])
async def test_it_says_the_same_at_any_time(size: int, begun: bool):
    plan = entries(size)
    ahead = Ahead(plan, None, announced=True)
    assert ahead.light == (size == 1)
    if begun:
        await ahead.begin()
        if ahead.light:
            ahead.work()
    assert ahead.files() == [entry.to_landed_file() for entry in plan]


async def test_a_counter_that_fails_costs_no_announcement():
    def fail(_old: str, _new: str) -> tuple[int, int]:
        raise ValueError("cannot count")

    ahead = Ahead(entries(), fail, announced=True)
    await ahead.begin()
    with pytest.raises(ValueError, match="cannot count"):
        ahead.work()
    assert len(ahead.files()) == 2
