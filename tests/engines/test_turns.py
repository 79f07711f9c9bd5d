"""Files that are asked about in turn: one that is never answered does not cost the others theirs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from devtools_lsp.engines import judging
from devtools_lsp.engines.judging import ON_DISK, Judge
from devtools_lsp.engines.reports import Judged, Unjudged
from devtools_lsp.engines.spec import spec_from_table
from devtools_lsp.engines.tree import ProjectTree


class Clock:
    """Time that passes only when a file is waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.monotonic()
        monkeypatch.setattr(judging.time, "monotonic", lambda: self.now)


@pytest.mark.parametrize(
    ("stuck", "seconds", "judged", "asked"),
    [
        ({"a.py"}, 30.0, ["b.py", "c.py"], ["a.py", "b.py", "c.py"]),
        ({"b.py"}, 30.0, ["a.py", "c.py"], ["a.py", "b.py", "c.py"]),
        ({"a.py", "b.py", "c.py"}, 30.0, [], ["a.py", "b.py", "c.py"]),
        ({"a.py"}, 2.0, [], ["a.py"]),
    ],
    ids=["the first is stuck", "a later one is stuck", "all are: still indexing", "little time goes to the first"],
)
async def test_a_file_that_is_never_answered(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stuck: set[str],
    seconds: float,
    judged: list[str],
    asked: list[str],
):
    clock = Clock(monkeypatch)
    begun = clock.now
    seen: list[str] = []

    async def judge_file(_session: Any, path: str, _text: Any, *, deadline: float, known: Any) -> Judged | Unjudged:
        seen.append(path)
        if path in stuck:
            clock.now = deadline
            return Unjudged("never")
        clock.now += 0.1
        return Judged((), {})

    monkeypatch.setattr(judging, "judge_file", judge_file)
    monkeypatch.setattr(Judge, "_remember", lambda *_: None)
    monkeypatch.setattr(Judge, "_known", lambda *_: None)
    spec = spec_from_table("checker", {"preset": "ty"})
    judge = Judge(spec, ProjectTree(tmp_path))
    session = cast("Any", object())
    answers = await judge.judge(session, ON_DISK, ["a.py", "b.py", "c.py"], begun + seconds, at_once=1)
    assert sorted(answers.judged) == judged
    assert list(dict.fromkeys(seen)) == asked
    assert clock.now <= begun + seconds + 0.2
    assert set(answers.unjudged) == {"a.py", "b.py", "c.py"} - set(judged)
