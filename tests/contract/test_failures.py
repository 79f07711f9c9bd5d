"""Failures half-way and input that is out of bounds: what is told equals what is there, and every wait ends."""

from __future__ import annotations

import asyncio
import errno
import time

import pytest

from devtools_lsp.core.result import Result
from devtools_lsp.errors import DevToolsError
from devtools_lsp.fs.memory import MemoryFileSystem
from devtools_lsp.pipeline.guarded import Caller
from devtools_lsp.pipeline.parts import Bounds
from devtools_lsp.ports import Decision, PlanIdentity
from tests.contract.bench import Scene, finder, op

clause = pytest.mark.clause

FILES = {"a.txt": b"a\n", "b.txt": b"b\n", "gone.txt": b"g\n", "old.txt": b"o\n"}
PATCH = "\n".join(
    [
        "*** Begin Patch",
        "*** Update File: a.txt",
        "@@",
        "-a",
        "+A",
        "*** Update File: b.txt",
        "@@",
        "-b",
        "+B",
        "*** Delete File: gone.txt",
        "*** Update File: old.txt",
        "*** Move to: sub/new.txt",
        "*** Add File: sub/deep/added.txt",
        "+x",
        "*** End Patch",
    ]
)
AFTER = {"a.txt": b"A\n", "b.txt": b"B\n", "sub/new.txt": b"o\n", "sub/deep/added.txt": b"x\n"}


def apply_written(files: dict[str, bytes], written: list[dict[str, str]]) -> dict[str, bytes]:
    """What the disk must hold when exactly these mutations of the patch landed."""
    held = dict(files)
    for entry in written:
        if entry["kind"] == "deleted":
            del held[entry["path"]]
        elif entry["kind"] == "renamed":
            held[entry["path"]] = held.pop(entry["from"])
        else:
            held[entry["path"]] = AFTER[entry["path"]]
    return held


class Faulty(MemoryFileSystem):
    """Fails the n-th call that changes something."""

    def __init__(self, fail_at: int) -> None:
        super().__init__(FILES, on_call=self._count)
        self.left = fail_at

    def _count(self, method: str, path: str) -> None:
        if method in ("write", "delete", "rename", "mkdir"):
            if self.left == 0:
                raise OSError(errno.EIO, "the disk is tired", path)
            self.left -= 1


@clause("3.18")
@pytest.mark.parametrize("fail_at", range(9))
async def test_written_is_what_landed_at_every_failure(scene: Scene, fail_at: int):
    """I6, on a file system without transactions: the n-th change fails, for every n."""
    scene.file_system = files = Faulty(fail_at)
    try:
        result = await scene.call("apply_patch", patch=PATCH)
    except DevToolsError as error:
        assert error.code == "E_DEV_STEP_FAILED"
        assert error.step == "apply_patch"
        assert files.contents == apply_written(FILES, error.written or [])
        assert files.left == 0
    else:
        assert files.contents == AFTER
        assert result.atomic is False
        assert files.left > 0 or fail_at >= 7


@clause("3.18")
async def test_a_cycle_of_renames_that_breaks_names_the_file_left_aside(scene: Scene):
    calls = {"rename": 0}

    def fail_the_second(method: str, path: str) -> None:
        if method == "rename":
            calls["rename"] += 1
            if calls["rename"] == 2:
                raise OSError(errno.EIO, "the disk is tired", path)

    scene.file_system = files = MemoryFileSystem({"a.txt": b"A\n", "b.txt": b"B\n"}, on_call=fail_the_second)
    swap = "\n".join(
        [
            "*** Begin Patch",
            "*** Update File: a.txt",
            "*** Move to: b.txt",
            "*** Update File: b.txt",
            "*** Move to: a.txt",
            "*** End Patch",
        ]
    )
    with pytest.raises(DevToolsError) as caught:
        await scene.call("apply_patch", patch=swap)
    (stranded,) = set(files.contents) - {"a.txt", "b.txt"}
    assert files.contents[stranded] == b"A\n"
    assert f"a.txt was left under the name {stranded}" in caught.value.message
    assert caught.value.written == [{"path": stranded, "kind": "renamed", "from": "a.txt"}]


