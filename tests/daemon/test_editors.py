"""Editors over a real socket: approvals by code action, two at once, what each is told, how they come and go."""

from __future__ import annotations

import asyncio
import gc
import tomllib
import weakref
from typing import Any

import pytest

from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.daemon.editor_session import EditorSession
from devtools_lsp.pipeline.rule_tables import read_rule
from devtools_lsp.ports import LandedFile, PlanIdentity

LITERALS = {
    "textDocument": {"codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["quickfix"]}}}}
}
TITLES = ["Approve", "Deny", "Remember and approve", "Show diff"]


def titled(actions: list[dict[str, Any]], title: str) -> dict[str, Any]:
    (found,) = [action for action in actions if action["title"].startswith(f"{title}:")]
    return found


async def mark_on(daemon: Any, editor: Any, path: str, eventually: Any) -> dict[str, Any]:
    await eventually(lambda: len(editor.marks(path)) == 1, "the mark")
    await daemon.hub.settled()
    return editor.marks(path)[0]


async def test_capabilities_are_what_the_daemon_does(daemon: Any):
    editor = await daemon.editor(["utf-32", "utf-8"])
    offered = editor.capabilities
    assert offered["positionEncoding"] == "utf-32"
    assert offered["textDocumentSync"] == {"openClose": True, "change": 2, "save": {"includeText": False}}
    assert offered["codeActionProvider"] == {"codeActionKinds": ["quickfix"]}
    assert offered["executeCommandProvider"]["commands"] == [
        "devtools.approve",
        "devtools.deny",
        "devtools.rememberAndApprove",
        "devtools.showDiff",
    ]
    assert offered["workspace"]["textDocumentContent"] == {"schemes": ["devtools-diff"]}
    assert "diagnosticProvider" not in offered, "pull only when configured"
    assert (await (await daemon.connect()).initialize())["capabilities"]["positionEncoding"] == "utf-16"


async def test_approve_by_code_action(daemon: Any, eventually: Any):
    daemon.gate.put({"src/a.py": "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"})
    editor = await daemon.editor(capabilities=LITERALS)
    asked = daemon.gate.edit("src/a.py", "one\ntwo\nthree\nfour\nfive\n6\nseven\n")
    approval = await daemon.gate.waiting()
    mark = await mark_on(daemon, editor, "src/a.py", eventually)
    assert (mark["severity"], mark["source"], mark["code"]) == (3, "devtools-lsp", "approval")
    assert mark["data"] == {"approvalId": approval.id, "engineId": None, "outOfScope": False}
    assert mark["range"] == {"start": {"line": 2, "character": 0}, "end": {"line": 6, "character": 5}}
    assert mark["message"].startswith("claude wants to edit src/a.py (+1 -1)")
    actions = await editor.actions("src/a.py", mark)
    assert [action["title"].split(":")[0] for action in actions] == TITLES
    assert all(action["kind"] == "quickfix" for action in actions)
    assert all(action["diagnostics"][0]["data"]["approvalId"] == approval.id for action in actions)
    assert titled(actions, "Remember and approve")["title"].split(": ", 1)[1] == approval.remember.name
    command = titled(actions, "Approve")["command"]
    assert (command["command"], command["arguments"]) == ("devtools.approve", [{"id": approval.id}])
    result = await editor.run(command)
    assert result == {"id": approval.id, "status": "approved", "applied": True, "by": "editor"}
    decision = await asked.task
    assert (decision.approved, decision.by, decision.person) == (True, "editor", True)
    await eventually(lambda: editor.marks("src/a.py") == [], "the mark to go")
    assert editor.told("devtools/approvalResolved") == [{"id": approval.id, "status": "approved", "by": "editor"}]


async def test_deny_with_a_note_and_remember_by_command(daemon: Any, eventually: Any):
    daemon.gate.put({"a.py": "one\n"})
    editor = await daemon.editor(capabilities=LITERALS)
    asked = daemon.gate.edit("a.py", "two\n")
    approval = await daemon.gate.waiting()
    result = await editor.run({"command": "devtools.deny", "arguments": [{"id": approval.id, "note": "use the API"}]})
    assert result["status"] == "denied"
    assert (await asked.task).note == "use the API"
    second = daemon.gate.edit("a.py", "two\n")
    approval = await daemon.gate.waiting()
    result = await editor.run({"command": "devtools.rememberAndApprove", "arguments": [{"id": approval.id}]})
    assert (await second.task).approved
    # What would keep it for good is a rule that the configuration takes, and the person is shown it.
    (table,) = tomllib.loads(result["rule"])["gate"]["rules"]
    assert read_rule(table).agent == "claude"
    assert table["paths"] == ["*"]
    assert any(result["rule"] in told["message"] for told in editor.told("window/showMessage"))
    assert (await daemon.gate.edit("a.py", "three\n").task).by == "rule"


async def test_a_file_that_is_opened_is_told_once_more_what_there_is_and_that_there_is_nothing(
    daemon: Any, eventually: Any
):
    """Some clients drop what was published of a closed file, others keep it when it is opened again."""
    daemon.gate.put({"a.py": "one\n", "b.py": "one\n"})
    editor = await daemon.editor()
    daemon.gate.edit("a.py", "two\n")
    await mark_on(daemon, editor, "a.py", eventually)

    def published(path: str) -> list[int]:
        told = editor.told("textDocument/publishDiagnostics")
        return [len(params["diagnostics"]) for params in told if params["uri"] == editor.uri(path)]

    before = len(published("a.py"))
    editor.open("a.py")
    await eventually(lambda: len(published("a.py")) > before)
    assert published("a.py")[-1] == 1
    editor.open("b.py")
    await eventually(lambda: published("b.py") == [0])


async def test_an_editor_without_action_literals_gets_commands(daemon: Any, eventually: Any):
    daemon.gate.put({"a.py": "one\n"})
    editor = await daemon.editor(capabilities={"textDocument": {"codeAction": {}}})
    asked = daemon.gate.edit("a.py", "two\n")
    mark = await mark_on(daemon, editor, "a.py", eventually)
    actions = await editor.actions("a.py", mark)
    assert next(action["command"] for action in actions) == "devtools.approve"
    await editor.run(titled(actions, "Approve"))
    assert (await asked.task).approved


async def test_code_actions_only_where_they_are_wanted(daemon: Any, eventually: Any):
    daemon.gate.put({"a.py": "".join(f"{number}\n" for number in range(50)), "b.py": "x\n"})
    editor = await daemon.editor(capabilities=LITERALS)
    daemon.gate.edit("a.py", "".join(f"{number}\n" for number in range(50)).replace("25\n", "x\n"))
    mark = await mark_on(daemon, editor, "a.py", eventually)
    assert await editor.actions("a.py", mark, only=["refactor"]) == []
    assert len(await editor.actions("a.py", mark, only=["quickfix"])) == 4
    elsewhere = {"range": {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 0}}}
    params = {"textDocument": {"uri": editor.uri("a.py")}, "context": {"diagnostics": []}}
    assert await editor.request("textDocument/codeAction", {**params, **elsewhere}) == []
    cursor = {"range": {"start": {"line": 25, "character": 0}, "end": {"line": 25, "character": 0}}}
    assert len(await editor.request("textDocument/codeAction", {**params, **cursor})) == 4
    other = {**params, "textDocument": {"uri": "untitled:x"}, **cursor}
    assert await editor.request("textDocument/codeAction", other) == []


