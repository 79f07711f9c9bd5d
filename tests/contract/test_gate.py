"""Section 4 of the contract: what the gate is asked, when, and what its answer does."""

from __future__ import annotations

import asyncio

import pytest

from devtools_lsp.core.delta import Delta
from devtools_lsp.errors import DevToolsError
from devtools_lsp.ports import Cancellation, Capability, Decision, DevEngine, Edited, EngineCall
from tests.contract.bench import Scene, denying, finder, formatter, op

clause = pytest.mark.clause


@clause("4.1")
async def test_the_question_is_exactly_these_five_fields(scene: Scene):
    """I3: args are the authored ones, `persists` aside."""
    scene.put({"a.txt": "one\n"})
    edits = [{"find": "one", "replace": "two"}]
    await scene.call("edit", path="./a.txt", edits=edits)
    assert scene.gate.asked == [
        {"step": "acquire", "args": {}, "targets": ["a.txt"], "mayCreate": [], "engines": None},
        {
            "step": "edit",
            "args": {"path": "./a.txt", "edits": edits, "persists": True},
            "targets": ["a.txt"],
            "mayCreate": [],
            "engines": None,
        },
    ]


@clause("4.1")
async def test_the_embedders_handle_reaches_the_gate_and_the_engines(scene: Scene):
    """SPEC 3.0.1: it is opaque and passed on as it is."""
    handle = object()
    got: list[object] = []

    async def run(call: EngineCall) -> Delta:
        got.append(call.handle)
        return Delta()

    scene.options["handle"] = handle
    scene.engines = [DevEngine("e", checks=(Capability(run),))]
    scene.put({"a.txt": "a\n"})
    await scene.call("check", paths=["a.txt"])
    assert got == [handle]
    assert [context.handle for context, _ in scene.gate.questions] == [handle, handle]


@clause("4.2")
async def test_a_granular_mutating_call_asks_exactly_twice(scene: Scene):
    """I2: acquire, then the step; the trailing write asks nothing."""
    scene.engines = [formatter("upper", str.upper)]
    scene.put({"a.txt": "one\n", "b.txt": "two\n"})
    await scene.call("edit", path="a.txt", edits=[{"find": "one", "replace": "three"}])
    await scene.call("apply_patch", patch="*** Begin Patch\n*** Delete File: b.txt\n*** End Patch\n")
    await scene.call("format", paths=["a.txt"])
    assert scene.gate.steps == ["acquire", "edit", "acquire", "apply_patch", "acquire", "format"]
    assert scene.disk() == {"a.txt": b"THREE\n"}


@clause("4.2")
async def test_one_question_a_step_however_many_files(scene: Scene):
    scene.put({f"f{number}.txt": "x\n" for number in range(12)})
    scene.engines = [formatter("upper", str.upper), finder("words", "X")]
    await scene.plan(["*.txt"], op("format"), op("check"), op("write"))
    assert scene.gate.steps == ["acquire", "format", "check", "write"]


@clause("4.2")
async def test_reading_steps_are_gated_too(scene: Scene):
    scene.put({"a.txt": "x\n"})
    scene.engines = [finder("words", "x"), finder("lint", "x", kind="lints")]
    await scene.call("read_lines", path="a.txt", start=1)
    await scene.call("check", paths=["a.txt"])
    await scene.call("lint", paths=["a.txt"])
    assert scene.gate.steps == ["acquire", "read_lines", "acquire", "check", "acquire", "lint"]
    assert [question["engines"] for question in scene.gate.asked] == [None, None, None, ["words"], None, ["lint"]]
    assert not any("persists" in question["args"] for question in scene.gate.asked)


@clause("4.2")
async def test_authored_paths_belong_to_acquire_and_not_to_the_step(scene: Scene):
    scene.put({"a.txt": "x\n"})
    scene.engines = [finder("words", "x")]
    await scene.call("check", paths=["*.txt"])
    assert [question["args"] for question in scene.gate.asked] == [{"paths": ["*.txt"]}, {}]


@clause("4.3")
@pytest.mark.parametrize(
    ("call", "code", "reason"),
    [
        ({"step": "edit", "path": "a.txt", "edits": []}, "E_DEV_BAD_ARG", "malformed"),
        ({"step": "apply_patch", "patch": "nonsense"}, "E_DEV_BAD_ARG", "malformed"),
        (
            {"step": "edit", "path": "../a.txt", "edits": [{"find": "a", "replace": "b"}]},
            "E_DEV_POLICY",
            "outsideRoot",
        ),
        (
            {"step": "edit", "path": ".git/config", "edits": [{"find": "a", "replace": "b"}]},
            "E_DEV_POLICY",
            "protected",
        ),
        ({"step": "edit", "path": "link", "edits": [{"find": "a", "replace": "b"}]}, "E_DEV_POLICY", "symlink"),
        ({"step": "edit", "path": "no.txt", "edits": [{"find": "a", "replace": "b"}]}, "E_DEV_BAD_ARG", "notFound"),
        ({"step": "edit", "path": "dir", "edits": [{"find": "a", "replace": "b"}]}, "E_DEV_BAD_ARG", "isDirectory"),
        (
            {"step": "apply_patch", "patch": "*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch"},
            "E_DEV_STEP_FAILED",
            "exists",
        ),
    ],
)
async def test_what_is_refused_before_the_first_question_asks_nothing(scene: Scene, call, code, reason):
    scene.put({"a.txt": "x\n", "dir/b.txt": "y\n", ".git/config": "[core]\n"})
    (scene.root / "link").symlink_to("a.txt")
    await scene.refused(scene.call(**call), code, reason)
    assert scene.gate.steps == []


