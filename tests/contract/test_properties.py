"""Random plans over random trees: the invariants hold whatever is asked (hypothesis, seeded)."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devtools_lsp.errors import DevToolsError
from devtools_lsp.ports import Decision
from tests.contract.bench import Scene, finder, formatter, op

clause = pytest.mark.clause

NAMES = ["a.txt", "b.txt", "d/c.txt", "d/e.txt"]
WORDS = ["one", "two", "three", "bad"]

texts = st.lists(st.sampled_from(WORDS), min_size=0, max_size=6).map(lambda words: "".join(f"{w}\n" for w in words))
trees = st.dictionaries(st.sampled_from(NAMES), texts, min_size=1, max_size=4)


def envelope(*lines: str) -> dict[str, Any]:
    return op("apply_patch", patch="\n".join(["*** Begin Patch", *lines, "*** End Patch"]))


steps = st.one_of(
    st.builds(
        lambda path, find, replace: op("edit", path=path, edits=[{"find": find, "replace": replace}]),
        st.sampled_from(NAMES),
        st.sampled_from(WORDS),
        st.sampled_from(WORDS),
    ),
    st.builds(lambda path: envelope(f"*** Delete File: {path}"), st.sampled_from(NAMES)),
    st.builds(lambda path: envelope(f"*** Add File: {path}", "+new"), st.sampled_from(NAMES)),
    st.builds(
        lambda source, target: envelope(f"*** Update File: {source}", f"*** Move to: {target}"),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
    ),
    st.just(op("format")),
    st.just(op("check")),
    st.just(op("write")),
)


async def play(scene: Scene, plan: list[dict[str, Any]], deny: int | None) -> None:
    before = scene.disk()
    asked = 0

    def answer(_context, _call) -> Decision:
        nonlocal asked
        asked += 1
        return Decision(approved=asked - 1 != deny, by="property")

    scene.gate.answer = answer
    present = [name for name in NAMES if (scene.root / name).exists()]
    try:
        result = await scene.plan(present, *plan)
    except DevToolsError as error:
        wrote = any(call["step"] == "write" for call in scene.gate.asked)
        # I1, I6: without an approved write the disk is what it was; with one, `written` names what differs.
        if not wrote:
            assert scene.disk() == before
        changed = {path for path in {*before, *scene.disk()} if before.get(path) != scene.disk().get(path)}
        told = {entry["path"] for entry in error.written or []} | {
            entry["from"] for entry in error.written or [] if "from" in entry
        }
        assert changed <= told, error.message
        assert error.code.startswith("E_DEV_")
    else:
        # I2: acquire and each step, once each.
        assert scene.gate.steps == ["acquire", *(entry["step"] for entry in plan)]
        # I3: authored arguments.
        assert [call["args"] for call in scene.gate.asked[1:]] == [entry["args"] for entry in plan]
        wrote = [index for index, entry in enumerate(plan) if entry["step"] == "write"]
        if not wrote:
            assert scene.disk() == before
        if wrote and wrote[-1] == len(plan) - 1:
            assert result.unwritten == []
        for change in result.changes:
            # I12
            assert (change.added, change.removed) == (None, None)
        for item in result.diagnostics:
            # I9
            assert item.engine_id in (None, "upper", "words")
        # What the result says of the end is the disk's state, where all was written.
        if not result.unwritten:
            after = scene.disk()
            assert {path for path in {*before, *after} if before.get(path) != after.get(path)} == {
                path
                for change in result.changes
                for path in (change.path, change.from_ or change.path)
                if before.get(path) != after.get(path)
            }


@clause("3.20")
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(tree=trees, plan=st.lists(steps, min_size=1, max_size=6), deny=st.none() | st.integers(0, 6))
def test_random_plans_keep_the_invariants(tree, plan, deny):
    """I1 to I3, I6, I9, I12."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "root"
        root.mkdir()
        scene = Scene(root).put(tree)
        scene.engines = [formatter("upper", lambda text: text.replace("bad", "BAD")), finder("words", "three")]
        try:
            asyncio.run(play(scene, plan, deny))
        finally:
            if scene.file_system is not None:
                scene.file_system.close()
