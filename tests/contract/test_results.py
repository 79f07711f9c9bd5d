"""Sections 3.11, 3.12 and 6: stamps, coordinates, redaction, the result, selection and middleware."""

from __future__ import annotations

import pytest

from devtools_lsp.core.delta import Comparison, Delta
from devtools_lsp.core.diagnostics import Finding
from devtools_lsp.fs.translate import RootTranslator
from devtools_lsp.ports import Capability, DevEngine
from tests.contract.bench import Scene, finder, formatter, op

clause = pytest.mark.clause


def saying(*findings: Finding, engine_id: str = "says") -> DevEngine:
    async def run(_call):
        return Delta(diagnostics=findings)

    return DevEngine(engine_id, checks=(Capability(run),))


def finding(**fields) -> Finding:
    return Finding(**{"path": "a.txt", "severity": "error", "message": "m", **fields})


@clause("3.13")
async def test_an_engine_id_that_the_engine_sets_is_discarded(scene: Scene):
    """I9: engineId is what dispatch knows."""
    scene.engines = [saying(finding(engine_id="somebody-else"))]
    scene.put({"a.txt": "a\n"})
    result = await scene.call("check", paths=["a.txt"])
    assert [item.engine_id for item in result.diagnostics] == ["says"]


@clause("3.13")
async def test_a_finding_without_a_path_is_dropped_with_one_warning(scene: Scene):
    scene.engines = [saying(finding(path=None), finding(path="."), finding())]
    scene.put({"a.txt": "a\n"})
    result = await scene.call("check", paths=["a.txt"])
    assert [(item.engine_id, item.severity) for item in result.diagnostics] == [("says", "error"), (None, "warning")]
    assert "2 finding(s)" in result.diagnostics[1].message


@clause("3.13")
async def test_out_of_scope_is_what_the_workspace_is_after_the_step(scene: Scene):
    """I9: a file that was not acquired is out of scope; a null path is in."""
    scene.engines = [saying(finding(path="other.txt"), finding(path=None), finding())]
    scene.put({"a.txt": "a\n", "other.txt": "o\n"})
    result = await scene.call("check", paths=["a.txt"])
    assert [(item.path, item.out_of_scope) for item in result.diagnostics] == [
        ("other.txt", True),
        ("a.txt", False),
        (None, False),
    ]


@clause("3.13")
async def test_a_file_that_the_same_step_creates_is_in_scope(scene: Scene):
    async def run(_call):
        return Delta(
            added={"b.txt": "new\n"},
            diagnostics=(Finding(path="b.txt", severity="info", message="made", line=1, column=1),),
        )

    scene.engines = [DevEngine("maker", formats=(Capability(run, generates=True, creates=("*.txt",)),))]
    scene.put({"a.txt": "a\n"})
    result = await scene.call("format", paths=["*.txt"])
    assert scene.disk() == {"a.txt": b"a\n", "b.txt": b"new\n"}
    assert [(item.path, item.out_of_scope) for item in result.diagnostics] == [("b.txt", False)]
    assert scene.gate.asked[1]["mayCreate"] == ["*.txt"]


@clause("3.13")
async def test_scope_is_stamped_step_by_step(scene: Scene):
    scene.engines = [saying(finding(path="b.txt"))]
    scene.put({"a.txt": "a\n"})
    add = "*** Begin Patch\n*** Add File: b.txt\n+b\n*** End Patch"
    gone = "*** Begin Patch\n*** Delete File: b.txt\n*** End Patch"
    steps = (op("check"), op("apply_patch", patch=add), op("check"), op("apply_patch", patch=gone))
    result = await scene.plan(["a.txt"], *steps)
    assert [item.out_of_scope for item in result.diagnostics] == [True, False]