@clause("3.18")
async def test_an_atomic_file_system_lands_all_or_nothing(scene: Scene):
    scene.file_system = files = MemoryFileSystem(FILES, atomic=True)
    result = await scene.call("apply_patch", patch=PATCH)
    assert files.contents == AFTER
    assert result.atomic is True


@clause("3.18")
async def test_a_plan_that_fails_after_a_write_lists_what_landed(scene: Scene):
    scene.put({"a.txt": "a\n"})
    scene.gate.answer = lambda _context, call: Decision(approved=call.step != "check", by="person")
    scene.engines = [finder("words", "x")]
    with pytest.raises(DevToolsError) as caught:
        await scene.plan(
            ["a.txt"], op("edit", path="a.txt", edits=[{"find": "a", "replace": "b"}]), op("write"), op("check")
        )
    assert caught.value.code == "E_DEV_GATE_DECLINED"
    assert caught.value.written == [{"path": "a.txt", "kind": "modified"}]
    assert scene.text("a.txt") == "b\n"


class FourMethods:
    """An adapter with the four required methods and nothing else."""

    def __init__(self) -> None:
        inner = MemoryFileSystem(FILES)
        self.contents = inner.contents
        self.stat, self.list, self.read, self.write = inner.stat, inner.list, inner.read, inner.write


@clause("3.18")
async def test_a_four_method_adapter_works_and_names_what_it_lacks(scene: Scene):
    scene.file_system = files = FourMethods()
    await scene.call("edit", path="a.txt", edits=[{"find": "a", "replace": "A"}])
    assert files.contents["a.txt"] == b"A\n"
    for patch, missing in (
        ("*** Begin Patch\n*** Delete File: b.txt\n*** End Patch", "delete"),
        ("*** Begin Patch\n*** Update File: b.txt\n*** Move to: c.txt\n*** End Patch", "rename"),
        ("*** Begin Patch\n*** Add File: d/new.txt\n+x\n*** End Patch", "mkdir"),
    ):
        before = dict(files.contents)
        with pytest.raises(DevToolsError) as caught:
            await scene.call("apply_patch", patch=patch)
        assert caught.value.code == "E_DEV_STEP_UNAVAILABLE"
        assert missing in caught.value.message
        assert files.contents == before
    assert (
        scene.gate.steps == ["acquire", "edit", "acquire", "acquire", "acquire", "apply_patch"][: len(scene.gate.steps)]
    )


@clause("3.18")
@pytest.mark.parametrize("method", ["stat", "read", "list"])
async def test_a_fault_of_looking_is_a_refusal_and_never_an_absence(scene: Scene, method: str):
    def refuse(called: str, path: str) -> None:
        if called == method:
            raise PermissionError(errno.EACCES, "no entry", path)

    scene.file_system = MemoryFileSystem(FILES, on_call=refuse)
    for work in (
        scene.plan(["a.txt"] if method != "list" else ["*.txt"], op("write")),
        scene.call("apply_patch", patch="*** Begin Patch\n*** Add File: c.txt\n+x\n*** End Patch")
        if method == "stat"
        else scene.plan(["*.txt"], op("write")),
    ):
        with pytest.raises(DevToolsError) as caught:
            await work
        assert caught.value.code in ("E_DEV_STEP_FAILED", "E_DEV_POLICY")
        assert caught.value.reason != "notFound"


@clause("3.18")
async def test_an_undo_that_is_stopped_after_it_began_tells_what_it_did(scene: Scene):
    """Nothing is half-told: its commit is finished, and the caller hears of it."""
    scene.put({"a.txt": "a\n"})
    plan = (await scene.call("edit", path="a.txt", edits=[{"find": "a", "replace": "b"}])).plan
    undoing: list[asyncio.Task[Result]] = []
    commit = scene.file_system.commit_witnessed

    async def stopped_meanwhile(*args, **kwargs):
        undoing[0].cancel()
        return await commit(*args, **kwargs)

    scene.file_system.commit_witnessed = stopped_meanwhile
    caller = Caller(PlanIdentity("u", "test"))
    undoing.append(asyncio.ensure_future(scene.pipeline.undo(plan, caller)))
    with pytest.raises(DevToolsError) as caught:
        await undoing[0]
    assert caught.value.code == "E_DEV_CANCELLED"
    assert caught.value.written == [{"path": "a.txt", "kind": "modified"}]
    assert scene.text("a.txt") == "a\n"


