"""Sections 3.0 to 3.3: construction, ops and builder, arguments, patterns, acquisition."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devtools_lsp.app import create_dev_pipeline
from devtools_lsp.errors import DevToolsError
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.pipeline.parts import Bounds
from devtools_lsp.ports import Capability, DevEngine
from tests.contract.bench import RecordingGate, Scene, finder, formatter, op

clause = pytest.mark.clause


async def _nothing(_call):
    raise AssertionError("construction runs nothing")


MALFORMED = [
    {"extensions": "py"},
    {"extensions": None},
    {"extensions": frozenset({1})},
    {"extensions": frozenset({"PY"})},
    {"needs": "delete"},
    {"needs": None},
    {"needs": frozenset({1})},
    {"in_place": True, "scope": "src/**"},
    {"in_place": True, "scope": ("a**b",)},
    {"in_place": True, "scope": ("/etc/*",)},
    {"creates": ("a?b",)},
    {"creates": (1,)},
    {"generates": 1},
    {"fixable": None},
    {"compare": 5},
]


def _with(**fields) -> DevEngine:
    return DevEngine("a", checks=(Capability(_nothing, **fields),))


@clause("3.1")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"root": "relative"}, "root"),
        ({"root": None}, "root"),
        ({"root": "/"}, "root"),
        ({"root": "//etc/.."}, "root"),
        ({"root": os.path.expanduser("~")}, "root"),
        ({"read_only": "no"}, "read_only"),
        ({"buffers": 5}, "buffers"),
        ({"observer": object()}, "observer"),
        ({"clock": 5}, "clock"),
        ({"path_translator": str}, "path_translator"),
        ({"line_counter": 5}, "line_counter"),
        ({"selection": 5}, "selection"),
        ({"use": [5]}, "use"),
        ({"engines": None}, "engines"),
        ({"file_system": object()}, "file_system"),
        ({"policy": {}}, "policy"),
        ({"gate": None}, "gate"),
        ({"bounds": {"max_files": 0}}, "max_files"),
        ({"bounds": {"max_files": "many"}}, "max_files"),
        ({"bounds": {"max_filez": 3}}, "max_filez"),
        ({"txt": "preserve"}, "txt"),
        ({"text": "guess"}, "text"),
        ({"engines": [DevEngine("a"), DevEngine("a")]}, "a"),
        ({"engines": [DevEngine("a", checks=(Capability(_nothing, extensions=frozenset({".PY"})),))]}, "extensions"),
        ({"engines": [DevEngine("a", formats=(Capability(_nothing, in_place=True),))]}, "scope"),
        ({"engines": [DevEngine("a", formats=(Capability(_nothing, needs=frozenset({"chmod"})),))]}, "needs"),
        ({"engines": [DevEngine("", formats=(Capability(_nothing),))]}, "id"),
        ({"engines": [DevEngine("a", formats=(Capability(None),))]}, "run"),  # type: ignore[arg-type]
        ({"engines": [DevEngine(5)]}, "id"),  # type: ignore[arg-type]
        ({"engines": [DevEngine("a", lints=None)]}, "engines.a.lints"),  # type: ignore[arg-type]
        ({"engines": [DevEngine("a", lints=Capability(_nothing))]}, "engines.a.lints"),  # type: ignore[arg-type]
        ({"engines": [DevEngine("a", lints=(5,))]}, "engines.a.lints"),  # type: ignore[arg-type]
        ({"engines": [DevEngine("a", describe=5)]}, "describe"),  # type: ignore[arg-type]
        *[({"engines": [_with(**fault)]}, name) for fault in MALFORMED for name in fault if name != "in_place"],
    ],
)
def test_construction_fails_and_names_the_key(tmp_path: Path, change, named: str):
    file_system = LocalFileSystem(str(tmp_path))
    options = {
        "root": str(tmp_path),
        "file_system": file_system,
        "policy": PathPolicy(),
        "gate": RecordingGate(),
        "engines": [],
    }
    try:
        with pytest.raises(DevToolsError) as caught:
            create_dev_pipeline(**{**options, **change})
    finally:
        file_system.close()
    assert caught.value.code == "E_INVALID_DEV_PIPELINE_CONFIG"
    assert named in caught.value.message


@clause("3.2")
async def test_the_builder_is_immutable_and_says_the_same_as_ops(scene: Scene):
    scene.engines = [finder("words", "bad"), finder("lint", "bad", kind="lints")]
    scene.put({"a.txt": "good\n"})
    start = scene.pipeline(["a.txt"])
    edited = start.edit("a.txt", [{"find": "good", "replace": "bad"}])
    full = edited.check().lint().write().read_lines("a.txt", 1, 1, label="first")
    assert start.to_ops() == []
    edited.to_ops()[0]["args"]["edits"][0]["find"] = "what no file holds"
    assert [made["step"] for made in full.to_ops()] == ["edit", "check", "lint", "write", "read_lines"]
    result = await full
    assert result.reads["first"].text == "bad\n"
    assert scene.text("a.txt") == "bad\n"


@clause("3.2")
def test_a_builder_method_without_an_engine_raises_when_called(scene: Scene):
    for method in ("format", "lint", "check"):
        with pytest.raises(DevToolsError) as caught:
            getattr(scene.pipeline(["a.txt"]), method)()
        assert caught.value.code == "E_DEV_ENGINE_REQUIRED"
        assert caught.value.step == method
        assert "do not retry" in caught.value.message


@clause("3.2")
async def test_strings_arrive_byte_for_byte(scene: Scene):
    scene.put({"a.txt": "x\n"})
    odd = "$1 \\n \\g<0> ${HOME} `ls` 'quoted' \"too\" %s\t\u2028 end"
    await scene.call("edit", path="a.txt", edits=[{"find": "x", "replace": odd}])
    assert scene.text("a.txt") == odd + "\n"


@clause("3.2")
def test_compile_validates_and_runs_nothing(scene: Scene):
    scene.engines = [DevEngine("a", formats=(Capability(_nothing),))]
    patch = "*** Begin Patch\n*** Add File: n.txt\n+x\n*** End Patch"
    steps = scene.pipeline.compile([op("apply_patch", patch=patch), op("format")])
    assert [step.step for step in steps] == ["apply_patch", "format"]
    with pytest.raises(DevToolsError):
        scene.pipeline.compile([op("apply_patch", patch="no patch")])
    assert scene.gate.steps == []


BAD_OPS = [
    ([], "ops is empty", None),
    ([{"step": "edit", "args": {}, "note": 1}], "note", None),
    ([{"args": {}}], "step", None),
    ([{"step": "edit", "args": []}], "args", "edit"),
    ([{"step": "edit", "args": {"path": "a.txt", "edits": [], "pth": 1}}], "pth", "edit"),
    ([op("edit", path="a.txt", edits=[])], "edits", "edit"),
    ([op("edit", path="a.txt", edits=[{"find": "", "replace": "x"}])], "find", "edit"),
    ([op("edit", path="a.txt", edits=[{"find": "x"}])], "replace", "edit"),
    ([op("edit", path="a.txt", edits=[{"find": "x", "replace": "y", "all": True}])], "all", "edit"),
    ([op("edit", path=3, edits=[{"find": "x", "replace": "y"}])], "path", "edit"),
    ([op("read_lines", path="a.txt")], "start", "read_lines"),
    ([op("read_lines", path="a.txt", start=0)], "start", "read_lines"),
    ([op("read_lines", path="a.txt", start="1")], "start", "read_lines"),
    ([op("read_lines", path="a.txt", start=True)], "start", "read_lines"),
    ([op("read_lines", path="a.txt", start=3, end=2)], "end", "read_lines"),
    ([op("write", paths=[])], "paths", "write"),
    ([op("lint", fix="yes")], "fix", "lint"),
    ([op("check", paths=["a.txt"])], "paths", "check"),
    ([op("format", paths=["a**b"])], "**", "format"),
    ([op("format", paths=["*?.txt"])], "?", "format"),
    ([op("read_lines", path="a.txt", start=1), op("read_lines", path="a.txt", start=2)], "label", "read_lines"),
    (
        [op("read_lines", "k", path="a.txt", start=1), op("read_lines", "k", path="b.txt", start=2)],
        "'k'",
        "read_lines",
    ),
    ([op("apply_patch", patch="")], "patch", "apply_patch"),
    ([op("edit", path="a.txt", edits=[{"find": 1, "replace": "y"}])], "edits[0].find' must be a string, not 1", "edit"),
    ([op("edit", path="a.txt", edits=["x"])], "edits[0]' must be an object, not 'x'", "edit"),
    ([op("edit", path="a.txt", edits=[{"finds": "x", "replace": "y"}])], "did you mean 'find'?", "edit"),
    ([op("edit")], "arguments 'path' and 'edits' are missing; it takes path, edits", "edit"),
    ([op("edit", path="a.txt", edits=[{}])], "'edits[0].replace' are missing; edits[0] takes find, replace", "edit"),
    ([op("check"), op("lint", paths=["a.txt", 3])], "ops[1] (lint): argument 'paths[1]' must be a string", "lint"),
    ([op("check"), op("lint", paths="a.txt")], "ops[1] (lint): argument 'paths' must be a list, not 'a.txt'", "lint"),
    ([op("check"), op("apply_patch", patch="none")], "ops[1] (apply_patch)", "apply_patch"),
]


@clause("3.3")
@pytest.mark.parametrize(("ops", "named", "step"), BAD_OPS)
async def test_a_bad_argument_names_the_step_and_the_argument(scene: Scene, ops, named: str, step):
    scene.engines = [formatter("upper", str.upper), finder("lint", "x", kind="lints"), finder("words", "x")]
    scene.put({"a.txt": "x\n"})
    with pytest.raises(DevToolsError) as caught:
        await scene.plan(["a.txt"], *ops)
    assert caught.value.code == "E_DEV_BAD_ARG"
    assert named in caught.value.message
    assert "should" not in caught.value.message, "a validator's own words"
    assert caught.value.step == step
    last = ops[-1].get("args") if ops else None
    if isinstance(last, dict) and isinstance(last.get("path"), str):
        assert caught.value.path == last["path"]
    assert scene.gate.steps == []


@clause("3.3")
async def test_what_is_wrong_is_not_repeated_at_length(scene: Scene):
    """An answer must fit a frame, whatever was asked."""
    endless = "x" * 1_000_000
    for ops in (
        [op("format", paths=[f"*?{endless}"])],
        [op(endless)],
        [op("read_lines", path=endless)],
        [op("read_lines", endless, path="a", start=1), op("read_lines", endless, path="b", start=1)],
        [op("read_lines", path=endless, start=1), op("read_lines", path=endless, start=1)],
        [op("check", **{endless: 1})],
        [{"step": "check", endless: 1}],
    ):
        scene.engines = [formatter("upper", str.upper), finder("words", "x")]
        with pytest.raises(DevToolsError) as caught:
            await scene.plan([], *ops)
        assert len(str(caught.value.to_wire())) < 10_000, str(ops)[:60]
    for paths in ([f"*?{endless}"], [f"*{endless}"], [endless], [f"/{endless}"]):
        with pytest.raises(DevToolsError) as caught:
            await scene.plan(paths, op("check"))
        assert len(str(caught.value.to_wire())) < 10_000, paths[0][:10]


@clause("3.3")
async def test_an_unknown_step_lists_those_there_are(scene: Scene):
    error = await scene.refused(scene.plan([], op("compile")), "E_DEV_UNKNOWN_STEP")
    assert error.alternatives == ["read_lines", "edit", "apply_patch", "write", "format", "lint", "check"]


@clause("3.3")
async def test_a_path_that_was_not_acquired(scene: Scene):
    scene.engines = [formatter("upper", str.upper)]
    scene.put({"a.txt": "x\n", "b.txt": "x\n"})
    for step in (
        op("edit", path="b.txt", edits=[{"find": "x", "replace": "y"}]),
        op("read_lines", path="b.txt", start=1),
        op("format", paths=["b.txt"]),
        op("apply_patch", patch="*** Begin Patch\n*** Delete File: b.txt\n*** End Patch"),
    ):
        error = await scene.refused(scene.plan(["a.txt"], step), "E_DEV_BAD_ARG", "notAcquired")
        assert error.path == "b.txt"
    assert scene.gate.steps == []


@clause("3.4")
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.txt", ["a.txt"]),
        ("**/*.txt", ["a.txt", "d/b.txt", "d/e/c.txt"]),
        ("d/**", ["d/[x].txt", "d/b.txt", "d/e/c.txt"]),
        ("**/c.txt", ["d/e/c.txt"]),
        (".h/*", [".h/x.txt"]),
        ("**/.hidden", [".hidden"]),
        ("d/[x].txt", ["d/[x].txt"]),
    ],
)
async def test_patterns(scene: Scene, pattern: str, found: list[str]):
    scene.put(dict.fromkeys(("a.txt", "d/b.txt", "d/e/c.txt", ".h/x.txt", ".hidden", "d/[x].txt"), "x\n"))
    if pattern == "**/*.txt":
        (scene.root / "d" / "[x].txt").unlink()
    await scene.plan([pattern], op("write"))
    assert list(scene.gate.questions[0][1].targets) == found


@clause("3.4")
@pytest.mark.parametrize(
    ("entries", "reason", "path"),
    [
        (["*.txt", "*.md"], "notFound", "*.md"),
        (["a.txt", "none.txt"], "notFound", "none.txt"),
        (["d"], "isDirectory", "d"),
        (["bin"], "notText", "bin"),
    ],
)
async def test_a_path_that_matches_nothing_is_named(scene: Scene, entries, reason, path):
    scene.put({"a.txt": "x\n", "d/b.txt": "x\n", "bin": b"\x00\x01\xff"})
    error = await scene.refused(scene.plan(entries, op("write")), "E_DEV_BAD_ARG", reason)
    assert error.path == path
    assert path in error.message


@clause("3.4")
async def test_what_a_pattern_brings_and_is_no_text_is_left_out_and_said(scene: Scene):
    scene.engines = [finder("words", "bad")]
    scene.put({"src/a.txt": "bad\n", "src/logo.png": b"\x89PNG\x00", "pics/b.png": b"\x00"})
    result = await scene.plan(["src/**"], op("check"))
    assert [(item.path, item.rule) for item in result.diagnostics if item.engine_id is None] == [(None, "skipped")]
    assert "src/logo.png" in result.diagnostics[0].message
    assert [item.path for item in result.diagnostics if item.engine_id == "words"] == ["src/a.txt"]
    # Whoever names it, in the paths or in a step, is told; and so is a pattern that brings nothing else.
    for paths, step in (
        (["src/**", "src/logo.png"], op("check")),
        (["src/**"], op("read_lines", path="src/logo.png", start=1)),
        (["src/**"], op("edit", path="src/logo.png", edits=[{"find": "P", "replace": "J"}])),
    ):
        error = await scene.refused(scene.plan(paths, step), "E_DEV_BAD_ARG", "notText")
        assert error.path == "src/logo.png"
    error = await scene.refused(scene.plan(["src/**", "pics/*"], op("check")), "E_DEV_BAD_ARG", "notText")
    assert error.path == "pics/*"


@clause("3.4")
async def test_what_a_pattern_brings_and_may_not_be_written_is_left_as_it_is_and_said(scene: Scene):
    scene.engines = [formatter("upper", str.upper), finder("lint", "x", kind="lints")]
    scene.options["policy"] = PathPolicy(deny_write=["src/vendored/**"])
    scene.put({"src/a.txt": "x\n", "src/vendored/b.txt": "x\n"})
    result = await scene.call("format", paths=["src/**"])
    assert scene.disk() == {"src/a.txt": b"X\n", "src/vendored/b.txt": b"x\n"}
    (said,) = [item for item in result.diagnostics if item.rule == "skipped"]
    assert "src/vendored/b.txt" in said.message
    assert "policy" in said.message
    assert list(scene.gate.questions[-1][1].targets) == ["src/a.txt"]
    # A selector of a step is a pattern like any other; a name is a name.
    plan = scene.plan(["src/**"], op("format", paths=["src/**"]), op("write"))
    assert (await plan).ok
    for paths, step in (
        (["src/**", "src/vendored/b.txt"], op("format")),
        (["src/**"], op("format", paths=["src/vendored/b.txt"])),
        (["src/vendored/**"], op("format")),
    ):
        await scene.refused(scene.plan(paths, step), "E_DEV_POLICY", "protected")


@clause("3.5")
async def test_a_file_that_is_too_large_and_that_a_pattern_brings_is_told_with_the_way_out(scene: Scene):
    scene.options["bounds"] = Bounds(max_bytes_per_file=10)
    scene.put({"a.txt": "x", "big.txt": "x" * 20})
    error = await scene.refused(scene.plan(["*.txt"], op("write")), "E_DEV_WORKSPACE_BOUNDS")
    assert "leave it out by naming the other files, or by narrower patterns" in error.message
    error = await scene.refused(scene.plan(["big.txt"], op("write")), "E_DEV_WORKSPACE_BOUNDS")
    assert "leave it out" not in error.message


@clause("3.5")
@pytest.mark.parametrize(
    ("bounds", "named", "numbers", "file"),
    [
        (Bounds(max_files=2), "max_files", ["2", "3"], "d/e/c.txt"),
        (Bounds(max_bytes_per_file=10), "max_bytes_per_file", ["10", "20"], "a.txt"),
        (Bounds(max_total_bytes=50), "max_total_bytes", ["50", "60"], "d/e/c.txt"),
        (Bounds(max_depth=2), "max_depth", ["2", "3"], "d/e/c.txt"),
    ],
)
async def test_crossing_a_bound_says_which_file_crosses_it_and_by_how_much(
    scene: Scene, bounds: Bounds, named: str, numbers: list[str], file: str
):
    scene.options["bounds"] = bounds
    scene.put({"a.txt": "x" * 20, "b.txt": "x" * 20, "d/e/c.txt": "x" * 20})
    error = await scene.refused(scene.plan(["**/*.txt"], op("write")), "E_DEV_WORKSPACE_BOUNDS")
    assert named in error.message
    assert all(number in error.message for number in numbers), error.message
    assert error.path == file
    assert file in error.message
    assert error.retry == "withLess"
    assert scene.gate.steps == []


@clause("3.5")
async def test_a_window_of_a_file_beyond_the_bound_is_read_without_loading_it(scene: Scene):
    scene.options["bounds"] = Bounds(max_bytes_per_file=1000)
    scene.put({"big.txt": "".join(f"line {number}\r\n" for number in range(1, 300_001))})
    result = await scene.call("read_lines", path="big.txt", start=299_999)
    read = result.reads["big.txt"]
    assert (read.start, read.end, read.total_lines) == (299_999, 300_000, 300_000)
    assert read.text == "line 299999\nline 300000\n"
    await scene.refused(
        scene.call("edit", path="big.txt", edits=[{"find": "line 7\n", "replace": ""}]), "E_DEV_WORKSPACE_BOUNDS"
    )


@clause("3.5")
async def test_no_paths_at_all_is_a_plan_that_only_adds(scene: Scene):
    patch = "*** Begin Patch\n*** Add File: d/n.txt\n+new\n*** End Patch"
    result = await scene.plan([], op("apply_patch", patch=patch), op("write"))
    assert scene.disk() == {"d/n.txt": b"new\n"}
    assert scene.gate.asked[0]["targets"] == []
    assert [(change.path, change.kind) for change in result.changes] == [("d/n.txt", "added")]