async def test_two_editors_of_different_encodings_one_approval(daemon: Any, eventually: Any):
    """D10, and the first answer decides for all."""
    daemon.gate.put({"a.py": 'x = "😀"\ny = 1\n'})
    one, two = await daemon.editor(["utf-8"]), await daemon.editor(["utf-16"])
    finding = Diagnostic("a.py", "error", "bad name", "checker", False, "E1", 1, 8, 1, 9)
    daemon.hub.judged("checker", "check", ["a.py"], [finding])
    asked = daemon.gate.edit("a.py", 'x = "🎉"\ny = 1\n')
    approval = await daemon.gate.waiting()
    await eventually(lambda: len(one.shown.get("a.py", [])) == 2 and len(two.shown.get("a.py", [])) == 2)
    await daemon.hub.settled()
    starts = [[entry["range"]["start"]["character"] for entry in editor.shown["a.py"]] for editor in (one, two)]
    assert starts == [[10, 0], [8, 0]]
    assert [entry["source"] for entry in one.shown["a.py"]] == ["checker", "devtools-lsp"]
    await one.run({"command": "devtools.approve", "arguments": [{"id": approval.id}]})
    assert (await asked.task).approved
    late = await two.run({"command": "devtools.deny", "arguments": [{"id": approval.id}]})
    assert late == {"id": approval.id, "status": "approved", "applied": False, "by": "editor"}
    await eventually(lambda: two.told("window/showMessage"))
    assert "Too late" in two.told("window/showMessage")[0]["message"]
    for editor in (one, two):
        await eventually(lambda editor=editor: editor.marks("a.py") == [])
        assert len(editor.told("devtools/approvalResolved")) == 1


