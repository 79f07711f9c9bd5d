"""A result that is worked out while the disk is waited for is the result, or nobody gets to see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devtools_lsp.core.result import Result
from devtools_lsp.errors import StepFailedError
from devtools_lsp.fs import faults
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.line_counts import line_counter
from devtools_lsp.pipeline.steps import OpName
from devtools_lsp.ports import Decision, Edited
from tests.contract.bench import Scene


@pytest.fixture
def scenes(tmp_path: Path) -> Iterator[list[Scene]]:
    """The same root twice: with a journal, whose commits leave time to foretell, and without."""
    made: list[Scene] = []
    for journaled in (True, False):
        root = tmp_path / str(journaled)
        root.mkdir()
        file_system = LocalFileSystem(str(root), journaled=journaled)
        made.append(Scene(root, options={"line_counter": line_counter()}, file_system=file_system))
    yield made
    for scene in made:
        scene.file_system.close()


STEPS: dict[str, tuple[OpName, dict[str, Any]]] = {
    "edit": ("edit", {"path": "a.txt", "edits": [{"find": "two", "replace": "2\nand more"}]}),
    "no change": ("edit", {"path": "a.txt", "edits": [{"find": "two", "replace": "two"}]}),
    "normalized": ("edit", {"path": "crlf.txt", "edits": [{"find": "two", "replace": "2"}]}),
    "patch with a remark": (
        "apply_patch",
        {"patch": "*** Begin Patch\n*** Update File: a.txt\n@@\n one  \n-two\n+2\n*** End Patch\n"},
    ),
    "patch over several": (
        "apply_patch",
        {
            "patch": "*** Begin Patch\n*** Add File: new/b.txt\n+b\n*** Delete File: crlf.txt\n*** Update File: a.txt\n"
            "*** Move to: c.txt\n@@\n one\n-two\n+2\n*** End Patch\n"
        },
    ),
}


def told(result: Result) -> dict[str, Any]:
    wire: dict[str, Any] = msgspec.to_builtins(result)
    return {name: value for name, value in wire.items() if name not in ("plan", "atomic")}


@pytest.mark.parametrize("name", STEPS)
async def test_what_was_foretold_is_what_is_told_without_foretelling(scenes: list[Scene], name: str):
    step, args = STEPS[name]
    foretold: list[list[Result]] = [[], []]
    results: list[Result] = []
    for scene, seen in zip(scenes, foretold, strict=True):
        scene.put({"a.txt": "one\ntwo\nthree\n", "crlf.txt": "one\r\ntwo\r\n"})
        results.append(await scene.pipeline.single(step, args, foretold=seen.append))
    assert told(results[0]) == told(results[1])
    changes = name != "no change"
    assert [len(seen) for seen in foretold] == [int(changes), 0]
    assert not changes or results[0] is foretold[0][0]
    assert results[0].normalized or name != "normalized"
    assert results[0].diagnostics or name != "patch with a remark"


async def test_what_a_person_made_of_it_is_foretold(scenes: list[Scene]):
    scene = scenes[0].put({"a.txt": "one\ntwo\n"})
    edited = (Edited(text="theirs\nand more\n", path="a.txt"),)
    scene.gate.answer = lambda _, call: Decision(approved=True, by="test", person=True, edited=edited * bool(call.args))
    foretold: list[Result] = []
    step, args = STEPS["edit"]
    result = await scene.pipeline.single(step, args, foretold=foretold.append)
    assert result is foretold[0]
    assert scene.text("a.txt") == "theirs\nand more\n"
    assert result.decision is not None
    assert result.decision.edited == ["a.txt"]


async def test_what_does_not_land_is_an_error_all_the_same(scenes: list[Scene], monkeypatch: pytest.MonkeyPatch):
    scene = scenes[0].put({"a.txt": "one\ntwo\n"})
    foretold: list[Result] = []
    step, args = STEPS["edit"]
    await scene.pipeline.single(step, args, foretold=foretold.append)
    monkeypatch.setattr(faults, "armed", faults.Fault("journal:place:EIO"))
    again = {"path": "a.txt", "edits": [{"find": "one", "replace": "1"}]}
    with pytest.raises(StepFailedError) as caught:
        await scene.pipeline.single("edit", again, foretold=foretold.append)
    assert caught.value.written is None
    assert scene.text("a.txt") == "one\n2\nand more\n"


async def test_a_plan_of_several_steps_is_not_foretold(scenes: list[Scene]):
    scene = scenes[0].put({"a.txt": "one\ntwo\n"})
    step, args = STEPS["edit"]
    result = await scene.plan(["a.txt"], {"step": step, "args": args}, {"step": "write"})
    assert [change.added for change in result.changes] == [2]
