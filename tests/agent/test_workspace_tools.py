"""The workspace surface: sessions, gate steps, and real searches and commands over a real root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.agent.forge import Invocation, ToolAnswer
from devtools_lsp.agent.sessions import SessionMemory
from devtools_lsp.agent.shell import ShellSettings
from devtools_lsp.agent.workspace_tools import WorkspaceTools
from devtools_lsp.errors import DevToolsError
from devtools_lsp.ports import Cancellation, Decision
from tests.contract.bench import Scene


class Desk:
    def __init__(self, scene: Scene, shell: ShellSettings | None = None) -> None:
        self.scene = scene
        self.memory = SessionMemory()
        self.shell = shell
        self.denied: set[str] = set()

    async def __call__(self, tool: str, session: str = "s", progress: Any = None, **arguments: Any) -> ToolAnswer:
        tools = WorkspaceTools(
            self.scene.pipeline, memory=self.memory, deny=lambda path: path in self.denied, shell=self.shell
        )
        who = Invocation("agent", session, Cancellation())
        return await tools.tools().find(tool).call(arguments, who, progress)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    root = tmp_path / "root"
    root.mkdir()
    scene = Scene(root)
    yield Desk(scene, ShellSettings(sandbox="none"))
    if scene.file_system is not None:
        scene.file_system.close()


async def refused(work, code: str) -> DevToolsError:
    with pytest.raises(DevToolsError) as caught:
        await work
    assert caught.value.code == code, caught.value.message
    return caught.value


async def test_read_file_numbers_lines_and_says_how_to_go_on(desk: Desk):
    desk.scene.put({"a.txt": "one\n\ttwo\nthree\n"})
    answer = await desk("read_file", path="a.txt", offset=1, limit=2)
    assert answer.content == "     1\tone\n     2\t\ttwo\n(1 more lines; go on with offset 3)\n"
    assert answer.data == {"path": "a.txt", "start": 1, "end": 2, "totalLines": 3}
    assert [(q["step"], q["args"]) for q in desk.scene.gate.asked] == [
        ("acquire", {}),
        ("read_lines", {"path": "a.txt", "offset": 1, "limit": 2}),
    ]


async def test_edit_file_wants_the_file_to_have_been_read_by_this_session(desk: Desk):
    desk.scene.put({"a.txt": "one\n"})
    await refused(desk("edit_file", path="a.txt", old_string="one", new_string="1"), "E_DEV_NOT_READ")
    await desk("read_file", path="a.txt")
    await refused(desk("edit_file", "other", path="a.txt", old_string="one", new_string="1"), "E_DEV_NOT_READ")
    desk.scene.gate.questions.clear()
    answer = await desk("edit_file", path="./a.txt", old_string="one", new_string="1")
    assert desk.scene.text("a.txt") == "1\n"
    assert answer.data == {"path": "a.txt", "changedSinceRead": False}
    assert desk.scene.gate.steps == ["acquire", "edit"]
    assert desk.scene.gate.asked[1]["args"] == {
        "path": "./a.txt",
        "old_string": "one",
        "new_string": "1",
        "persists": True,
    }
    await desk("edit_file", path="a.txt", old_string="1", new_string="2")
    assert desk.scene.text("a.txt") == "2\n"


async def test_edit_file_replaces_everywhere_only_when_told(desk: Desk):
    desk.scene.put({"a.txt": "x\r\nx\r\n"})
    await desk("read_file", path="a.txt")
    error = await refused(desk("edit_file", path="a.txt", old_string="x", new_string="y"), "E_DEV_STEP_FAILED")
    assert error.reason == "ambiguous"
    await desk("edit_file", path="a.txt", old_string="x\n", new_string="y\n", replace_all=True)
    assert desk.scene.disk()["a.txt"] == b"y\r\ny\r\n"


async def test_a_file_that_changed_since_is_edited_where_the_text_still_matches(desk: Desk):
    desk.scene.put({"a.txt": "one\ntwo\n"})
    await desk("read_file", path="a.txt")
    desk.scene.put({"a.txt": "zero\none\ntwo\n"})
    answer = await desk("edit_file", path="a.txt", old_string="one", new_string="1")
    assert answer.data == {"path": "a.txt", "changedSinceRead": True}
    assert desk.scene.text("a.txt") == "zero\n1\ntwo\n"


async def test_a_file_that_changed_since_and_does_not_match_shows_what_changed(desk: Desk):
    desk.scene.put({"a.txt": "one\ntwo\n"})
    await desk("read_file", path="a.txt")
    desk.scene.put({"a.txt": "uno\ntwo\n"})
    error = await refused(desk("edit_file", path="a.txt", old_string="one", new_string="1"), "E_DEV_CONFLICT")
    assert "-one\n+uno" in error.message
    assert desk.scene.text("a.txt") == "uno\ntwo\n"


async def test_touching_a_file_is_no_change(desk: Desk):
    """Content decides, never a time stamp."""
    desk.scene.put({"a.txt": "v=1\n"})
    await desk("read_file", path="a.txt")
    (desk.scene.root / "a.txt").touch()
    answer = await desk("edit_file", path="a.txt", old_string="v=1", new_string="v=2")
    assert answer.data is not None
    assert answer.data["changedSinceRead"] is False


async def test_write_file_creates_with_parents_and_asks_once(desk: Desk):
    answer = await desk("write_file", path="d/e/a.txt", content="x\n")
    assert desk.scene.disk() == {"d/e/a.txt": b"x\n"}
    assert answer.data == {"path": "d/e/a.txt", "kind": "added"}
    assert [(q["step"], q["targets"], q["mayCreate"]) for q in desk.scene.gate.asked] == [
        ("write_file", ["d/e/a.txt"], ["d/e/a.txt"])
    ]


async def test_write_file_over_an_existing_file_keeps_its_form(desk: Desk):
    desk.scene.put({"s.ps1": b"\xef\xbb\xbfWrite-Host 1\r\n"})
    await desk("write_file", path="s.ps1", content="Write-Host 2\n")
    assert desk.scene.disk()["s.ps1"] == b"\xef\xbb\xbfWrite-Host 2\r\n"
    await desk("write_file", path="s.ps1", content="\ufeffWrite-Host 3\n")
    assert desk.scene.disk()["s.ps1"] == b"\xef\xbb\xbfWrite-Host 3\r\n"
    assert desk.scene.gate.steps == ["acquire", "write_file"] * 2


async def test_write_file_over_what_changed_since_it_was_read_is_a_conflict(desk: Desk):
    desk.scene.put({"a.txt": "one\n"})
    await desk("read_file", path="a.txt")
    desk.scene.put({"a.txt": "theirs\n"})
    await refused(desk("write_file", path="a.txt", content="mine\n"), "E_DEV_CONFLICT")
    assert desk.scene.text("a.txt") == "theirs\n"


@pytest.mark.parametrize(
    "path", [".git/hooks/post-merge", ".GIT/config", ".VSCode/tasks.json", "devtools.toml", "link/x.txt", "../x"]
)
async def test_protected_places_are_refused_before_anybody_is_asked(desk: Desk, path: str):
    (desk.scene.root / "link").symlink_to("/tmp")
    await refused(desk("write_file", path=path, content="x"), "E_DEV_POLICY")
    assert desk.scene.gate.steps == []


async def test_search_asks_once_and_says_what_it_left_out(desk: Desk):
    desk.scene.put({".gitignore": "gen/\n", "gen/x.py": "needle\n", "a.py": "needle\n", "secret.py": "needle\n"})
    desk.denied.add("secret.py")
    found = await desk("grep", pattern="needle")
    assert found.content is not None
    assert "a.py" in found.content
    assert "gen/x.py" not in found.content
    assert "secret.py:" not in found.content
    named = await desk("glob", pattern="gen/*.py")
    assert named.data is not None
    assert named.data["paths"] == ["gen/x.py"]
    assert desk.scene.gate.steps == ["search", "search"]
    assert desk.scene.gate.asked[0]["args"] == {"pattern": "needle"}
    assert desk.scene.gate.asked[0]["targets"] == []


async def test_bash_streams_and_reports_what_it_changed(desk: Desk):
    desk.scene.put({"a.txt": "1\n"})
    told: list[tuple[str, str]] = []

    async def progress(stream: str, text: str) -> None:
        told.append((stream, text))

    answer = await desk("bash", progress=progress, command="echo hello; echo 2 > a.txt; echo new > b.txt; exit 3")
    assert told == [("stdout", "hello")] or told == [("stdout", "hello\n")]
    assert answer.data is not None
    assert answer.data["exitCode"] == 3
    assert [(change.path, change.kind) for change in answer.result.changes] == [
        ("a.txt", "modified"),
        ("b.txt", "added"),
    ]
    assert desk.scene.gate.asked[0]["step"] == "bash"
    assert desk.scene.gate.asked[0]["targets"] == []
    assert len(desk.scene.gate.asked) == 1


async def test_a_denied_command_does_not_run(desk: Desk):
    desk.scene.gate.answer = lambda _context, _call: Decision(approved=False, by="person", note="no shell today")
    error = await refused(desk("bash", command="touch made.txt"), "E_DEV_GATE_DECLINED")
    assert error.note == "no shell today"
    assert desk.scene.disk() == {}


async def test_read_only_and_a_shell_that_is_turned_off(desk: Desk):
    desk.shell = None
    await refused(desk("bash", command="true"), "E_DEV_STEP_UNAVAILABLE")
    desk.scene.options["read_only"] = True
    desk.scene._pipeline = None
    for tool in ("write_file", "edit_file", "bash"):
        await refused(desk(tool), "E_DEV_READ_ONLY")