async def test_everything_about_an_approval_is_announced(daemon: Any, eventually: Any):
    daemon.gate.put({"a.py": "one\n"})
    editor = await daemon.editor()
    judged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    error = Diagnostic("a.py", "error", "undefined name", "checker", False, line=1)
    daemon.gate.edit("a.py", "two\n", consequences=judged, introduced=[error])
    approval = await daemon.gate.waiting()
    await eventually(lambda: editor.told("devtools/approvalRequested"))
    requested = editor.told("devtools/approvalRequested")[0]
    assert requested["id"] == approval.id
    assert requested["introduced"] == []
    assert requested["pending"] == [{"reason": "the checkers have not answered yet"}]
    mark = await mark_on(daemon, editor, "a.py", eventually)
    assert "not judged" in mark["message"]
    judged.set_result(None)
    await eventually(lambda: editor.told("devtools/approvalUpdated"))
    assert editor.told("devtools/approvalUpdated")[0]["introduced"][0]["message"] == "undefined name"
    await eventually(lambda: "introduces 1: a.py:1 error: undefined name" in editor.marks("a.py")[0]["message"])


async def test_a_command_is_asked_about_in_a_message(daemon: Any, eventually: Any):
    editor = await daemon.editor()
    choices = iter([{"title": "Show diff"}, {"title": "Approve"}])
    editor.answers["window/showMessageRequest"] = lambda params: next(choices)
    asked = daemon.gate.ask("bash", args={"command": "rm -rf build"}, targets=[])
    decision = await asked.task
    assert (decision.approved, decision.by) == (True, "editor")
    method, params = editor.asked[0]
    assert method == "window/showMessageRequest"
    assert params["message"].startswith("claude wants to run: rm -rf build")
    # Never approving first: a client may preselect the first choice.
    assert [action["title"] for action in params["actions"]] == ["Deny", "Approve", "Remember and approve"]


async def test_an_addition_is_asked_about_in_a_message_with_its_diff(daemon: Any, eventually: Any):
    editor = await daemon.editor()
    choices = iter([{"title": "Show diff"}, {"title": "Deny"}])
    editor.answers["window/showMessageRequest"] = lambda params: next(choices)
    asked = daemon.gate.ask("write_file", [daemon.gate.change("new.py", "print()\n")])
    assert not (await asked.task).approved
    shown = editor.told("devtools/showDiff")[0]
    assert "+print()" in shown["diff"]
    assert shown["text"].startswith("# claude wants to write new.py (+1 -0)")
    # A client that knows neither this notification nor how to open a document reads it in a message.
    assert shown["text"] in [told["message"] for told in editor.told("window/showMessage")]
    # The next question would stand in its place, and holds it, too.
    assert [params["message"] == shown["text"] for _, params in editor.asked] == [False, True]
    assert editor.marks("new.py") == []