@clause("4.3")
async def test_an_edit_that_cannot_apply_asks_only_about_reading(scene: Scene):
    scene.put({"a.txt": "x\nx\n"})
    await scene.refused(
        scene.call("edit", path="a.txt", edits=[{"find": "x", "replace": "y"}]), "E_DEV_STEP_FAILED", "ambiguous"
    )
    await scene.refused(
        scene.call("edit", path="a.txt", edits=[{"find": "z", "replace": "y"}]), "E_DEV_STEP_FAILED", "noMatch"
    )
    assert scene.gate.steps == ["acquire", "acquire"]


@clause("4.3")
async def test_a_decline_of_acquire_reads_nothing(scene: Scene):
    scene.put({"a.txt": "x\n"})
    scene.gate.answer = denying("not now")
    reads: list[str] = []
    scene.pipeline  # noqa: B018 -- builds the file system
    original = scene.file_system.read

    async def watched(path: str) -> bytes:
        reads.append(path)
        return await original(path)

    scene.file_system.read = watched
    error = await scene.refused(scene.call("read_lines", path="a.txt", start=1), "E_DEV_GATE_DECLINED", "denied")
    assert error.note == "not now"
    assert "not now" in error.message
    assert reads == []


@clause("4.3")
@pytest.mark.parametrize("declined", ["edit", "write"])
async def test_after_a_decline_nothing_of_the_step_has_happened(scene: Scene, declined: str):
    """I1: no byte without an approval of its step."""
    scene.put({"a.txt": "x\n"})
    scene.gate.answer = lambda _context, call: Decision(approved=call.step != declined, by="person")
    error = await scene.refused(
        scene.plan(["a.txt"], op("edit", path="a.txt", edits=[{"find": "x", "replace": "y"}]), op("write")),
        "E_DEV_GATE_DECLINED",
        "denied",
    )
    assert error.step == declined


@clause("4.4")
async def test_the_preview_is_computed_once_and_only_when_asked_for(scene: Scene):
    judged: list[int] = []
    engine = finder("words", "bad")
    run = engine.checks[0].run

    async def counted(call):
        judged.append(1)
        return await run(call)

    from devtools_lsp.ports import Capability, DevEngine

    scene.engines = [DevEngine("words", checks=(Capability(counted),))]
    scene.put({"a.txt": "good\n"})
    await scene.call("edit", path="a.txt", edits=[{"find": "good", "replace": "fine"}])
    assert judged == []
    seen = []

    async def look(context, call):
        if call.step == "edit":
            seen.extend([await context.preview(), await context.preview()])
        return Decision(approved=True, by="person", person=True)

    scene.gate.answer = look
    await scene.call("edit", path="a.txt", edits=[{"find": "fine", "replace": "bad"}])
    first, second = seen
    assert first is second
    assert [(item.message, item.engine_id, item.out_of_scope) for item in first.introduced] == [
        ("bad is not allowed", "words", False)
    ]
    assert "-fine\n+bad\n" in first.diff
    assert len(judged) == 2, "the state before and the state after, once each"


@clause("4.4")
async def test_the_diff_alone_does_not_wait_for_engines(scene: Scene):
    scene.engines = [finder("words", "bad")]
    scene.put({"a.txt": "good\n"})
    shown = []

    async def look(context, call):
        if call.step == "edit":
            shown.append(await context.diff())
        return Decision(approved=True, by="person")

    scene.gate.answer = look
    await scene.call("edit", path="a.txt", edits=[{"find": "good", "replace": "bad"}])
    assert shown[0].introduced == []
    assert [file.path for file in shown[0].files] == ["a.txt"]


@clause("4.4")
async def test_what_was_approved_is_what_is_written_or_nothing(scene: Scene):
    """I5: the disk changed between the question and the answer."""
    scene.put({"a.txt": "x\n"})

    def meddle(_context, call):
        if call.step == "edit":
            scene.put({"a.txt": "x\nmore\n"})
        return Decision(approved=True, by="person")

    scene.gate.answer = meddle
    with pytest.raises(DevToolsError) as caught:
        await scene.call("edit", path="a.txt", edits=[{"find": "x", "replace": "y"}])
    assert caught.value.code == "E_DEV_CONFLICT"
    assert caught.value.paths == ["a.txt"]
    assert scene.disk() == {"a.txt": b"x\nmore\n"}


