"""Sections 3.5 to 3.9: edit, apply_patch, renames, write, format, lint and check through the pipeline."""

from __future__ import annotations

import pytest

from devtools_lsp.core.delta import Delta
from devtools_lsp.core.diagnostics import Finding, Pending
from devtools_lsp.errors import DevToolsError
from devtools_lsp.ports import Capability, DevEngine
from tests.contract.bench import Scene, finder, formatter, op

clause = pytest.mark.clause


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


@clause("3.6")
async def test_a_crlf_file_keeps_its_line_ends(scene: Scene):
    """I15 (preserve): bytes outside the edit are unchanged."""
    scene.put({"a.txt": b"\xef\xbb\xbfone\r\ntwo\r\nthree"})
    await scene.call("edit", path="a.txt", edits=[{"find": "two\n", "replace": "2\n2b\n"}])
    assert scene.disk()["a.txt"] == b"\xef\xbb\xbfone\r\n2\r\n2b\r\nthree"


@clause("3.6")
async def test_mixed_line_ends_are_kept_line_by_line(scene: Scene):
    scene.put({"a.txt": b"a\r\nb\nc\r\nd\ne\r\n"})
    await scene.call("edit", path="a.txt", edits=[{"find": "c\nd\n", "replace": "C\nD\nE\n"}])
    assert scene.disk()["a.txt"] == b"a\r\nb\nC\r\nD\nE\r\ne\r\n"


@clause("3.6")
async def test_utf16_with_a_mark_stays_utf16(scene: Scene):
    scene.put({"a.txt": "\ufeffgrün\r\n".encode("utf-16-le")})
    await scene.call("edit", path="a.txt", edits=[{"find": "grün", "replace": "blau"}])
    assert scene.disk()["a.txt"] == "\ufeffblau\r\n".encode("utf-16-le")


@clause("3.6")
async def test_normalize_rewrites_and_says_so(scene: Scene):
    """I15 (normalize): what else changed is listed."""
    scene.options["text"] = "normalize"
    scene.put({"a.txt": b"\xef\xbb\xbfone\r\ntwo\r\n", "b.txt": "plain\n"})
    shown = []

    async def look(context, call):
        from devtools_lsp.ports import Decision

        if call.step == "edit":
            shown.extend((await context.diff()).normalized)
        return Decision(approved=True, by="person")

    scene.gate.answer = look
    result = await scene.call("edit", path="a.txt", edits=[{"find": "two", "replace": "2"}])
    assert scene.disk()["a.txt"] == b"one\n2\n"
    assert [(entry.path, entry.from_, entry.to) for entry in result.normalized] == [
        ("a.txt", "utf-8-bom crlf", "utf-8 lf")
    ]
    assert shown == result.normalized
    plain = await scene.call("edit", path="b.txt", edits=[{"find": "plain", "replace": "p"}])
    assert plain.normalized == []


@clause("3.6")
@pytest.mark.parametrize("data", [b"caf\xe9\n", b"\x93\xfa\x96{\n", b"a\x00b\n", "x\n".encode("utf-16-le")])
async def test_what_is_not_text_is_refused_and_not_guessed(scene: Scene, data: bytes):
    scene.put({"a.txt": data})
    await scene.refused(
        scene.call("edit", path="a.txt", edits=[{"find": "x", "replace": "y"}]), "E_DEV_BAD_ARG", "notText"
    )


@clause("3.7")
async def test_all_blocks_apply_or_none(scene: Scene):
    scene.put({"a.txt": "one two three\n"})
    edits = [{"find": "one", "replace": "1"}, {"find": "four", "replace": "4"}]
    error = await scene.refused(scene.call("edit", path="a.txt", edits=edits), "E_DEV_STEP_FAILED", "noMatch")
    assert (error.step, error.path) == ("edit", "a.txt")


@clause("3.7")
async def test_what_a_block_inserts_is_never_searched(scene: Scene):
    scene.put({"a.txt": "a b\n"})
    edits = [{"find": "a", "replace": "b"}, {"find": "b", "replace": "c"}]
    await scene.call("edit", path="a.txt", edits=edits)
    assert scene.text("a.txt") == "b c\n"