async def test_a_dismissed_message_leaves_the_approval_waiting_and_says_so(daemon: Any, eventually: Any):
    editor = await daemon.editor()
    editor.answers["window/showMessageRequest"] = lambda params: None
    daemon.gate.ask("bash", args={"command": "ls"}, targets=[])
    approval = await daemon.gate.waiting()
    await eventually(lambda: editor.told("window/showMessage"))
    assert "Still waiting" in editor.told("window/showMessage")[0]["message"]
    assert [item["id"] for item in (await editor.request("devtools/approvals"))["items"]] == [approval.id]


async def test_a_question_answered_elsewhere_is_taken_back(daemon: Any, eventually: Any):
    first, second = await daemon.editor(), await daemon.editor()
    asked = daemon.gate.ask("bash", args={"command": "ls"}, targets=[])
    approval = await daemon.gate.waiting()
    await eventually(lambda: first.asked and second.asked)
    await second.request("devtools/decide", {"id": approval.id, "approve": False, "note": "no"})
    assert (await asked.task).note == "no"
    await eventually(lambda: first.told("$/cancelRequest"))
    first.send({"id": first.told("$/cancelRequest")[0]["id"], "result": {"title": "Approve"}})
    assert (await first.request("devtools/approvals"))["items"] == [], "a late answer does nothing"
    assert first.told("window/showMessage") == []


async def test_an_expiry_is_said(daemon: Any, eventually: Any):
    daemon.gate.put({"a.py": "one\n"})
    editor = await daemon.editor()
    asked = daemon.gate.edit("a.py", "two\n")
    await daemon.gate.waiting()
    await eventually(lambda: daemon.gate.clock.sleeping)
    await daemon.gate.clock.advance(301)
    assert (await asked.task).reason == "expired"
    await eventually(lambda: editor.told("window/showMessage"))
    assert "Nobody answered in time" in editor.told("window/showMessage")[0]["message"]
    assert editor.told("devtools/approvalResolved")[0]["status"] == "expired"


# -- the diff ----------------------------------------------------------------------------------------------------


async def test_show_diff_as_a_document_of_ours(daemon: Any, eventually: Any):
    daemon.gate.put({"a.py": "one\n"})
    capabilities = {"window": {"showDocument": {"support": True}}, "workspace": {"textDocumentContent": {}}}
    editor = await daemon.editor(capabilities=capabilities)
    editor.answers["window/showDocument"] = lambda params: {"success": True}
    daemon.gate.edit("a.py", "two\u200b\n")
    approval = await daemon.gate.waiting()
    result = await editor.run({"command": "devtools.showDiff", "arguments": [{"id": approval.id}]})
    assert result == {"id": approval.id, "shown": "content"}
    uri = editor.asked[0][1]["uri"]
    text = (await editor.request("workspace/textDocumentContent", {"uri": uri}))["text"]
    assert "+two" in text
    assert "# invisible: a.py:1:4 U+200B ZERO WIDTH SPACE" in text
    error = await editor.error("workspace/textDocumentContent", {"uri": "devtools-diff:/nonsense.diff"})
    assert error["data"]["reason"] == "notFound"


async def test_show_diff_as_a_file_that_goes_when_it_is_decided(daemon: Any, eventually: Any):
    daemon.gate.put({"a.py": "one\n"})
    editor = await daemon.editor(capabilities={"window": {"showDocument": {"support": True}}})
    editor.answers["window/showDocument"] = lambda params: {"success": True}
    daemon.gate.edit("a.py", "two\n")
    approval = await daemon.gate.waiting()
    await editor.run({"command": "devtools.showDiff", "arguments": [{"id": approval.id}]})
    path = daemon.scratch / f"{approval.id}.diff"
    assert editor.asked[0][1]["uri"] == path.as_uri()
    assert "+two" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    await daemon.gate.decide(approval.id)
    await eventually(lambda: not path.exists())