@clause("3.13")
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"line": 1, "column": 1, "end_line": 1, "end_column": 4}, (1, 1, 1, 4)),
        ({"line": 0, "column": 1}, (None, None, None, None)),
        ({"line": -3}, (None, None, None, None)),
        ({"line": 9, "column": 1}, (None, None, None, None)),
        ({"line": 1, "column": 99}, (1, None, None, None)),
        ({"line": 2, "column": 1, "end_line": 1, "end_column": 1}, (2, 1, None, None)),
        ({"line": True, "column": 1}, (None, None, None, None)),
        ({"column": 3}, (None, None, None, None)),
        ({"line": 2}, (2, None, None, None)),
        ({"line": 1, "column": 2, "end_line": 1}, (1, 2, 1, None)),
        ({"line": 1, "column": 2, "end_line": 2}, (1, 2, 2, None)),
        ({"line": 1, "end_line": 1, "end_column": 2}, (1, None, 1, 2)),
        ({"line": 1, "column": 3, "end_line": 1, "end_column": 2}, (1, 3, None, None)),
    ],
)
async def test_impossible_coordinates_are_trimmed_and_counted(scene: Scene, given, kept):
    scene.engines = [saying(finding(**given))]
    scene.put({"a.txt": "abc\nxyz\n"})
    result = await scene.call("check", paths=["a.txt"])
    first, *rest = result.diagnostics
    assert (first.line, first.column, first.end_line, first.end_column) == kept
    assert first.message == "m"
    asked = (given.get("line"), given.get("column"), given.get("end_line"), given.get("end_column"))
    assert len(rest) == (0 if asked == kept else 1)


@clause("3.13")
async def test_host_paths_are_made_relative_or_removed(scene: Scene):
    inside = f"{scene.root}/a.txt"
    scene.engines = [
        saying(finding(path=inside, message=f"see {inside} and /etc/passwd:3"), finding(path="/etc/passwd"))
    ]
    scene.put({"a.txt": "a\n"})
    result = await scene.call("check", paths=["a.txt"])
    assert [item.path for item in result.diagnostics] == ["a.txt", None]
    assert result.diagnostics[0].message == "see a.txt and <path outside the workspace>:3"


@clause("3.13")
async def test_messages_are_redacted_by_the_pipelines_own_translator(scene: Scene):
    class Shouting(RootTranslator):
        def redact(self, message: str) -> str:
            return message.upper()

    scene.options["path_translator"] = Shouting()
    scene.engines = [saying(finding(message="see host://disk1"))]
    scene.put({"a.txt": "a\n"})
    result = await scene.call("check", paths=["a.txt"])
    assert [item.message for item in result.diagnostics] == ["SEE HOST://DISK1"]


@clause("3.13")
async def test_a_root_with_blanks_in_its_name_is_made_relative_too(scene: Scene):
    scene.root = scene.root / "my own root"
    scene.engines = [saying(finding(message=f"see {scene.root}/a.txt"))]
    scene.put({"a.txt": "a\n"})
    result = await scene.call("check", paths=["a.txt"])
    assert [item.message for item in result.diagnostics] == ["see a.txt"]


@clause("3.14")
async def test_the_result_has_one_shape(scene: Scene):
    scene.put({"a.txt": "a\n"})
    result = await scene.call("read_lines", path="a.txt", start=1)
    assert list(result.to_wire()) == [
        "plan",
        "diagnostics",
        "changes",
        "reads",
        "written",
        "unwritten",
        "unreadable",
        "normalized",
        "ok",
        "lineCountsAvailable",
        "atomic",
        "engines",
    ]
    assert result.to_wire()["reads"] == {
        "a.txt": {"path": "a.txt", "start": 1, "end": 1, "totalLines": 1, "text": "a\n"}
    }


@clause("3.14")
async def test_a_deleted_and_recreated_file_is_modified(scene: Scene):
    scene.put({"a.txt": "a\n"})
    gone = "*** Begin Patch\n*** Delete File: a.txt\n*** End Patch"
    back = "*** Begin Patch\n*** Add File: a.txt\n+b\n*** End Patch"
    result = await scene.plan(["a.txt"], op("apply_patch", patch=gone), op("apply_patch", patch=back), op("write"))
    assert [(change.path, change.kind) for change in result.changes] == [("a.txt", "modified")]
    assert scene.text("a.txt") == "b\n"


