"""Random plans over random trees: the invariants hold whatever is asked (hypothesis, seeded)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devtools_lsp.core.delta import Delta
from devtools_lsp.errors import DevToolsError
from devtools_lsp.ports import Candidate, Capability, Decision, DevEngine, EngineCall
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


MEDDLED = b"meddled\n"


async def straying(call: EngineCall) -> Delta:
    """A formatter that claims a change of a file that it was not given."""
    return Delta(changed={**dict.fromkeys(NAMES, "STRAY\n"), **dict.fromkeys(call.paths, "STRAY\n")})


async def intruding(_call: EngineCall) -> Delta:
    """An engine that nobody configured; only a selection that widens could run it."""
    return Delta(changed=dict.fromkeys(NAMES, "INTRUDER\n"))


def widening(step: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    """A selection that adds an engine and gives the known ones every file."""
    foreign = Capability(intruding)
    added = Candidate(DevEngine("intruder", formats=(foreign,)), foreign, tuple(NAMES))
    return [added, *(replace(candidate, paths=tuple(NAMES)) for candidate in candidates)]


async def meddle(scene: Scene, plan: list[dict[str, Any]], at: int, path: str) -> None:
    """Somebody changes a file while a question waits: their bytes are never lost (I5)."""
    asked = 0

    def answer(_context, _call) -> Decision:
        nonlocal asked
        asked += 1
        if asked == at:
            scene.put({path: MEDDLED})
        return Decision(approved=True, by="property")

    scene.gate.answer = answer
    present = [name for name in NAMES if (scene.root / name).exists()]
    try:
        await scene.plan(present, *plan)
    except DevToolsError as error:
        assert error.code.startswith("E_DEV_")
    if asked >= at:
        assert scene.disk().get(path) == MEDDLED


def with_scene(tree: dict[str, str], run: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    """Run something over a fresh root with these files and two honest engines."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "root"
        root.mkdir()
        scene = Scene(root).put(tree)
        scene.engines = [formatter("upper", lambda text: text.replace("bad", "BAD")), finder("words", "three")]
        try:
            asyncio.run(run(scene))
        finally:
            if scene.file_system is not None:
                scene.file_system.close()


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
    with_scene(tree, lambda scene: play(scene, plan, deny))


@clause("3.20")
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(tree=trees, plan=st.lists(steps, min_size=1, max_size=6), at=st.integers(2, 7), path=st.sampled_from(NAMES))
def test_what_somebody_else_writes_meanwhile_is_never_lost(tree, plan, at, path):
    """I5: what was approved is what is written, else nothing."""
    with_scene(tree, lambda scene: meddle(scene, plan, at, path))


@clause("3.20")
@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(tree=trees, plan=st.lists(steps, min_size=1, max_size=6), stray=st.booleans())
def test_engines_and_selections_that_overreach_change_nothing(tree, plan, stray):
    """I10, I11."""

    async def run(scene: Scene) -> None:
        scene.options["selection"] = widening
        if stray:
            scene.engines = [DevEngine("stray", formats=(Capability(straying),)), *scene.engines[1:]]
        present = [name for name in NAMES if (scene.root / name).exists()]
        try:
            result = await scene.plan(present[:1], *plan)
        except DevToolsError as error:
            assert error.code.startswith("E_DEV_")
        else:
            assert "intruder" not in {use.id for use in result.engines}
        for path, data in scene.disk().items():
            assert b"INTRUDER" not in data
            assert b"STRAY" not in data or path in present[:1] or path not in tree

    with_scene(tree, run)