@pytest.mark.parametrize("capabilities", [{}, {"window": {"showDocument": {"support": True}}}])
async def test_show_diff_falls_back_to_a_notification(daemon: Any, eventually: Any, capabilities: dict[str, Any]):
    daemon.gate.put({"a.py": "one\n"})
    editor = await daemon.editor(capabilities=capabilities)
    editor.answers["window/showDocument"] = lambda params: {"success": False}
    daemon.gate.edit("a.py", "two\n")
    approval = await daemon.gate.waiting()
    result = await editor.run({"command": "devtools.showDiff", "arguments": [{"id": approval.id}]})
    assert result["shown"] == "message"
    assert "+two" in editor.told("devtools/showDiff")[0]["diff"]


async def test_an_editor_with_its_own_diff_view_gets_the_texts(daemon: Any, eventually: Any):
    daemon.gate.put({"a.py": "one\n"})
    editor = await daemon.editor(
        capabilities={"window": {"showDocument": {"support": True}}},
        initializationOptions={"devtools": {"showDiff": True}},
    )
    daemon.gate.edit("a.py", "two\n")
    approval = await daemon.gate.waiting()
    await editor.run({"command": "devtools.showDiff", "arguments": [{"id": approval.id}]})
    assert editor.told("devtools/showDiff")[0]["id"] == approval.id
    document = await editor.request("devtools/diff", {"id": approval.id})
    (file,) = document["files"]
    hunks = file.pop("hunks")
    assert file == {"path": "a.py", "kind": "modified", "before": "one\n", "after": "two\n"}
    assert [hunk["id"] for hunk in hunks] == [hunk.id for hunk in approval.shown.files[0].hunks]


# -- deciding from the payload alone -----------------------------------------------------------------------------


async def test_a_foreign_client_decides_from_the_payload_alone(daemon: Any, eventually: Any):
    """Drop one of three hunks, edit another, approve: the decision says exactly that."""
    lines = "".join(f"line {number}\n" for number in range(1, 41))
    daemon.gate.put({"a.txt": lines})
    editor = await daemon.editor()
    changed = lines.replace("line 2\n", "two\n").replace("line 20\n", "twenty\n").replace("line 39\n", "")
    asked = daemon.gate.edit("a.txt", changed)
    await eventually(lambda: editor.told("devtools/approvalRequested"))
    payload = editor.told("devtools/approvalRequested")[0]
    first, second, _third = payload["files"][0]["hunks"]
    answer = await editor.request(
        "devtools/decide",
        {
            "id": payload["id"],
            "approve": True,
            "drop": [first["id"]],
            "edited": [{"hunkId": second["id"], "text": second["text"].replace("+twenty", "+TWENTY")}],
            "note": "looks good otherwise",
        },
    )
    assert answer["applied"]
    decision = await asked.task
    assert (decision.dropped, decision.note) == ((first["id"],), "looks good otherwise")
    assert "+TWENTY" in decision.edited[0].text


async def test_an_agents_own_connection_is_refused(daemon: Any, eventually: Any):
    daemon.gate.put({"a.py": "one\n"})
    await daemon.editor()
    daemon.gate.edit("a.py", "two\n")
    approval = await daemon.gate.waiting()
    agent = await daemon.connect()
    await agent.request("devtools/initialize", {"client": {"name": "claude"}})
    error = await agent.error("devtools/decide", {"id": approval.id, "approve": True})
    assert (error["code"], error["data"]["code"], error["data"]["reason"]) == (-32050, "E_DEV_POLICY", "notDecider")
    assert approval.status == "pending"


