"""Measurements of the pure core, as ratios to work that cannot be avoided in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from devtools_lsp.core.changeset import FileChange
from devtools_lsp.core.edits import Edit, plan_edits
from devtools_lsp.core.hunks import hunks_between, hunks_from_spans, render_unified
from devtools_lsp.core.patch import apply_operations, parse_patch
from devtools_lsp.core.workspace import FileText
from devtools_lsp.text import decode

pytestmark = pytest.mark.bench

LARGE = "".join(f"value_{number} = compute({number % 97}, 'some text')\n" for number in range(56_000))
"""A file of about 2 MiB."""


def median_s(call: Callable[[], object], rounds: int = 9) -> float:
    """The median time of a call in seconds."""
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return sorted(times)[rounds // 2]


def report(name: str, cost: float, base: float, floor: float) -> None:
    print(f"{name}: {cost * 1000:.2f} ms, {cost / base:.2f} x the base of {base * 1000:.2f} ms (at most {floor} x)")
    assert cost <= floor * base


def test_a_one_line_edit_with_its_hunks_in_a_large_file():
    """Base: the file's bytes decoded and encoded again, which every edit needs anyhow."""
    assert len(LARGE) > 2 << 20
    data = LARGE.encode()
    file = FileText(LARGE)
    edit = Edit("value_26000 = compute(4, 'some text')", "value_26000 = other(4)")

    def run() -> None:
        spans = plan_edits("f", file.text, [edit])
        file.edited(spans)
        assert len(hunks_from_spans(file.text, spans, path="f")) == 1

    base = median_s(lambda: FileText(*decode(data)).to_bytes("preserve"))
    report("a one-line edit and its hunks in 2 MiB", median_s(run), base, 2.0)


def test_hunks_of_a_whole_text_that_an_engine_returned():
    """Base: splitting both texts into lines, which every line diff begins with."""
    new = LARGE.replace("value_100 ", "value_x ").replace("value_51000 ", "value_y ")
    base = median_s(lambda: (LARGE.split("\n"), new.split("\n")))
    report("hunks between two texts of 2 MiB", median_s(lambda: hunks_between(LARGE, new, path="f")), base, 25.0)


@pytest.mark.parametrize("dialect", ["unified", "envelope"])
def test_a_patch_of_a_hundred_hunks(dialect: str):
    """Base: the file split into lines and each line noted in a dictionary once, to find context at all."""
    new = LARGE
    for number in range(0, 50_000, 500):
        new = new.replace(f"value_{number} = compute", f"value_{number} = other", 1)
    patch = render_unified([FileChange("f", "modified", None, hunks_between(LARGE, new, path="f"))])
    if dialect == "envelope":
        body = [line if not line.startswith("@@") else "@@" for line in patch.split("\n")[3:-1]]
        patch = "\n".join(["*** Begin Patch", "*** Update File: f", *body, "*** End Patch"])
    assert patch.count("\n@@") == 100
    files = {"f": FileText(LARGE)}

    def run() -> None:
        outcome = apply_operations(parse_patch(patch).operations, files)
        assert outcome.changed["f"].text == new

    base = median_s(lambda: {line: number for number, line in enumerate(LARGE.split("\n"))})
    report(f"a {dialect} patch of 100 hunks in 2 MiB", median_s(run), base, 12.0)
