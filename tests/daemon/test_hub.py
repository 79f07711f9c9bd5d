"""Published diagnostics: merged, in each editor's terms, on the bytes they belong to (SPEC 8.0.7)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.daemon.buffers import Change, EditorBuffers
from devtools_lsp.daemon.diagnostics_hub import DiagnosticsHub, Judge, JudgeRequest
from devtools_lsp.daemon.diagnostics_page import Mark
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.daemon.findings import Judgement
from devtools_lsp.daemon.lsp_rim import PositionEncoding, UriMap
from devtools_lsp.wire.framing import FrameTooLargeError


class EditorSink:
    """Keeps what each file shows, as an editor does."""

    def __init__(self, root: Path, encoding: PositionEncoding = "utf-16", pulls: bool = False, limit: int = 2**23):
        self.encoding: PositionEncoding = encoding
        self.uris = UriMap(root)
        self.pulls = pulls
        self.limit = limit
        self.shown: dict[str, list[dict[str, Any]]] = {}
        self.sent: list[str] = []
        self.refreshed = 0

    def send(self, payload: bytes) -> None:
        if len(payload) > self.limit:
            raise FrameTooLargeError(len(payload), self.limit)
        message = json.loads(payload)
        assert message["method"] == "textDocument/publishDiagnostics"
        path = self.uris.from_lsp_uri(message["params"]["uri"])
        assert path is not None
        self.sent.append(path)
        self.shown[path] = message["params"]["diagnostics"]

    def refresh(self) -> None:
        self.refreshed += 1

    def messages(self, path: str) -> list[str]:
        return [entry["message"] for entry in self.shown.get(path, [])]

    def places(self, path: str) -> list[tuple[int, int, int, int]]:
        return [
            (place["start"]["line"], place["start"]["character"], place["end"]["line"], place["end"]["character"])
            for place in (entry["range"] for entry in self.shown.get(path, []))
        ]


class Scene:
    def __init__(self, root: Path, clock: Any) -> None:
        self.root = root
        self.clock = clock
        self.disk = Disk(root)
        self.buffers = EditorBuffers(self.disk)
        self.requests: list[JudgeRequest] = []
        self.answers: list[Judgement] = []
        self.hub = DiagnosticsHub(self.disk, self.buffers, clock, judge=self.judge)
        self.buffers.listen(self.hub.buffer_changed)

    async def judge(self, request: JudgeRequest) -> Sequence[Judgement]:
        self.requests.append(request)
        return self.answers

    def put(self, path: str, text: str | bytes) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())

    def editor(self, encoding: PositionEncoding = "utf-16", **more: Any) -> EditorSink:
        sink = EditorSink(self.root, encoding, **more)
        self.hub.attach(sink)
        return sink

    async def rejudged(self, after_s: float = 0.3) -> None:
        """Let the pause after a change pass, and everything that follows from it."""
        await self.clock.advance(after_s)
        while self.hub._rejudging is not None and not self.clock.sleeping:
            await asyncio.sleep(0.001)
        await self.hub.settled()


def finding(
    message: str = "undefined name", path: str = "a.py", engine: str | None = "checker", **more: Any
) -> Diagnostic:
    place = {"line": 1, "column": 1, "end_line": 1, "end_column": 2} | more
    out = place.pop("out_of_scope", False)
    return Diagnostic(path, "error", message, engine, out, place.pop("rule", "R1"), **place)


@pytest.fixture
async def scene(tmp_path: Path, clock: Any):
    scene = Scene(tmp_path, clock)
    yield scene
    await scene.hub.close()


async def test_two_editors_see_the_same_token_in_their_own_units(scene: Scene):
    """D10: columns after an emoji, tabs and CRLF."""
    scene.put("a.py", '\ts = "😀" + totl\r\n')
    one, two, three = scene.editor("utf-8"), scene.editor("utf-16"), scene.editor("utf-32")
    scene.hub.judged("checker", "check", ["a.py"], [finding(column=12, end_column=16)])
    await scene.hub.settled()
    assert one.places("a.py") == [(0, 14, 0, 18)]
    assert two.places("a.py") == [(0, 12, 0, 16)]
    assert three.places("a.py") == [(0, 11, 0, 15)]
    shown = two.shown["a.py"][0]
    assert shown["data"] == {"engineId": "checker", "outOfScope": False}
    assert (shown["source"], shown["code"], shown["severity"]) == ("checker", "R1", 1)


async def test_engines_steps_and_marks_are_merged_in_one_publish(scene: Scene):
    scene.put("a.py", "x = 1\ny = 2\n")
    editor = scene.editor()
    scene.hub.judged("checker", "check", ["a.py"], [finding("from check")])
    scene.hub.judged("ruff", "lint", ["a.py"], [finding("from lint", engine="ruff")])
    scene.hub.mark("approval-1", {"a.py": Mark(2, 1, "may I", "approval", {"approvalId": "1"})})
    await scene.hub.settled()
    assert editor.sent == ["a.py"], "what becomes known together is published together"
    assert editor.messages("a.py") == ["from check", "from lint", "may I"]
    mark = editor.shown["a.py"][2]
    assert (mark["severity"], mark["source"], mark["code"]) == (3, "devtools-lsp", "approval")
    assert editor.places("a.py")[2] == (1, 0, 1, 5)
    scene.hub.judged("ruff", "lint", ["a.py"], [])
    scene.hub.unmark("approval-1")
    await scene.hub.settled()
    assert editor.messages("a.py") == ["from check"]
    scene.hub.judged("checker", "check", ["a.py"], [])
    await scene.hub.settled()
    assert editor.shown["a.py"] == []
    scene.hub.judged("checker", "check", ["a.py"], [])
    await scene.hub.settled()
    assert len(editor.sent) == 3, "an empty file is not published again and again"


async def test_an_editor_that_attaches_later_sees_everything(scene: Scene):
    scene.put("a.py", "x\n")
    scene.hub.judged("checker", "check", ["a.py"], [finding()])
    await scene.hub.settled()
    late = scene.editor()
    await scene.hub.settled()
    assert late.messages("a.py") == ["undefined name"]
    scene.hub.detach(late)
    scene.hub.judged("checker", "check", ["a.py"], [])
    await scene.hub.settled()
    assert late.messages("a.py") == ["undefined name"]


async def test_what_was_said_beside_the_judged_files_goes_with_them(scene: Scene):
    scene.put("a.py", "x\n")
    scene.put("importer.py", "x\n")
    editor = scene.editor()
    beside = finding("importer broke", "importer.py", out_of_scope=True)
    scene.hub.judged("checker", "check", ["a.py"], [beside])
    await scene.hub.settled()
    assert editor.shown["importer.py"][0]["data"]["outOfScope"] is True
    scene.hub.judged("checker", "check", ["other.py"], [])
    await scene.hub.settled()
    assert editor.messages("importer.py") == ["importer broke"], "nothing that concerned it was judged"
    scene.hub.judged("checker", "check", ["a.py"], [])
    await scene.hub.settled()
    assert editor.messages("importer.py") == []


async def test_a_null_path_is_published_nowhere_and_a_notice_has_our_name(scene: Scene):
    scene.put("a.py", "x\n")
    editor = scene.editor()
    notices = [finding("skipped", engine=None), finding("of no file", path=None)]  # type: ignore[arg-type]
    scene.hub.judged("checker", "check", ["a.py"], notices)
    await scene.hub.settled()
    assert editor.messages("a.py") == ["skipped"]
    assert editor.shown["a.py"][0]["source"] == "devtools-lsp"


# -- changes -----------------------------------------------------------------------------------------------------


async def test_a_changed_file_is_judged_again_after_a_pause(scene: Scene):
    scene.put("a.py", "x\n")
    editor = scene.editor()
    scene.hub.judged("checker", "check", ["a.py"], [finding()])
    await scene.hub.settled()
    scene.put("a.py", "fixed\n")
    scene.hub.files_changed(["a.py"])
    await scene.rejudged(0.29)
    assert (editor.messages("a.py"), scene.requests) == (["undefined name"], [])
    scene.answers = [Judgement("checker", "check", ("a.py",), (finding("still wrong"),))]
    await scene.rejudged(0.02)
    assert scene.requests == [JudgeRequest({"a.py": None}, frozenset({"checker"}))]
    assert editor.messages("a.py") == ["still wrong"]
    scene.answers = []
    scene.put("a.py", "fixed at last\n")
    scene.hub.files_changed(["a.py"])
    await scene.rejudged()
    assert editor.messages("a.py") == []


async def test_without_anybody_to_judge_it_is_cleared(scene: Scene):
    scene.put("a.py", "x\n")
    hub = DiagnosticsHub(scene.disk, scene.buffers, scene.clock)
    editor = EditorSink(scene.root)
    hub.attach(editor)
    hub.judged("checker", "check", ["a.py"], [finding()])
    await hub.settled()
    scene.put("a.py", "y\n")
    hub.files_changed(["a.py"])
    await scene.clock.advance(0.3)
    while editor.messages("a.py"):
        await asyncio.sleep(0.001)
    await hub.close()


async def test_a_touch_without_a_change_judges_nothing(scene: Scene):
    scene.put("a.py", "x\n")
    editor = scene.editor()
    scene.hub.judged("checker", "check", ["a.py"], [finding()])
    await scene.hub.settled()
    scene.hub.files_changed(["a.py"])
    await scene.rejudged()
    assert (editor.messages("a.py"), scene.requests) == (["undefined name"], [])


async def test_a_file_that_keeps_changing_is_judged_all_the_same(scene: Scene):
    scene.put("a.py", "x\n")
    scene.editor()
    scene.hub.judged("checker", "check", ["a.py"], [finding()])
    await scene.hub.settled()
    for number in range(5):
        scene.put("a.py", f"x{number}\n")
        scene.hub.files_changed(["a.py"])
        await scene.rejudged(0.25)
    assert len(scene.requests) == 1


async def test_an_agents_own_judgement_makes_judging_again_needless(scene: Scene):
    scene.put("a.py", "x\n")
    editor = scene.editor()
    scene.hub.judged("checker", "check", ["a.py"], [finding()])
    await scene.hub.settled()
    scene.put("a.py", "y\n")
    scene.hub.files_changed(["a.py"])
    scene.hub.judged("checker", "check", ["a.py"], [finding("of the new text")])
    await scene.rejudged()
    assert (editor.messages("a.py"), scene.requests) == (["of the new text"], [])


async def test_deleted_and_moved_files_are_cleared_at_once(scene: Scene):
    for path in ("a.py", "dir/b.py", "dir/deep/c.py"):
        scene.put(path, "x\n")
    editor = scene.editor()
    scene.hub.judged(
        "checker", "check", ["a.py"], [finding(path=path) for path in ("a.py", "dir/b.py", "dir/deep/c.py")]
    )
    await scene.hub.settled()
    (scene.root / "a.py").unlink()
    scene.hub.files_changed(["a.py"])
    (scene.root / "dir").rename(scene.root / "elsewhere")
    scene.hub.files_changed(["dir", "elsewhere"])
    await scene.hub.settled()
    assert [editor.messages(path) for path in ("a.py", "dir/b.py", "dir/deep/c.py")] == [[], [], []]
    assert scene.hub.shown_paths() == []


async def test_an_engine_that_goes_takes_its_findings_along(scene: Scene):
    scene.put("a.py", "x\n")
    editor = scene.editor()
    scene.hub.judged("checker", "check", ["a.py"], [finding("one")])
    scene.hub.judged("ruff", "lint", ["a.py"], [finding("two", engine="ruff")])
    scene.hub.engine_gone("checker")
    await scene.hub.settled()
    assert editor.messages("a.py") == ["two"]


async def test_a_judge_that_fails_clears_and_says_so(scene: Scene, caplog: Any):
    async def broken(_request: JudgeRequest) -> Sequence[Judgement]:
        raise RuntimeError("no engine today")

    judge: Judge = broken
    scene.hub.configure("agent", judge)
    scene.put("a.py", "x\n")
    editor = scene.editor()
    scene.hub.judged("checker", "check", ["a.py"], [finding()])
    await scene.hub.settled()
    scene.put("a.py", "y\n")
    scene.hub.files_changed(["a.py"])
    await scene.rejudged()
    assert editor.messages("a.py") == []
    assert "no engine today" in caplog.text


# -- buffers (I14) -----------------------------------------------------------------------------------------------


async def test_findings_are_shown_only_on_the_text_they_belong_to(scene: Scene):
    """I14: published diagnostics belong to the bytes they are shown on."""
    scene.put("a.py", "x\n")
    typing, looking = scene.editor(), scene.editor()
    for sink in (typing, looking):
        scene.buffers.opened(sink, "a.py", "x\n", 1, "utf-16")
    scene.buffers.edited(typing, "a.py", [Change("typed\n")], 2)
    scene.hub.judged("checker", "check", ["a.py"], [finding("on disk")])
    await scene.hub.settled()
    assert (typing.messages("a.py"), looking.messages("a.py")) == ([], ["on disk"])
    scene.answers = [Judgement("checker", "check", ("a.py",), (finding("in the buffer"),))]
    scene.buffers.edited(typing, "a.py", [Change("typed more\n")], 3)
    await scene.rejudged()
    assert scene.requests[-1].texts == {"a.py": "typed more\n"}
    assert typing.messages("a.py") == ["in the buffer"]
    assert looking.messages("a.py") == [], "its text was not judged"


async def test_a_clean_buffer_that_waits_to_be_reloaded_shows_what_the_disk_has(scene: Scene):
    scene.put("a.py", "x\n")
    editor = scene.editor()
    scene.buffers.opened(editor, "a.py", "x\n", 1, "utf-16")
    scene.put("a.py", "\n\nagent\n")
    scene.hub.judged("checker", "check", ["a.py"], [finding(line=3, end_line=3)])
    await scene.hub.settled()
    assert editor.places("a.py") == [(2, 0, 2, 1)]
    count = len(editor.sent)
    scene.buffers.edited(editor, "a.py", [Change("\n\nagent\n")], 2)
    await scene.rejudged()
    assert editor.places("a.py") == [(2, 0, 2, 1)]
    assert len(editor.sent) == count + 1, "told again where it stands, since the reload may have moved it"
    assert scene.requests == []


async def test_closing_a_typed_in_buffer_goes_back_to_the_disk(scene: Scene):
    scene.put("a.py", "x\n")
    editor = scene.editor()
    scene.buffers.opened(editor, "a.py", "x\n", 1, "utf-16")
    scene.hub.judged("checker", "check", ["a.py"], [finding("on disk")])
    scene.buffers.edited(editor, "a.py", [Change("typed\n")], 2)
    scene.answers = [Judgement("checker", "check", ("a.py",), (finding("typed"),))]
    await scene.rejudged()
    assert editor.messages("a.py") == ["typed"]
    scene.buffers.closed(editor, "a.py")
    scene.answers = [Judgement("checker", "check", ("a.py",), (finding("on disk again"),))]
    await scene.rejudged()
    assert scene.requests[-1].texts == {"a.py": None}
    assert editor.messages("a.py") == ["on disk again"]


# -- modes -------------------------------------------------------------------------------------------------------


async def test_mode_off_publishes_no_findings_and_still_the_marks(scene: Scene):
    scene.put("a.py", "x\n")
    editor = scene.editor()
    scene.hub.judged("checker", "check", ["a.py"], [finding()])
    scene.hub.mark("1", {"a.py": Mark(1, 1, "may I", "approval", {})})
    await scene.hub.settled()
    scene.hub.configure("off")
    await scene.hub.settled()
    assert editor.messages("a.py") == ["may I"]
    scene.hub.judged("checker", "check", ["b.py"], [finding(path="b.py")])
    await scene.hub.settled()
    assert "b.py" not in editor.shown


async def test_mode_open_judges_every_open_document(scene: Scene):
    scene.hub.configure("open")
    scene.put("a.py", "x\n")
    editor = scene.editor()
    scene.answers = [Judgement("checker", "check", ("a.py",), (finding("seen on opening"),))]
    scene.buffers.opened(editor, "a.py", "x\n", 1, "utf-16")
    await scene.rejudged()
    assert scene.requests == [JudgeRequest({"a.py": None}, None)]
    assert editor.messages("a.py") == ["seen on opening"]


async def test_an_editor_that_pulls_is_not_pushed_to(scene: Scene):
    scene.put("a.py", "x\n")
    pulling, pushed = scene.editor(pulls=True), scene.editor()
    before = scene.hub.version("a.py")
    scene.hub.judged("checker", "check", ["a.py"], [finding()])
    await scene.hub.settled()
    assert pulling.sent == []
    assert pulling.refreshed == 1
    assert pushed.messages("a.py") == ["undefined name"]
    assert [entry.message for entry in await scene.hub.pull(pulling, "a.py")] == ["undefined name"]
    assert scene.hub.version("a.py") != before
    assert await scene.hub.pull(pulling, "unknown.py") == []


# -- size --------------------------------------------------------------------------------------------------------


async def test_more_than_a_frame_holds_is_cut_and_said(scene: Scene):
    scene.put("a.py", "x\n")
    editor = scene.editor(limit=20_000)
    scene.hub.judged("checker", "check", ["a.py"], [finding(f"number {number}") for number in range(200)])
    await scene.hub.settled()
    assert editor.messages("a.py")[-1] == "175 more diagnostics of this file are too many to show at once"


async def publish_ten_thousand(scene: Scene) -> float:
    """The CPU seconds that the loop's thread takes to publish 10,000 diagnostics in 100 files to two editors."""
    lines = "".join(f"value_{number} = name_{number}  # é\n" for number in range(100))
    found: list[Diagnostic] = []
    for number in range(100):
        scene.put(f"src/f{number}.py", lines)
        for line in range(1, 101):
            place = {"line": line, "end_line": line, "column": 11, "end_column": 18}
            found.append(finding(f"{number} {line} is not defined", f"src/f{number}.py", **place))
    sent: list[bytes] = []
    editors = [scene.editor("utf-8"), scene.editor("utf-16")]
    for editor in editors:
        editor.send = sent.append  # type: ignore[method-assign]
    await scene.hub.settled()
    started = time.thread_time()
    scene.hub.judged("checker", "check", [f"src/f{number}.py" for number in range(100)], found)
    await scene.hub.settled()
    spent = time.thread_time() - started
    assert len(sent) == 200
    for editor in editors:
        scene.hub.detach(editor)
    scene.hub.judged("checker", "check", [f"src/f{number}.py" for number in range(100)], [])
    await scene.hub.settled()
    return spent


async def test_ten_thousand_diagnostics_for_two_editors(scene: Scene):
    """A loose bound, for a machine that does other things; the budget itself is measured below."""
    assert await publish_ten_thousand(scene) < 0.5


@pytest.mark.bench
async def test_ten_thousand_diagnostics_within_the_budget(scene: Scene):
    best = min([await publish_ten_thousand(scene) for _ in range(10)])
    print(f"10,000 diagnostics to two editors: {best * 1000:.1f} ms of the loop (budget 50)")
    assert best < 0.05