# -- coming and going --------------------------------------------------------------------------------------------


async def test_a_killed_editor_loses_nothing_and_the_next_one_is_offered_it(daemon: Any, eventually: Any):
    daemon.gate.put({"a.py": "one\n"})
    editor = await daemon.editor()
    asked = daemon.gate.edit("a.py", "two\n")
    daemon.gate.ask("bash", args={"command": "ls"}, targets=[])
    await daemon.gate.waiting(2)
    await mark_on(daemon, editor, "a.py", eventually)
    before = editor.told("devtools/approvalRequested")[0]
    await editor.close()
    await eventually(lambda: len(daemon.editors.attached) == 0)
    assert not asked.task.done()
    again = await daemon.editor()
    await eventually(lambda: len(again.told("devtools/approvalRequested")) == 2 and again.asked)
    replayed = again.told("devtools/approvalRequested")[0]
    assert (replayed["id"], replayed["files"]) == (before["id"], before["files"]), "the same id with the same diff"
    await mark_on(daemon, again, "a.py", eventually)
    await again.run({"command": "devtools.approve", "arguments": [{"id": before["id"]}]})
    assert (await asked.task).approved


async def test_exit_of_one_editor_leaves_the_others(daemon: Any, eventually: Any):
    leaving, staying = await daemon.editor(), await daemon.editor()
    assert await leaving.request("shutdown") is None
    error = await leaving.error("textDocument/codeAction", {})
    assert error["code"] == -32600
    leaving.notify("exit")
    await eventually(lambda: leaving.ended)
    await eventually(lambda: len(daemon.editors.attached) == 1)
    assert (await staying.request("devtools/approvals"))["items"] == []


async def test_an_editor_that_shut_down_is_nobody(daemon: Any, eventually: Any):
    daemon.gate.put({"a.py": "one\n"})
    editor = await daemon.editor()
    await editor.request("shutdown")
    assert (await daemon.gate.edit("a.py", "two\n").task).reason == "noDecider"


async def test_an_editor_that_never_reads_costs_the_others_nothing(daemon: Any, eventually: Any):
    text = "".join(f"{number:07d} {'x' * 40}\n" for number in range(60_000))
    deaf, well = await daemon.editor(buffered_bytes=65536), await daemon.editor()
    deaf._reading.cancel()
    for _ in range(12):
        asked = daemon.gate.ask("write_file", [daemon.gate.change("big.txt", text)])
        approval = await daemon.gate.waiting()
        await well.request("devtools/decide", {"id": approval.id, "approve": False})
        assert not (await asked.task).approved
    await eventually(lambda: len(daemon.editors.attached) == 1, "the deaf one to be cut off", timeout_s=30)


async def test_a_connection_leaves_nothing_behind(daemon: Any, eventually: Any):
    """pygls' own caches would keep every session alive."""
    sessions: list[weakref.ref[EditorSession]] = []
    opened = daemon.editors.open

    async def remember(channel: Any) -> EditorSession:
        session = await opened(channel)
        sessions.append(weakref.ref(session))
        return session

    daemon.editors.open = remember
    for _ in range(3):
        editor = await daemon.editor()
        editor.open("a.py", "x\n")
        await editor.request("devtools/approvals")
        await editor.close()
        await eventually(lambda: not daemon.connections)

    def all_gone() -> bool:
        gc.collect()
        return all(session() is None for session in sessions)

    await eventually(all_gone, "sessions to be collected")
    assert len(sessions) == 3