@clause("3.7")
async def test_an_ambiguous_block_lists_its_lines(scene: Scene):
    scene.put({"a.txt": "x\ny\nx\n"})
    error = await scene.refused(
        scene.call("edit", path="a.txt", edits=[{"find": "x", "replace": "z"}]), "E_DEV_STEP_FAILED", "ambiguous"
    )
    assert [match["line"] for match in error.matches or []] == [1, 3]


@clause("3.8")
async def test_a_patch_over_several_files_lands_as_a_whole(scene: Scene):
    scene.put({"a.txt": "1\n2\n3\n", "old.txt": "keep\nmove\n", "gone.txt": "x\n"})
    text = patch(
        "*** Update File: a.txt",
        "@@",
        " 1",
        "-2",
        "+two",
        "*** Update File: old.txt",
        "*** Move to: sub/new.txt",
        "@@",
        "-move",
        "+moved",
        "*** Delete File: gone.txt",
        "*** Add File: added.txt",
        "+hello",
    )
    result = await scene.call("apply_patch", patch=text)
    assert scene.disk() == {"a.txt": b"1\ntwo\n3\n", "sub/new.txt": b"keep\nmoved\n", "added.txt": b"hello\n"}
    question = scene.gate.asked[1]
    assert question["targets"] == ["a.txt", "added.txt", "gone.txt", "old.txt", "sub/new.txt"]
    assert question["mayCreate"] == ["added.txt", "sub/new.txt"]
    assert [(change.path, change.kind, change.from_) for change in result.changes] == [
        ("a.txt", "modified", None),
        ("added.txt", "added", None),
        ("gone.txt", "deleted", None),
        ("sub/new.txt", "renamed", "old.txt"),
    ]
    assert (result.written[0].path, result.written[0].kind) == ("sub/new.txt", "renamed")


@clause("3.8")
async def test_a_patch_that_fits_in_part_does_nothing(scene: Scene):
    scene.put({"a.txt": "1\n", "b.txt": "1\n"})
    text = patch("*** Update File: a.txt", "@@", "-1", "+2", "*** Update File: b.txt", "@@", "-9", "+2")
    await scene.refused(scene.call("apply_patch", patch=text), "E_DEV_STEP_FAILED", "noMatch")


@clause("3.8")
async def test_a_git_diff_is_a_patch_too(scene: Scene):
    scene.put({"a.txt": "1\n2\n"})
    diff = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n 1\n-2\n+two\n"
    await scene.call("apply_patch", patch=diff)
    assert scene.text("a.txt") == "1\ntwo\n"


@clause("3.8")
async def test_a_patch_that_does_not_parse_names_the_line_and_asks_nothing(scene: Scene):
    error = await scene.refused(
        scene.call("apply_patch", patch="*** Begin Patch\n*** Rename File: a\n*** End Patch"),
        "E_DEV_BAD_ARG",
        "malformed",
    )
    assert error.line == 2
    assert scene.gate.steps == []


@clause("3.9")
async def test_files_can_swap_names(scene: Scene):
    scene.put({"a.txt": "A\n", "b.txt": "B\n"})
    swap = patch("*** Update File: a.txt", "*** Move to: b.txt", "*** Update File: b.txt", "*** Move to: a.txt")
    result = await scene.call("apply_patch", patch=swap)
    assert scene.disk() == {"a.txt": b"B\n", "b.txt": b"A\n"}
    assert [(change.path, change.from_) for change in result.changes] == [("a.txt", "b.txt"), ("b.txt", "a.txt")]


@clause("3.9")
async def test_moves_back_and_forth_touch_nothing(scene: Scene):
    scene.put({"a.txt": "A\n"})
    there = patch("*** Update File: a.txt", "*** Move to: b.txt")
    back = patch("*** Update File: b.txt", "*** Move to: a.txt")
    result = await scene.plan(["a.txt"], op("apply_patch", patch=there), op("apply_patch", patch=back), op("write"))
    assert (result.changes, result.written) == ([], [])
    assert scene.disk() == {"a.txt": b"A\n"}