@clause("3.14")
async def test_unknown_counts_are_absent_and_known_ones_are_numbers(scene: Scene):
    """I12: never zero for unknown."""
    scene.put({"a.txt": "a\nb\n"})
    edit = {"find": "a\n", "replace": "A\nB\n"}
    result = await scene.call("edit", path="a.txt", edits=[edit])
    (change,) = result.to_wire()["changes"]
    assert change == {"path": "a.txt", "kind": "modified"}
    assert result.line_counts_available is False


@clause("3.14")
async def test_a_line_counter_fills_the_counts(scene: Scene):
    scene.options["line_counter"] = lambda before, after: (after.count("\n"), before.count("\n"))
    scene.put({"a.txt": "a\nb\n"})
    result = await scene.call("edit", path="a.txt", edits=[{"find": "a\n", "replace": "A\nB\n"}])
    (change,) = result.changes
    assert (change.added, change.removed) == (3, 2)
    assert result.line_counts_available is True


@clause("3.15")
async def test_an_old_error_that_moved_is_unchanged(scene: Scene):
    """D1: the edit inserts a line above."""
    scene.engines = [finder("words", "bad")]
    scene.put({"a.txt": "x\nbad\n"})
    result = await scene.plan(
        ["a.txt"], op("edit", path="a.txt", edits=[{"find": "x\n", "replace": "x\ny\n"}]), op("check")
    )
    assert result.delta is not None
    assert (result.delta.introduced, result.delta.resolved, result.delta.unchanged) == ([], [], 1)


@clause("3.15")
async def test_counts_never_cancel_out(scene: Scene):
    """D2: one error replaced by another at the same place."""

    async def run(call):
        text = call.texts["a.txt"].strip()
        return Delta(diagnostics=(Finding(path="a.txt", severity="error", message=f"{text} is undefined", line=1),))

    scene.engines = [DevEngine("names", checks=(Capability(run),))]
    scene.put({"a.txt": "foo\n"})
    result = await scene.plan(
        ["a.txt"], op("edit", path="a.txt", edits=[{"find": "foo", "replace": "bar"}]), op("check")
    )
    assert result.delta is not None
    assert [item.message for item in result.delta.introduced] == ["bar is undefined"]
    assert [item.message for item in result.delta.resolved] == ["foo is undefined"]


@clause("3.15")
async def test_a_comparing_engine_is_asked_once_for_both_states(scene: Scene):
    async def compare(call):
        assert call.acquired["a.txt"] == "old\n"
        assert call.texts["a.txt"] == "new\n"
        return Comparison(
            before=(Finding(path="b.txt", severity="error", message="was"),),
            after=(Finding(path="b.txt", severity="error", message="is"),),
            judged=frozenset({"a.txt", "b.txt"}),
        )

    async def run(_call):
        raise AssertionError("compare is there")

    scene.engines = [DevEngine("whole", checks=(Capability(run, compare=compare),))]
    scene.put({"a.txt": "old\n", "b.txt": "b\n"})
    result = await scene.plan(
        ["a.txt"], op("edit", path="a.txt", edits=[{"find": "old", "replace": "new"}]), op("check")
    )
    assert result.delta is not None
    assert [(item.message, item.out_of_scope) for item in result.delta.introduced] == [("is", True)]
    assert [item.message for item in result.delta.resolved] == ["was"]


@clause("3.15")
async def test_old_warnings_of_dependents_are_counted_and_not_told(scene: Scene):
    def found(message: str, severity: str = "warning") -> Finding:
        return Finding(path="b.txt", severity=severity, message=message)  # type: ignore[arg-type]

    async def compare(_call):
        old = (found("old warning"), found("old error", "error"))
        return Comparison(before=old, after=(*old, found("new warning")), judged=frozenset({"a.txt", "b.txt"}))

    scene.engines = [DevEngine("whole", checks=(Capability(saying().checks[0].run, compare=compare),))]
    scene.put({"a.txt": "old\n", "b.txt": "b\n"})
    result = await scene.plan(
        ["a.txt"], op("edit", path="a.txt", edits=[{"find": "old", "replace": "new"}]), op("check")
    )
    told = [item.message for item in result.diagnostics if item.engine_id == "whole"]
    assert told == ["old error", "new warning"]
    assert result.delta is not None
    assert result.delta.unchanged == 2