# -- protocol faults ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("textDocument/hover", {"x": 1}, -32601),
        ("no/such", {}, -32601),
        ("textDocument/codeAction", {"textDocument": 3}, -32602),
        ("textDocument/codeAction", None, -32602),
        ("initialize", {"processId": None, "rootUri": None, "capabilities": {}}, -32600),
        ("workspace/executeCommand", {"command": "devtools.format"}, -32601),
        ("workspace/executeCommand", {"command": "devtools.approve"}, -32602),
        ("workspace/executeCommand", {"command": "devtools.approve", "arguments": ["x"]}, -32602),
        ("workspace/executeCommand", {"command": "devtools.approve", "arguments": [{"id": "nonsense"}]}, -32050),
    ],
)
async def test_every_request_gets_its_one_answer(daemon: Any, method: str, params: Any, code: int):
    """I13: malformed, unknown and misplaced requests included."""
    editor = await daemon.editor()
    error = await editor.error(method, params)
    assert error["code"] == code
    assert "Traceback" not in str(error)
    assert (await editor.request("devtools/approvals"))["items"] == []


async def test_a_failure_of_ours_is_an_internal_error_without_a_traceback(daemon: Any, monkeypatch: Any, caplog: Any):
    editor = await daemon.editor()

    def broken(*_args: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(EditorSession, "execute", broken)
    error = await editor.error("workspace/executeCommand", {"command": "devtools.approve", "arguments": []})
    assert error["code"] == -32603
    assert "secret" not in str(error)
    assert "secret detail" in caplog.text


async def test_cancelling_reaches_what_runs(daemon: Any, eventually: Any, monkeypatch: Any):
    editor = await daemon.editor()
    started, ended = asyncio.Event(), asyncio.Event()

    async def slow(*_args: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(EditorSession, "execute", slow)
    request_id, future = editor.start("workspace/executeCommand", {"command": "devtools.approve", "arguments": []})
    await started.wait()
    editor.notify("$/cancelRequest", {"id": request_id})
    async with asyncio.timeout(10):
        answer = await future
        await ended.wait()
    assert answer["error"]["code"] == -32800
    started.clear()
    ended.clear()
    editor.start("workspace/executeCommand", {"command": "devtools.approve", "arguments": []})
    await started.wait()
    await editor.close()
    async with asyncio.timeout(10):
        await ended.wait()


async def test_bookkeeping_stays_flat(daemon: Any, eventually: Any):
    editor = await daemon.editor()
    session = next(iter(daemon.editors._sessions))
    for number in range(300):
        editor.open(f"f{number}.py", "x\n")
        editor.notify("textDocument/didClose", {"textDocument": {"uri": editor.uri(f"f{number}.py")}})
        editor.notify("$/setTrace", {"value": "off"})
        await editor.error("workspace/executeCommand", {"command": "nonsense"})
    protocol = session._server.editor
    assert not protocol._request_futures
    assert not protocol._result_types
    assert not protocol._unanswered
    assert daemon.buffers.open_paths() == []


# -- documents, landed, pull -------------------------------------------------------------------------------------


async def test_unsaved_text_is_known_as_it_is_typed(daemon: Any, eventually: Any):
    daemon.gate.put({"ä.py": "a😀b\r\nsecond\r\n"})
    editor = await daemon.editor(["utf-16"])
    editor.open("ä.py")
    document = {"uri": editor.uri("ä.py"), "version": 2}
    change = {"range": {"start": {"line": 0, "character": 3}, "end": {"line": 0, "character": 4}}, "text": "B"}
    editor.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})
    await eventually(lambda: daemon.buffers.dirty(["ä.py"]) == ["ä.py"])
    assert daemon.buffers.unsaved("ä.py", None).text == "a😀B\nsecond\n"
    editor.notify("textDocument/didSave", {"textDocument": {"uri": document["uri"]}})
    await eventually(lambda: daemon.buffers.dirty(["ä.py"]) == [])
    editor.open("outside", "x")
    editor.notify(
        "textDocument/didOpen", {"textDocument": {"uri": "untitled:1", "languageId": "x", "version": 1, "text": ""}}
    )
    await editor.request("devtools/approvals")
    assert daemon.buffers.open_paths() == ["outside", "ä.py"]
    await editor.close()
    await eventually(lambda: daemon.buffers.open_paths() == [])


