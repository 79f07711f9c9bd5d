"""Section 3.10: engines that change the disk themselves."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable

import pytest

from devtools_lsp.core.delta import Delta
from devtools_lsp.core.diagnostics import Finding
from devtools_lsp.errors import DevToolsError
from devtools_lsp.ports import Capability, DevEngine, EngineCall
from tests.contract.bench import Scene, op

clause = pytest.mark.clause

ALL = frozenset({"delete", "rename", "mkdir"})


def in_place(
    run: Callable[[EngineCall], Awaitable[Delta]],
    *,
    scope: tuple[str, ...] = ("**/*.txt",),
    needs: frozenset[str] = ALL,
    generates: bool = False,
) -> DevEngine:
    return DevEngine("mover", formats=(Capability(run, in_place=True, scope=scope, needs=needs, generates=generates),))


@clause("3.16")
async def test_the_disk_is_the_truth_after_an_in_place_run(scene: Scene):
    async def run(call: EngineCall) -> Delta:
        files = call.facade
        assert files is not None
        await files.write("a.txt", (await files.read("a.txt")).upper())
        await files.write("made.txt", b"made\n")
        await files.delete("gone.txt")
        await files.rename("old.txt", "new.txt")
        return Delta(diagnostics=(Finding(path="made.txt", severity="info", message="made it", line=1),))

    scene.engines = [in_place(run)]
    scene.put({"a.txt": "a\n", "gone.txt": "g\n", "old.txt": "o\n"})
    result = await scene.call("format", paths=["*.txt"])
    assert scene.disk() == {"a.txt": b"A\n", "made.txt": b"made\n", "new.txt": b"o\n"}
    assert [(change.path, change.kind, change.from_) for change in result.changes] == [
        ("a.txt", "modified", None),
        ("gone.txt", "deleted", None),
        ("made.txt", "added", None),
        ("new.txt", "renamed", "old.txt"),
    ]
    assert [(entry.path, entry.kind) for entry in result.written] == [
        ("a.txt", "modified"),
        ("gone.txt", "deleted"),
        ("made.txt", "added"),
        ("new.txt", "renamed"),
    ]
    assert [(item.path, item.engine_id, item.out_of_scope) for item in result.diagnostics] == [
        ("made.txt", "mover", False)
    ]
    assert result.unwritten == []
    assert result.atomic is False
    assert scene.gate.steps == ["acquire", "format"]
    assert scene.gate.asked[1]["mayCreate"] == ["**/*.txt"]


@clause("3.16")
@pytest.mark.parametrize(
    ("act", "needs", "reason"),
    [
        (lambda files: files.write("b.md", b"x"), ALL, "scope"),
        (lambda files: files.write("../x.txt", b"x"), ALL, "root"),
        (lambda files: files.read("b.md"), ALL, "scope"),
        (lambda files: files.write("sub/c.txt", b"x"), ALL, "paths"),
        (lambda files: files.delete("a.txt"), frozenset(), "delete"),
        (lambda files: files.rename("a.txt", "z.txt"), frozenset(), "rename"),
        (lambda files: files.mkdir("d"), frozenset(), "mkdir"),
    ],
)
async def test_the_facade_refuses_what_was_not_declared(scene: Scene, act, needs, reason: str):
    async def run(call: EngineCall) -> Delta:
        await act(call.facade)
        return Delta()

    scene.engines = [in_place(run, needs=needs)]
    scene.put({"a.txt": "a\n", "b.md": "b\n", "sub/c.txt": "c\n", "there.txt": "t\n"})
    before = scene.disk()
    with pytest.raises(DevToolsError) as caught:
        await scene.plan(["a.txt"], op("format", paths=["a.txt"]))
    assert scene.disk() == before
    assert caught.value.step == "format"
    assert reason in caught.value.message


@clause("3.16")
@pytest.mark.parametrize(
    "act",
    [lambda files: files.write("there.txt", b"x"), lambda files: files.rename("a.txt", "there.txt")],
    ids=["write", "rename"],
)
async def test_the_facade_creates_only_where_nothing_is(scene: Scene, act):
    async def run(call: EngineCall) -> Delta:
        await act(call.facade)
        return Delta()

    scene.engines = [in_place(run)]
    scene.put({"a.txt": "a\n", "there.txt": "t\n"})
    error = await scene.refused(scene.call("format", paths=["a.txt"]), "E_DEV_STEP_FAILED", "exists")
    assert error.path == "there.txt"


@clause("3.16")
async def test_files_outside_the_scope_are_left_out_and_counted(scene: Scene):
    seen: list[tuple[str, ...]] = []

    async def run(call: EngineCall) -> Delta:
        seen.append(call.paths)
        return Delta()

    scene.engines = [in_place(run, scope=("src/**",))]
    scene.put({"a.txt": "a\n", "src/b.txt": "b\n", "src/c.txt": "c\n"})
    result = await scene.call("format", paths=["**/*.txt"])
    assert seen == [("src/b.txt", "src/c.txt")]
    assert [item.message for item in result.diagnostics if "scope" in item.message] == [
        "format: 1 file(s) are outside the scope of mover and were left out"
    ]


@clause("3.17")
async def test_files_with_unwritten_changes_are_withheld(scene: Scene):
    seen: list[tuple[str, ...]] = []

    async def run(call: EngineCall) -> Delta:
        seen.append(call.paths)
        with pytest.raises(DevToolsError):
            await call.facade.write("a.txt", b"x")  # type: ignore[union-attr]
        return Delta()

    scene.engines = [in_place(run)]
    scene.put({"a.txt": "a\n", "b.txt": "b\n"})
    result = await scene.plan(
        ["*.txt"], op("edit", path="a.txt", edits=[{"find": "a", "replace": "A"}]), op("format"), op("write")
    )
    assert seen == [("b.txt",)]
    assert [item.severity for item in result.diagnostics if item.rule == "withheld"] == ["warning"]
    assert scene.disk() == {"a.txt": b"A\n", "b.txt": b"b\n"}


@clause("3.17")
async def test_what_existed_and_was_not_acquired_is_not_admitted(scene: Scene):
    async def run(_call: EngineCall) -> Delta:
        (scene.root / "other.txt").write_text("changed behind the facade\n")
        return Delta()

    scene.engines = [in_place(run)]
    scene.put({"a.txt": "a\n", "other.txt": "o\n"})
    result = await scene.plan(["a.txt"], op("format"))
    assert [change.path for change in result.changes] == []
    assert [(entry.path, entry.kind) for entry in result.written] == [("other.txt", "modified")]


@clause("3.17")
async def test_a_file_that_is_no_text_any_more_is_unreadable(scene: Scene):
    async def run(call: EngineCall) -> Delta:
        await call.facade.write("a.txt", b"\xc3\x28\n")  # type: ignore[union-attr]
        return Delta()

    scene.engines = [in_place(run)]
    scene.put({"a.txt": "a\n"})
    result = await scene.call("format", paths=["a.txt"])
    assert [entry.path for entry in result.unreadable] == ["a.txt"]


@clause("3.17")
async def test_the_engines_account_is_advice(scene: Scene):
    """I10: differences make one warning, never a failure and never a change."""

    async def run(call: EngineCall) -> Delta:
        await call.facade.write("a.txt", b"A\n")  # type: ignore[union-attr]
        return Delta(changed={"b.txt": ""}, added={"imaginary.txt": ""}, deleted=frozenset({"a.txt"}))

    scene.engines = [in_place(run)]
    scene.put({"a.txt": "a\n", "b.txt": "b\n"})
    result = await scene.call("format", paths=["*.txt"])
    assert [(item.severity, item.rule) for item in result.diagnostics] == [("warning", "engine")]
    assert [(change.path, change.kind) for change in result.changes] == [("a.txt", "modified")]


@clause("3.17")
async def test_an_engine_that_breaks_down_half_way_is_told_in_full(scene: Scene):
    """I6: after a failure the bookkeeping equals the disk."""

    async def run(call: EngineCall) -> Delta:
        await call.facade.write("a.txt", b"A\n")  # type: ignore[union-attr]
        raise RuntimeError("power cut")

    scene.engines = [in_place(run)]
    scene.put({"a.txt": "a\n"})
    with pytest.raises(DevToolsError) as caught:
        await scene.call("format", paths=["a.txt"])
    assert caught.value.code == "E_DEV_STEP_FAILED"
    assert caught.value.written == [{"path": "a.txt", "kind": "modified"}]
    assert scene.disk() == {"a.txt": b"A\n"}


@clause("3.17")
async def test_ruff_as_a_command_that_rewrites_files(scene: Scene, tool: Callable[[str], str]):
    ruff = tool("ruff")

    async def run(call: EngineCall) -> Delta:
        process = await asyncio.create_subprocess_exec(
            ruff,
            "check",
            "--fix",
            "--quiet",
            "--no-cache",
            *call.paths,
            cwd=scene.root,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await process.wait()
        return Delta()

    assert shutil.which("ruff")
    scene.engines = [
        DevEngine(
            "ruff-command", lints=(Capability(run, frozenset({"py"}), fixable=True, in_place=True, scope=("**/*.py",)),)
        )
    ]
    scene.put({"a.py": "import os\nimport sys\n\nprint(sys.path)\n"})
    result = await scene.call("lint", paths=["a.py"], fix=True)
    assert scene.disk() == {"a.py": b"import sys\n\nprint(sys.path)\n"}
    assert [(change.path, change.kind) for change in result.changes] == [("a.py", "modified")]


@clause("3.17")
async def test_in_place_engines_never_run_inside_a_preview(scene: Scene):
    runs: list[int] = []

    async def run(_call: EngineCall) -> Delta:
        runs.append(1)
        return Delta()

    seen = []

    async def look(context, call):
        from devtools_lsp.ports import Decision

        if call.step == "format":
            seen.append((await context.preview(), list(runs), context.in_place))
        return Decision(approved=True, by="person")

    scene.gate.answer = look
    scene.engines = [in_place(run)]
    scene.put({"a.txt": "a\n"})
    await scene.call("format", paths=["a.txt"])
    ((preview, before, flagged),) = seen
    assert (before, flagged) == ([], True)
    assert [entry.engine_id for entry in preview.pending] == ["mover"]
    assert runs == [1]


@clause("3.17")
async def test_an_in_place_linter_without_fix_is_pending_and_not_clean(scene: Scene):
    async def run(_call: EngineCall) -> Delta:
        raise AssertionError("lint without fix changes nothing, so this never runs")

    capability = Capability(run, fixable=True, in_place=True, scope=("**",))
    scene.engines = [DevEngine("mover", lints=(capability,))]
    scene.put({"a.txt": "a\n"})
    result = await scene.call("lint", paths=["a.txt"])
    assert scene.gate.asked[1]["engines"] == []
    assert result.delta is not None
    assert [entry.engine_id for entry in result.delta.pending] == ["mover"]