@clause("6.1")
async def test_format_takes_the_first_candidate_of_each_extension(scene: Scene):
    scene.engines = [
        formatter("py", str.upper, extensions=frozenset({"py"})),
        formatter("all", lambda text: text + "# all\n"),
    ]
    scene.put({"a.py": "a\n", "b.txt": "b\n", "Makefile": "m\n"})
    await scene.call("format", paths=["a.py", "b.txt", "Makefile"])
    assert scene.disk() == {"a.py": b"A\n", "b.txt": b"b\n# all\n", "Makefile": b"m\n# all\n"}
    assert scene.gate.asked[1]["engines"] == ["py", "all"]


@clause("6.1")
async def test_check_takes_all_candidates(scene: Scene):
    scene.engines = [finder("one", "a"), finder("two", "a"), finder("md", "a", extensions=frozenset({"md"}))]
    scene.put({"a.txt": "a\n"})
    result = await scene.call("check", paths=["a.txt"])
    assert [item.engine_id for item in result.diagnostics] == ["one", "two"]


@clause("6.1")
async def test_selection_may_drop_and_rearrange_and_never_widens(scene: Scene):
    """I11."""
    from dataclasses import replace

    stranger = finder("stranger", "a").checks[0]

    def selection(_step, candidates):
        one, two = candidates
        widened = replace(two, paths=(*two.paths, "secret.txt"))
        foreign = replace(one, engine=DevEngine("stranger", checks=(stranger,)), capability=stranger)
        return [widened, foreign]

    scene.options["selection"] = selection
    scene.engines = [finder("one", "a"), finder("two", "a")]
    scene.put({"a.txt": "a\n", "secret.txt": "a\n"})
    result = await scene.call("check", paths=["a.txt"])
    assert [(item.engine_id, item.path) for item in result.diagnostics] == [("two", "a.txt")]


@clause("6.2")
async def test_a_step_that_no_engine_serves_fails_before_anything_is_asked(scene: Scene):
    scene.engines = [finder("words", "x")]
    scene.put({"a.txt": "x\n"})
    error = await scene.refused(scene.call("format", paths=["a.txt"]), "E_DEV_ENGINE_REQUIRED")
    assert error.alternatives == ["check"]
    assert error.retry == "no"
    assert scene.gate.steps == []


@clause("6.3")
async def test_middleware_wraps_each_step_and_shares_a_stash(scene: Scene):
    seen: list[tuple[str, int]] = []

    async def count(context, proceed):
        context.stash["n"] = context.stash.get("n", 0) + 1
        seen.append((context.step, context.stash["n"]))
        return await proceed()

    scene.options["use"] = [count]
    scene.engines = [finder("words", "x")]
    scene.put({"a.txt": "x\n"})
    await scene.plan(["a.txt"], op("check"), op("write"))
    await scene.plan(["a.txt"], op("check"))
    assert seen == [("acquire", 1), ("check", 2), ("write", 3), ("acquire", 1), ("check", 2)]


@clause("6.3")
async def test_middleware_may_skip_a_step_with_the_current_workspace(scene: Scene):
    async def skip(context, proceed):
        return context.workspace if context.step == "edit" else await proceed()

    scene.options["use"] = [skip]
    scene.put({"a.txt": "x\n"})
    await scene.plan(["a.txt"], op("edit", path="a.txt", edits=[{"find": "x", "replace": "y"}]), op("write"))
    assert scene.disk() == {"a.txt": b"x\n"}
    assert scene.gate.steps == ["acquire", "write"]


@clause("6.3")
@pytest.mark.parametrize("kind", ["foreign", "stale"])
async def test_a_stale_or_foreign_workspace_is_refused(scene: Scene, kind: str):
    from devtools_lsp.core.workspace import Workspace

    async def cheat(context, proceed):
        if context.step != "edit":
            return await proceed()
        if kind == "foreign":
            return Workspace()
        await proceed()
        return context.workspace

    scene.options["use"] = [cheat]
    scene.put({"a.txt": "x\n"})
    await scene.refused(
        scene.plan(["a.txt"], op("edit", path="a.txt", edits=[{"find": "x", "replace": "y"}]), op("write")),
        "E_DEV_STEP_FAILED",
    )