@clause("3.9")
async def test_a_chain_of_moves_is_reported_as_one(scene: Scene):
    scene.put({"a.txt": "A\n"})
    first = patch("*** Update File: a.txt", "*** Move to: b.txt")
    second = patch("*** Update File: b.txt", "*** Move to: c.txt")
    result = await scene.plan(["a.txt"], op("apply_patch", patch=first), op("apply_patch", patch=second), op("write"))
    assert [(entry.path, entry.kind, entry.from_) for entry in result.written] == [("c.txt", "renamed", "a.txt")]
    assert scene.disk() == {"c.txt": b"A\n"}


@clause("3.9")
async def test_a_move_onto_the_name_of_a_deleted_file(scene: Scene):
    scene.put({"a.txt": "A\n", "b.txt": "B\n"})
    gone = patch("*** Delete File: b.txt")
    move = patch("*** Update File: a.txt", "*** Move to: b.txt")
    await scene.plan(["*.txt"], op("apply_patch", patch=gone), op("apply_patch", patch=move), op("write"))
    assert scene.disk() == {"b.txt": b"A\n"}


@clause("3.9")
async def test_a_patch_that_moves_over_a_deleted_file_shows_both(scene: Scene):
    scene.put({"a.txt": "A\n", "b.txt": "B\n"})
    shown = []

    async def look(context, call):
        from devtools_lsp.ports import Decision

        if call.step == "apply_patch":
            shown.extend((await context.diff()).files)
        return Decision(approved=True, by="person")

    scene.gate.answer = look
    both = patch("*** Delete File: b.txt", "*** Update File: a.txt", "*** Move to: b.txt")
    await scene.call("apply_patch", patch=both)
    assert scene.disk() == {"b.txt": b"A\n"}
    assert [(file.path, file.kind) for file in shown] == [("a.txt", "deleted"), ("b.txt", "modified")]


@clause("3.10")
async def test_write_writes_only_what_differs(scene: Scene):
    scene.put({"a.txt": "a\n", "b.txt": "b\n"})
    result = await scene.plan(
        ["*.txt"], op("edit", path="a.txt", edits=[{"find": "a", "replace": "A"}]), op("write"), op("write")
    )
    assert [(entry.path, entry.kind) for entry in result.written] == [("a.txt", "modified")]
    assert [question["targets"] for question in scene.gate.asked if question["step"] == "write"] == [["a.txt"], []]


@clause("3.10")
async def test_write_of_some_paths_leaves_the_rest_unwritten_and_says_so(scene: Scene):
    scene.put({"a.txt": "a\n", "b.txt": "b\n"})
    result = await scene.plan(
        ["*.txt"],
        op("edit", path="a.txt", edits=[{"find": "a", "replace": "A"}]),
        op("edit", path="b.txt", edits=[{"find": "b", "replace": "B"}]),
        op("write", paths=["a.txt"]),
    )
    assert scene.disk() == {"a.txt": b"A\n", "b.txt": b"b\n"}
    assert result.unwritten == ["b.txt"]
    assert [item.severity for item in result.diagnostics if item.rule == "unwritten"] == ["warning"]
    assert result.ok


@clause("3.10")
async def test_a_conflict_is_seen_before_the_first_byte_and_touches_nothing(scene: Scene):
    scene.put({"a.txt": "a\n", "b.txt": "b\n"})

    def meddle(_context, call):
        from devtools_lsp.ports import Decision

        if call.step == "write":
            scene.put({"b.txt": "theirs\n"})
        return Decision(approved=True, by="person")

    scene.gate.answer = meddle
    with pytest.raises(DevToolsError) as caught:
        await scene.plan(
            ["*.txt"],
            op("edit", path="a.txt", edits=[{"find": "a", "replace": "A"}]),
            op("edit", path="b.txt", edits=[{"find": "b", "replace": "B"}]),
            op("write"),
        )
    assert (caught.value.code, caught.value.paths) == ("E_DEV_CONFLICT", ["b.txt"])
    assert caught.value.written is None
    assert scene.disk() == {"a.txt": b"a\n", "b.txt": b"theirs\n"}