async def test_landed_edits_are_announced(daemon: Any, eventually: Any):
    editor = await daemon.editor()
    files = [LandedFile("b.py", "renamed", "a.py", ((3, 5), (9, 9))), LandedFile("gone.py", "deleted")]
    daemon.editors.landed(PlanIdentity("p1", "claude"), files)
    await eventually(lambda: editor.told("devtools/landed"))
    assert editor.told("devtools/landed")[0] == {
        "plan": "p1",
        "agent": "claude",
        "files": [
            {
                "path": "b.py",
                "kind": "renamed",
                "from": "a.py",
                "ranges": [{"start": 3, "end": 5}, {"start": 9, "end": 9}],
            },
            {"path": "gone.py", "kind": "deleted", "ranges": []},
        ],
    }


async def test_pull_is_offered_only_when_configured_and_nothing_is_shown_twice(daemon: Any, eventually: Any):
    daemon.gate.put({"a.py": "one\n", "b.py": "x\n"})
    daemon.editors.configure(pull=True)
    capabilities = {
        "textDocument": {"diagnostic": {}},
        "workspace": {"diagnostics": {"refreshSupport": True}},
    }
    pulling = await daemon.editor(capabilities=capabilities)
    pushed = await daemon.editor()
    assert pulling.capabilities["diagnosticProvider"] == {
        "identifier": "devtools-lsp",
        "interFileDependencies": True,
        "workspaceDiagnostics": True,
    }
    assert "diagnosticProvider" not in pushed.capabilities, "an editor that cannot pull is pushed to"
    pulling.answers["workspace/diagnostic/refresh"] = lambda params: None
    finding = Diagnostic("a.py", "error", "bad", "checker", False, "E1", 1, 1, 1, 4)
    daemon.hub.judged("checker", "check", ["a.py"], [finding])
    await eventually(lambda: pushed.shown.get("a.py") and pulling.asked)
    assert pulling.shown == {}
    report = await pulling.request("textDocument/diagnostic", {"textDocument": {"uri": pulling.uri("a.py")}})
    assert report["kind"] == "full"
    assert report["items"][0]["data"] == {"engineId": "checker", "outOfScope": False}
    again = {"textDocument": {"uri": pulling.uri("a.py")}, "previousResultId": report["resultId"]}
    assert (await pulling.request("textDocument/diagnostic", again))["kind"] == "unchanged"
    everything = await pulling.request("workspace/diagnostic", {"previousResultIds": []})
    assert [item["uri"] for item in everything["items"]] == [pulling.uri("a.py")]
    daemon.hub.judged("checker", "check", ["a.py"], [])
    await daemon.hub.settled()
    known = [{"uri": item["uri"], "value": item["resultId"]} for item in everything["items"]]
    cleared = await pulling.request("workspace/diagnostic", {"previousResultIds": known})
    assert cleared["items"][0]["items"] == []
    assert (await pulling.error("textDocument/diagnostic", {"nonsense": 1}))["code"] == -32602


async def test_a_thousand_pending_are_shown_and_decided(daemon: Any, eventually: Any):
    daemon.gate.put({f"f{number}.py": "one\n" for number in range(1000)})
    editor = await daemon.editor()
    for number in range(1000):
        daemon.gate.edit(f"f{number}.py", "two\n")
    await eventually(lambda: sum(bool(editor.marks(path)) for path in list(editor.shown)) == 1000, timeout_s=30)
    items = (await editor.request("devtools/approvals"))["items"]
    assert len(items) == 1000
    late = await daemon.editor()
    await eventually(lambda: len(late.told("devtools/approvalRequested")) == 1000, timeout_s=30)
    answers = await asyncio.gather(
        *(editor.request("devtools/decide", {"id": item["id"], "approve": True}) for item in items)
    )
    assert all(answer["applied"] for answer in answers)
    await eventually(lambda: not any(editor.marks(path) for path in editor.shown), timeout_s=30)