@clause("3.19")
@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"step": "apply_patch", "patch": "*** Begin Patch\n" + "x" * 5_000_000}, "E_DEV_BAD_ARG"),
        ({"step": "edit", "path": "/".join(["d"] * 2500), "edits": [{"find": "a", "replace": "b"}]}, "E_DEV_POLICY"),
        ({"step": "edit", "path": "x" * 300, "edits": [{"find": "a", "replace": "b"}]}, "E_DEV_POLICY"),
        ({"step": "edit", "path": "a\0b", "edits": [{"find": "a", "replace": "b"}]}, "E_DEV_POLICY"),
        ({"step": "edit", "path": "\ud800", "edits": [{"find": "a", "replace": "b"}]}, "E_DEV_BAD_ARG"),
        ({"step": "edit", "path": "a.txt", "edits": [{"find": "a", "replace": "\udcff"}]}, "E_DEV_BAD_ARG"),
        ({"step": "edit", "path": "a.txt", "edits": [{"find": "\udcff", "replace": "a"}]}, "E_DEV_BAD_ARG"),
        ({"step": "edit", "path": "a.txt", "edits": [{"find": "a", "replace": "\0"}]}, "E_DEV_BAD_ARG"),
        (
            {"step": "apply_patch", "patch": "*** Begin Patch\n*** Add File: n.txt\n+\ud800\n*** End Patch"},
            "E_DEV_BAD_ARG",
        ),
        (
            {"step": "apply_patch", "patch": "*** Begin Patch\n*** Add File: n\0.txt\n+x\n*** End Patch"},
            "E_DEV_BAD_ARG",
        ),
        (
            {"step": "apply_patch", "patch": "*** Begin Patch\n*** Add File: ../n.txt\n+x\n*** End Patch"},
            "E_DEV_POLICY",
        ),
        (
            {"step": "apply_patch", "patch": "*** Begin Patch\n*** Add File: /etc/n.txt\n+x\n*** End Patch"},
            "E_DEV_POLICY",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value)[:40].encode("ascii", "replace").decode(),
)
async def test_input_out_of_bounds_is_a_named_error_and_changes_nothing(scene: Scene, args, code: str):
    scene.put({"a.txt": "a\n"})
    before = scene.disk()
    begun = time.monotonic()
    with pytest.raises(DevToolsError) as caught:
        await scene.call(**args)
    assert caught.value.code == code, caught.value.message
    assert scene.disk() == before
    assert len(caught.value.message) < 3000
    assert time.monotonic() - begun < 20


@clause("3.19")
async def test_ten_thousand_hunks(scene: Scene):
    scene.options["bounds"] = Bounds(max_bytes_per_file=4 * 1024 * 1024)
    lines = [f"line {number}\n" for number in range(40_000)]
    scene.put({"a.txt": "".join(lines)})
    hunks = "".join(f"@@ -{n + 1},1 +{n + 1},1 @@\n-line {n}\n+LINE {n}\n" for n in range(0, 40_000, 4))
    await scene.call("apply_patch", patch=f"--- a/a.txt\n+++ b/a.txt\n{hunks}")
    assert scene.text("a.txt").count("LINE") == 10_000


@clause("3.19")
async def test_a_deep_tree_is_bounded(scene: Scene):
    scene.put({"/".join(["d"] * 25) + "/a.txt": "x\n"})
    error = await scene.refused(scene.plan(["**/*.txt"], op("write")), "E_DEV_WORKSPACE_BOUNDS")
    assert "max_depth" in error.message