@clause("4.4")
async def test_a_formatter_runs_once_whether_previewed_or_not(scene: Scene):
    runs: list[int] = []

    def change(text: str) -> str:
        runs.append(1)
        return text.upper()

    scene.engines = [formatter("upper", change)]
    scene.put({"a.txt": "x\n"})

    async def look(context, call):
        if call.step == "format":
            await context.preview()
        return Decision(approved=True, by="person")

    scene.gate.answer = look
    await scene.call("format", paths=["a.txt"])
    assert runs == [1]
    assert scene.text("a.txt") == "X\n"


@clause("4.6")
async def test_a_person_may_drop_hunks_and_edit_text(scene: Scene):
    lines = [f"line {number}\n" for number in range(40)]
    scene.put({"a.txt": "".join(lines)})
    edits = [{"find": f"line {number}\n", "replace": f"LINE {number}\n"} for number in (5, 20, 35)]

    async def decide(context, call):
        if call.step != "edit":
            return Decision(approved=True, by="rule")
        (file,) = (await context.diff()).files
        first, second, _third = file.hunks
        return Decision(
            approved=True,
            by="editor",
            person=True,
            note="twenty stays",
            dropped=(second.id,),
            edited=(Edited(hunk_id=first.id, text=first.text.replace("+LINE 5", "+Line five")),),
        )

    scene.gate.answer = decide
    result = await scene.call("edit", path="a.txt", edits=edits)
    expected = lines.copy()
    expected[5], expected[35] = "Line five\n", "LINE 35\n"
    assert scene.text("a.txt") == "".join(expected)
    assert result.decision is not None
    assert result.decision.note == "twenty stays"
    assert len(result.decision.dropped) == 1
    assert len(result.decision.edited) == 1


@clause("4.6")
async def test_a_person_may_replace_a_whole_file(scene: Scene):
    scene.put({"a.txt": "one\r\n"})
    scene.gate.answer = lambda _context, call: Decision(
        approved=True,
        by="editor",
        person=True,
        edited=(Edited(path="a.txt", text="mine\n"),) if call.step == "edit" else (),
    )
    await scene.call("edit", path="a.txt", edits=[{"find": "one", "replace": "two"}])
    assert scene.disk() == {"a.txt": b"mine\r\n"}


@clause("4.7")
async def test_a_call_that_is_cancelled_while_the_gate_waits_changes_nothing(scene: Scene):
    scene.put({"a.txt": "x\n"})
    signal = Cancellation()

    async def hang(_context, call):
        if call.step == "edit":
            signal.cancel()
            await asyncio.Event().wait()
        return Decision(approved=True, by="rule")

    scene.gate.answer = hang
    await scene.refused(
        scene.pipeline.single("edit", {"path": "a.txt", "edits": [{"find": "x", "replace": "y"}]}, signal=signal),
        "E_DEV_CANCELLED",
    )


@clause("4.5")
async def test_a_gate_that_breaks_down_approves_nothing(scene: Scene):
    scene.put({"a.txt": "x\n"})

    def broken(_context, call):
        if call.step == "edit":
            raise ValueError("no idea")
        return Decision(approved=True, by="rule")

    scene.gate.answer = broken
    error = await scene.refused(
        scene.call("edit", path="a.txt", edits=[{"find": "x", "replace": "y"}]), "E_DEV_STEP_FAILED"
    )
    assert "no idea" in error.message


@clause("4.5")
@pytest.mark.parametrize("end", ["answered", "cancelled", "broken"])
async def test_every_question_is_reported_once_however_it_ends(scene: Scene, end: str):
    class Told:
        def __init__(self) -> None:
            self.verdicts: list[tuple[str, str]] = []

        def gate_answered(self, who, call, decision) -> None:
            self.verdicts.append((call.step, "approved" if decision.approved else decision.reason))

        def failed(self, who, step, code, paths) -> None: ...

        def landed(self, who, step, files, written) -> None: ...

        def judged(self, who, engine_id, step, paths, diagnostics) -> None: ...

    scene.options["observer"] = told = Told()
    scene.put({"a.txt": "x\n"})
    signal = Cancellation()

    async def answer(_context, call):
        if call.step == "edit" and end == "cancelled":
            signal.cancel()
            await asyncio.Event().wait()
        if call.step == "edit" and end == "broken":
            raise ValueError("no idea")
        return Decision(approved=True, by="rule")

    scene.gate.answer = answer
    work = scene.pipeline.single("edit", {"path": "a.txt", "edits": [{"find": "x", "replace": "y"}]}, signal=signal)
    if end == "answered":
        await work
    else:
        with pytest.raises(DevToolsError):
            await work
    assert told.verdicts == [("acquire", "approved"), ("edit", "approved" if end == "answered" else "withdrawn")]