@clause("3.10")
async def test_unsaved_text_in_an_editor_is_a_conflict_that_asks_nothing(scene: Scene):
    class Unsaved:
        def dirty(self, paths):
            return [path for path in paths if path == "a.txt"]

    scene.options["buffers"] = Unsaved()
    scene.put({"a.txt": "a\n"})
    error = await scene.refused(
        scene.call("edit", path="a.txt", edits=[{"find": "a", "replace": "A"}]), "E_DEV_CONFLICT", "dirtyInEditor"
    )
    assert error.paths == ["a.txt"]
    assert scene.gate.steps == ["acquire"]


@clause("3.10")
async def test_the_result_says_whether_writing_is_atomic(scene: Scene):
    scene.put({"a.txt": "a\n"})
    result = await scene.call("read_lines", path="a.txt", start=1)
    assert result.atomic is True


@clause("3.11")
async def test_files_that_no_engine_handles_are_skipped_and_said(scene: Scene):
    scene.engines = [formatter("upper", str.upper, extensions=frozenset({"txt"}))]
    scene.put({"a.txt": "a\n", "b.md": "b\n"})
    result = await scene.call("format", paths=["a.txt", "b.md"])
    assert scene.disk() == {"a.txt": b"A\n", "b.md": b"b\n"}
    assert [(item.severity, item.engine_id, item.path) for item in result.diagnostics] == [("info", None, "b.md")]


@clause("3.11")
async def test_an_engine_that_breaks_down_fails_the_step_by_name(scene: Scene):
    async def broken(_call):
        raise RuntimeError("boom")

    scene.engines = [DevEngine("shaky", checks=(Capability(broken),))]
    scene.put({"a.txt": "a\n"})
    error = await scene.refused(scene.call("check", paths=["a.txt"]), "E_DEV_STEP_FAILED")
    assert "shaky" in error.message
    assert "boom" in error.message
    assert error.step == "check"


@clause("3.11")
@pytest.mark.parametrize(
    ("delta", "needs", "says"),
    [
        (Delta(changed={"b.txt": "B\n"}), frozenset(), "b.txt"),
        (Delta(deleted=frozenset({"a.txt"})), frozenset(), "delete"),
        (Delta(renamed={"a.txt": "c.txt"}), frozenset(), "rename"),
        (Delta(added={"b.txt": "x"}), frozenset(), "b.txt"),
        (Delta(added={"c.md": "x"}), frozenset(), "c.md"),
    ],
)
async def test_a_delta_outside_its_envelope_fails_the_step(scene: Scene, delta, needs, says: str):
    """I10: claims are checked."""

    async def run(_call):
        return delta

    scene.engines = [DevEngine("stray", formats=(Capability(run, needs=needs),))]
    scene.put({"a.txt": "a\n", "b.txt": "b\n"})
    error = await scene.refused(scene.plan(["*.txt"], op("format", paths=["a.txt"]), op("write")), "E_DEV_STEP_FAILED")
    assert says in error.message


@clause("3.11")
async def test_a_checker_that_changes_something_fails_the_step(scene: Scene):
    async def run(_call):
        return Delta(changed={"a.txt": "B\n"})

    scene.engines = [DevEngine("eager", checks=(Capability(run),))]
    scene.put({"a.txt": "a\n"})
    await scene.refused(scene.plan(["a.txt"], op("check"), op("write")), "E_DEV_STEP_FAILED")


@clause("3.11")
async def test_a_claimed_change_that_changes_nothing_is_dropped_with_a_warning(scene: Scene):
    async def run(call):
        return Delta(changed=dict(call.texts))

    scene.engines = [DevEngine("busy", formats=(Capability(run),))]
    scene.put({"a.txt": "a\n"})
    result = await scene.call("format", paths=["a.txt"])
    assert result.written == []
    assert [item.severity for item in result.diagnostics] == ["warning"]


