"""What an engine is known to have said is bounded by what it said, not only by how often it was asked."""

from __future__ import annotations

from devtools_lsp.core.diagnostics import Finding
from devtools_lsp.engines.baselines import Baselines, StateKey
from devtools_lsp.engines.reports import Judged


def state(number: int) -> StateKey:
    return (1, 1, frozenset({("a.py", str(number))}))


def said(count: int) -> Judged:
    return Judged((Finding(path="a.py", severity="error", message="no"),) * count)


def known(baselines: Baselines, states: range) -> list[int]:
    return [number for number in states if baselines.of(state(number))]


def test_the_oldest_states_go_when_there_are_too_many():
    baselines = Baselines(3, findings=100)
    for number in range(5):
        baselines.remember(state(number), {"a.py": said(1)})
    assert known(baselines, range(5)) == [2, 3, 4]


def test_the_oldest_states_go_when_too_much_was_said():
    baselines = Baselines(100, findings=10)
    for number in range(5):
        baselines.remember(state(number), {"a.py": said(4)})
    assert known(baselines, range(5)) == [3, 4]


def test_the_newest_state_stays_however_much_is_said_about_it():
    baselines = Baselines(100, findings=10)
    baselines.remember(state(0), {"a.py": said(4)})
    for path in ("a.py", "b.py", "c.py"):
        baselines.remember(state(1), {path: said(40)})
    assert known(baselines, range(2)) == [1]
    assert sorted(baselines.of(state(1))) == ["a.py", "b.py", "c.py"]


def test_an_answer_in_place_of_another_counts_once_and_nothing_counts_after_a_new_beginning():
    baselines = Baselines(100, findings=10)
    baselines.remember(state(0), {"a.py": said(4)})
    for _ in range(10):
        baselines.remember(state(1), {"a.py": said(6)})
    assert known(baselines, range(2)) == [0, 1]
    baselines.clear()
    assert known(baselines, range(2)) == []
    baselines.remember(state(2), {"a.py": said(5)})
    baselines.remember(state(3), {"a.py": said(5)})
    assert known(baselines, range(2, 4)) == [2, 3]
