"""The order of moves (SPEC 3.7)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.core.renames import RenameMove, plan_renames
from devtools_lsp.errors import StepFailedError

SEEDED = settings(derandomize=True, deadline=None, max_examples=100)


def plan(moves: dict[str, str], *more: str) -> list[str]:
    return [
        f"{move.source}->{move.target}{'*' if move.temporary else ''}"
        for move in plan_renames(moves, taken={*moves, *more})
    ]


@pytest.mark.parametrize(
    ("moves", "order"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"a": "a"}, [], id="a file that stays"),
        pytest.param({"b": "y", "a": "x"}, ["a->x", "b->y"], id="ties are lexical"),
        pytest.param({"a": "b", "b": "c", "c": "d"}, ["c->d", "b->c", "a->b"], id="a chain from its end"),
        pytest.param({"a": "b", "b": "a"}, ["a->b.moving-1*", "b->a", "b.moving-1->b"], id="an exchange"),
        pytest.param(
            {"x/a.py": "y/b.py", "y/b.py": "x/a.py"},
            ["x/a.py->y/b.moving-1.py*", "y/b.py->x/a.py", "y/b.moving-1.py->y/b.py"],
            id="beside the destination, with its extension",
        ),
        pytest.param(
            {"c": "a", "a": "b", "b": "c", "m": "n"},
            ["m->n", "a->b.moving-1*", "c->a", "b->c", "b.moving-1->b"],
            id="a round of three after what is free",
        ),
        pytest.param(
            {"a": "b", "b": "a", "p": "q", "q": "p"},
            ["a->b.moving-1*", "b->a", "b.moving-1->b", "p->q.moving-1*", "q->p", "q.moving-1->q"],
            id="two rounds",
        ),
        pytest.param({".e": ".f", ".f": ".e"}, [".e->.f.moving-1*", ".f->.e", ".f.moving-1->.f"], id="dot names"),
    ],
)
def test_orders(moves: dict[str, str], order: list[str]):
    assert plan(moves) == order


def test_a_temporary_name_is_one_that_nobody_has():
    assert plan({"a": "b", "b": "a"}, "b.moving-1", "b.moving-2")[0] == "a->b.moving-3*"
    assert plan({"a": "b", "b": "a", "c": "b.moving-1"})[1] == "a->b.moving-2*"


def test_eight_names_are_tried():
    taken = [f"b.moving-{number}" for number in range(1, 9)]
    assert plan({"a": "b", "b": "a"}, *taken[:7])[0] == "a->b.moving-8*"
    with pytest.raises(StepFailedError, match="8 temporary names") as caught:
        plan({"a": "b", "b": "a"}, *taken)
    assert (caught.value.reason, caught.value.path) == ("exists", "b")


def test_a_long_name_stays_within_what_file_systems_take():
    name = "é" * 120 + ".py"
    (first, *_) = plan_renames({"a": name, name: "a"}, taken={"a", name})
    assert len(first.target.encode()) <= 255
    assert first.target.endswith(".moving-1.py")


@pytest.mark.parametrize(
    ("moves", "taken", "path"),
    [({"a": "c", "b": "c"}, [], "c"), ({"a": "b", "b": "b"}, [], "b"), ({"a": "b"}, ["b"], "b")],
)
def test_moves_that_would_lose_a_file_are_refused(moves: dict[str, str], taken: list[str], path: str):
    with pytest.raises(StepFailedError) as caught:
        plan(moves, *taken)
    assert (caught.value.reason, caught.value.path) == ("exists", path)


@SEEDED
@given(st.permutations(range(9)), st.sets(st.integers(0, 8)), st.integers(0, 3))
def test_a_plan_carried_out_is_the_permutation(order: list[int], chosen: set[int], shift: int):
    files = {f"d{number % 3}/f{number}": number for number in range(9)}
    names = sorted(files)
    moves = {names[number]: names[order[number]] for number in sorted(chosen)}
    moves |= {names[number]: f"new{number}" for number in range(shift)}
    wanted = {moves.get(name, name): number for name, number in files.items()}
    if len(wanted) < len(files):
        with pytest.raises(StepFailedError):
            plan_renames(moves, taken=files)
        return
    state = dict(files)
    for move in plan_renames(moves, taken=files):
        assert move.target not in state
        state[move.target] = state.pop(move.source)
    assert state == wanted


def test_ten_thousand_moves_in_a_ring():
    ring = {f"f{number:05}": f"f{(number + 1) % 10_000:05}" for number in range(10_000)}
    moves = plan_renames(ring, taken=ring)
    assert len(moves) == 10_001
    assert moves[0] == RenameMove("f00000", "f00001.moving-1", temporary=True)