@clause("3.11")
async def test_lint_with_fix_fixes_persists_and_judges_what_remains(scene: Scene):
    async def run(call):
        if call.fix:
            return Delta(changed={path: call.texts[path].replace("bad", "good") for path in call.paths})
        found = tuple(
            Finding(path=path, severity="warning", message="worse", line=1)
            for path in call.paths
            if "worse" in call.texts[path]
        )
        return Delta(diagnostics=found)

    scene.engines = [DevEngine("fixer", lints=(Capability(run, fixable=True),))]
    scene.put({"a.txt": "bad worse\n"})
    result = await scene.call("lint", paths=["a.txt"], fix=True)
    assert scene.text("a.txt") == "good worse\n"
    assert [item.message for item in result.diagnostics] == ["worse"]
    assert scene.gate.asked[1]["args"] == {"fix": True, "persists": True}


@clause("3.11")
async def test_what_fixes_did_away_with_is_told_as_far_as_it_holds(scene: Scene):
    """A fix may remove what the plan has just brought in: no comparison with the acquired state shows that (I10)."""

    def found(path, text):
        return [
            Finding(path=path, severity="warning", message=f"{word} is bad", rule=word, line=number)
            for number, line in enumerate(text.split("\n"), 1)
            for word in line.split()
            if word.startswith("bad")
        ]

    async def run(call):
        findings = [finding for path in call.paths for finding in found(path, call.texts[path])]
        if not call.fix:
            return Delta(diagnostics=tuple(findings))
        changed = {path: call.texts[path].replace("bad1", "good") for path in call.paths if "bad1" in call.texts[path]}
        # It claims more than is true: what is still there afterwards is not told as fixed.
        refused = Pending(path="a.txt", reason="not fixed: bad2 needs a person")
        return Delta(changed=changed, diagnostics=tuple(findings), fixed=tuple(findings), pending=(refused,))

    scene.engines = [DevEngine("fixer", lints=(Capability(run, fixable=True),))]
    scene.put({"a.txt": "one\n", "b.txt": "bad1\n" * 5})
    edit = op("edit", path="a.txt", edits=[{"find": "one\n", "replace": "one\nbad1 bad2\n"}])
    result = await scene.plan(["a.txt"], edit, op("lint", fix=True))
    told = [item for item in result.diagnostics if item.rule == "fixed"]
    assert [(item.path, item.severity, item.engine_id) for item in told] == [("a.txt", "info", None)]
    assert told[0].message == "lint: fixer fixed bad1 at a.txt:2 (bad1 is bad)"
    assert [item.rule for item in result.diagnostics if item.engine_id == "fixer"] == ["bad2"]
    assert "bad2 needs a person" in str([item.message for item in result.diagnostics if item.rule == "pending"])
    counted = await scene.call("lint", paths=["b.txt"], fix=True)
    assert [item.message for item in counted.diagnostics if item.rule == "fixed"] == [
        "lint: fixer fixed 5 findings in 1 file: bad1 x5"
    ]


@clause("3.11")
async def test_not_judged_is_pending_and_never_clean(scene: Scene):
    async def run(call):
        return Delta(pending=(Pending(reason="still indexing", path="a.txt"),))

    scene.engines = [DevEngine("slow", checks=(Capability(run),))]
    scene.put({"a.txt": "a\n"})
    result = await scene.call("check", paths=["a.txt"])
    assert result.delta is not None
    assert [(entry.path, entry.engine_id, entry.reason) for entry in result.delta.pending] == [
        ("a.txt", "slow", "still indexing")
    ]


@clause("3.12")
async def test_edit_then_check_is_judged_from_memory(scene: Scene):
    scene.engines = [finder("words", "bad")]
    scene.put({"a.txt": "good\n"})
    result = await scene.plan(
        ["a.txt"], op("edit", path="a.txt", edits=[{"find": "good", "replace": "so bad"}]), op("check")
    )
    assert scene.disk() == {"a.txt": b"good\n"}
    (finding,) = [item for item in result.diagnostics if item.engine_id == "words"]
    assert (finding.path, finding.line, finding.column, finding.end_column) == ("a.txt", 1, 4, 7)
    assert not result.ok
    assert result.delta is not None
    assert (len(result.delta.introduced), len(result.delta.resolved), result.delta.unchanged) == (1, 0, 0)
    assert result.unwritten == ["a.txt"]
