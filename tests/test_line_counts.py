"""Line counts and their absence (SPEC 3.12.3)."""

from __future__ import annotations

import builtins
import sys
import time

import pytest

from devtools_lsp import line_counts
from devtools_lsp.line_counts import line_counter


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ("", "", (0, 0)),
        ("a\n", "a\n", (0, 0)),
        ("", "a\nb\n", (2, 0)),
        ("a\nb", "", (0, 2)),
        ("a\n", "a", (1, 1)),
        ("a\nb\nc\n", "a\nX\nY\nc\n", (2, 1)),
        ("a\nb\nc\nd\n", "d\na\nb\nc\n", (1, 1)),
        ("a\u2028b\fc\rd\n", "a\u2028b\fc\rD\n", (1, 1)),
        ("x\n" * 9, "x\n" * 4, (0, 5)),
    ],
)
def test_counts_are_the_smallest_there_are(before: str, after: str, counts: tuple[int, int]):
    counter = line_counter()
    assert counter is not None
    assert counter(before, after) == counts


def test_large_texts_are_counted_in_bounded_time(monkeypatch: pytest.MonkeyPatch):
    counter = line_counter()
    assert counter is not None
    old = "".join(f"{number}\n" for number in range(40_000))
    new = "".join(f"{number if number % 3 else -number}\n" for number in range(40_000))
    began = time.process_time()
    exact = counter(old, new)
    assert time.process_time() - began < 5
    monkeypatch.setattr(line_counts, "_CELLS", 0)
    assert counter(old, new) == exact == (13_333, 13_333)


def test_without_the_extra_there_is_no_counter(monkeypatch: pytest.MonkeyPatch):
    """I12: nothing fails, and nothing counts as zero."""
    real = builtins.__import__

    def refuse(name: str, *rest: object, **more: object) -> object:
        if name.startswith("rapidfuzz"):
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    for name in [name for name in sys.modules if name.startswith("rapidfuzz")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)
    assert line_counter() is None
