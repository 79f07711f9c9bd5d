"""Every answer has exactly the fields that the contract lists (SPEC 8.0.5, 3.12, 3.11, 9), in camelCase."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.place import ASK, RUFF, Agent, Place, edit_of, op, until

RESULT = (
    "plan diagnostics changes reads written unwritten unreadable normalized ok lineCountsAvailable atomic engines "
    "summary counts truncated artifact"
)
APPROVAL = (
    "id plan stepIndex step agent args targets mayCreate engines files normalized introduced resolved pending "
    "rememberText expiresAt"
)
HUNK = "id oldStart oldLines newStart newLines text"
RULES = """
[[gate.rules]]
step = "edit"
paths = ["free/**"]
decision = "allow"
name = "free"

[[gate.rules]]
step = "bash"
command = "echo *"
decision = "allow"
"""


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place]) -> Place:
    files = {"bad.py": "import os\nimport sys\n", "plain.txt": "one\ntwo\n", "free/f.txt": "a\n"}
    return new_place(ASK + RULES + RUFF, files)


@pytest.fixture(autouse=True)
def visit(place: Place) -> Iterator[None]:
    yield from place.visit()


@pytest.fixture
def agent(place: Place) -> Agent:
    return place.agent("shapes")


def fields(value: dict[str, Any], required: str, optional: str = "") -> None:
    """The value has all of the required fields, and of the optional ones those that have something to say."""
    assert set(required.split()) <= set(value), f"missing: {set(required.split()) - set(value)}"
    assert set(value) <= set(required.split()) | set(optional.split()), set(value) - set(required.split())
    assert not [name for name in optional.split() if value.get(name, "absent") is None]


def result_fields(result: dict[str, Any], more: str = "") -> None:
    fields(result, f"{RESULT} {more}", "delta decision")
    fields(result["counts"], "error warning info")
    fields(result["artifact"], "handle total")
    for entry in result["diagnostics"]:
        diagnostic_fields(entry)
    for change in result["changes"]:
        fields(change, "path kind", "from added removed")
    for read in result["reads"].values():
        fields(read, "path start end totalLines text")
    for written in result["written"]:
        fields(written, "path kind", "from")
    for engine in result["engines"]:
        fields(engine, "id version path", "config")
    if "delta" in result:
        fields(result["delta"], "introduced resolved unchanged pending")
    assert result["ok"] == (result["counts"]["error"] == 0)


def diagnostic_fields(entry: dict[str, Any]) -> None:
    fields(entry, "path severity message engineId outOfScope", "rule line column endLine endColumn")
    assert entry["severity"] in ("error", "warning", "info")


def approval_fields(item: dict[str, Any]) -> None:
    fields(item, APPROVAL)
    for file in item["files"]:
        fields(file, "path kind baseHash hunks", "from")
        for hunk in file["hunks"]:
            fields(hunk, HUNK)
    for entry in [*item["introduced"], *item["resolved"]]:
        diagnostic_fields(entry)
    for entry in item["pending"]:
        fields(entry, "reason", "path engineId")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", item["expiresAt"])


def tool_fields(tool: dict[str, Any]) -> None:
    fields(tool, "name description inputSchema annotations")
    assert tool["inputSchema"]["type"] == "object"


def test_initialize(place: Place):
    greeting = place.agent("hello", surface="composite").greeting
    fields(greeting, "server version root surface tools gate confinement")
    assert greeting["root"] == str(place.root)
    assert greeting["surface"] == "composite"
    assert greeting["gate"]["mode"] == "editor"
    assert [tool["name"] for tool in greeting["tools"]] == ["dev_plan"]
    for tool in greeting["tools"]:
        tool_fields(tool)
    assert place.agent("hello").greeting["surface"] == "granular"


@pytest.mark.parametrize(
    ("surface", "names"),
    [
        ("granular", ["read_lines", "edit", "apply_patch", "format", "lint"]),
        ("composite", ["dev_plan"]),
        ("workspace", ["read_file", "write_file", "edit_file", "glob", "grep", "bash"]),
    ],
)
def test_tools(agent: Agent, surface: str, names: list[str]):
    answer = agent.wire.request("devtools/tools", {"surface": surface})
    fields(answer, "tools")
    assert [tool["name"] for tool in answer["tools"]] == names
    for tool in answer["tools"]:
        tool_fields(tool)


def test_tools_without_a_surface_are_those_of_the_connection(place: Place):
    agent = place.agent("composer", surface="composite")
    assert agent.wire.request("devtools/tools") == {"tools": agent.greeting["tools"]}


def test_a_lint(agent: Agent):
    result = agent.call("lint", {"paths": ["bad.py"]})
    result_fields(result, "delta")
    found = next(entry for entry in result["diagnostics"] if entry["rule"] == "F401")
    assert found["engineId"] == "ruff"
    assert found["outOfScope"] is False
    assert (found["line"], found["column"], found["endLine"], found["endColumn"]) == (1, 8, 1, 10)
    assert [engine["id"] for engine in result["engines"]] == ["ruff"]
    assert result["counts"]["warning"] == result["artifact"]["total"] == len(result["diagnostics"])


def test_an_edit_that_a_rule_allows(place: Place, agent: Agent):
    result = agent.edit("free/f.txt", "a", "b")
    result_fields(result)
    assert result["changes"] == [{"path": "free/f.txt", "kind": "modified", "added": 1, "removed": 1}]
    assert result["written"] == [{"path": "free/f.txt", "kind": "modified"}]
    assert result["lineCountsAvailable"] is True
    assert result["atomic"] is True
    assert "decision" not in result
    assert place.text("free/f.txt") == "b\n"
    agent.edit("free/f.txt", "b", "a")


def test_a_plan_that_is_not_written(agent: Agent):
    ops = [
        {"step": "read_lines", "args": {"path": "plain.txt", "start": 2}, "label": "tail"},
        op("edit", **edit_of("plain.txt", "two", "three")),
    ]
    for result in (
        agent.ops(["plain.txt"], *ops),
        agent.call("dev_plan", {"paths": ["plain.txt"], "ops": ops}, surface="composite"),
    ):
        result_fields(result)
        assert result["reads"] == {
            "tail": {"path": "plain.txt", "start": 2, "end": 2, "totalLines": 2, "text": "two\n"}
        }
        assert result["unwritten"] == ["plain.txt"]
        assert result["written"] == []
        notice = result["diagnostics"][0]
        assert (notice["engineId"], notice["path"], notice["severity"], notice["outOfScope"]) == (
            None,
            None,
            "warning",
            False,
        )


@pytest.mark.parametrize(
    ("tool", "arguments", "data"),
    [
        ("read_file", {"path": "plain.txt"}, "path start end totalLines"),
        ("glob", {"pattern": "*.txt"}, ""),
        ("grep", {"pattern": "two"}, ""),
        ("bash", {"command": "echo hello"}, "exitCode changedFiles"),
    ],
)
def test_workspace_tools_add_their_content_and_data(agent: Agent, tool: str, arguments: dict[str, Any], data: str):
    result = agent.call(tool, arguments, surface="workspace")
    result_fields(result, "content data")
    assert isinstance(result["content"], str)
    assert result["content"]
    assert set(data.split()) <= set(result["data"])


@pytest.mark.parametrize(
    ("surface", "tool", "arguments", "steps"),
    [
        ("granular", "read_lines", {"path": "plain.txt", "start": 1}, ["acquire", "read_lines"]),
        ("granular", "lint", {"paths": ["bad.py"]}, ["acquire", "lint"]),
        ("granular", "edit", edit_of("free/f.txt", "a\n", "a\n\n"), ["acquire", "edit"]),
        ("workspace", "read_file", {"path": "plain.txt"}, ["acquire", "read_lines"]),
        ("workspace", "glob", {"pattern": "*"}, ["search"]),
        ("workspace", "grep", {"pattern": "two"}, ["search"]),
        ("workspace", "bash", {"command": "echo hello"}, ["bash"]),
        (
            "composite",
            "dev_plan",
            {"paths": ["bad.py"], "ops": [op("lint"), op("format")]},
            ["acquire", "lint", "format"],
        ),
        ("composite", "dev_plan", {"paths": [], "ops": [op("write")]}, ["acquire", "write"]),
    ],
)
def test_each_step_is_asked_once_under_its_own_name(
    place: Place, agent: Agent, surface: str, tool: str, arguments: Any, steps: list[str]
):
    """4.2, 4.6, I2: one line in the log for each question, with the files that are concerned."""
    place.put({"free/f.txt": "a\n"})
    result = agent.call(tool, arguments, surface=surface)
    asked = place.activity(event="gate", plan=result["plan"])
    assert [line["step"] for line in asked] == steps
    assert {(line["agent"], line["verdict"], line["by"]) for line in asked} == {("shapes", "approved", "rule")}
    named = [arguments["path"]] if "path" in arguments else arguments.get("paths", [])
    assert all(line["paths"] == (named if line["step"] != "write" else []) for line in asked)
    place.put({"free/f.txt": "a\n"})


def test_an_artifact_page(agent: Agent):
    handle = agent.call("lint", {"paths": ["bad.py"]})["artifact"]["handle"]
    everything = agent.wire.request("devtools/artifact", {"handle": handle})
    fields(everything, "items offset total")
    for item in everything["items"]:
        diagnostic_fields(item)
    page = agent.wire.request("devtools/artifact", {"handle": handle, "limit": 1})
    fields(page, "items offset total nextOffset")
    assert (page["items"], page["offset"], page["total"], page["nextOffset"]) == (
        everything["items"][:1],
        0,
        everything["total"],
        1,
    )
    rest = agent.wire.request("devtools/artifact", {"handle": handle, "offset": 1, "severity": "warning"})
    assert rest["items"] == everything["items"][1:]
    for narrowed in ({"engineId": "other"}, {"engineId": None}, {"severity": "error"}, {"path": "other.py"}):
        assert agent.wire.request("devtools/artifact", {"handle": handle, **narrowed})["total"] == 0
    unknown = agent.wire.refused("devtools/artifact", {"handle": "nothing"})
    assert (unknown["code"], unknown["data"]["code"]) == (-32050, "E_DEV_BAD_ARG")
    assert agent.wire.refused("devtools/artifact", {"handle": "../../activity.jsonl"})["data"]["reason"] == "notFound"


def test_status(place: Place, agent: Agent):
    place.editor()
    status = agent.status()
    fields(status, "root version pid uptime_s engines editors agents pendingApprovals gate stateDir skipped")
    watcher = place.terminal()
    watcher.wire.request("devtools/approvals", {"watch": True})
    assert watcher.status()["watching"] == [{"name": "terminal", "version": "1"}]
    watcher.wire.close()
    until(lambda: "watching" not in agent.status(), "the terminal that watched to be gone")
    assert status["root"] == str(place.root)
    assert status["pid"] == place.pid
    assert status["uptime_s"] > 0
    assert status["stateDir"] == str(place.state)
    assert status["pendingApprovals"] == 0
    assert status["skipped"] == []
    assert len(status["editors"]) == 1
    assert "shapes" in [entry["name"] for entry in status["agents"]]
    fields(status["gate"], "mode rules")
    assert status["gate"]["rules"][0]["name"] == "free"
    engine = until(lambda: next(e for e in agent.status()["engines"] if e["state"] == "ready"), "ruff to be ready")
    fields(engine, "id state version path pid rssBytes generation")
    assert (engine["id"], engine["generation"]) == ("ruff", 1)
    assert engine["rssBytes"] > 1_000_000


def test_an_approval_and_its_decision(place: Place, agent: Agent):
    terminal = place.terminal()
    editor = place.editor()
    call = agent.begin_edit("plain.txt", "two", "2", progressToken="p1")
    requested = editor.wire.wait_told("devtools/approvalRequested")
    approval_fields(requested)
    listed = terminal.wire.request("devtools/approvals")
    fields(listed, "items")
    (item,) = listed["items"]
    approval_fields(item)
    assert (item["step"], item["stepIndex"], item["agent"]) == ("edit", 1, "shapes")
    assert item["args"] == {**edit_of("plain.txt", "two", "2"), "persists": True}
    assert (item["targets"], item["mayCreate"], item["engines"]) == (["plain.txt"], [], None)
    (hunk,) = item["files"][0]["hunks"]
    assert hunk["text"] == " one\n-two\n+2\n"
    progress = agent.wire.wait_told("$/progress")
    fields(progress, "token value")
    assert progress["token"] == "p1"
    fields(progress["value"], "kind message", "approval")
    assert (progress["value"]["kind"], progress["value"]["approval"]) == ("report", item["id"])
    assert terminal.status()["pendingApprovals"] == 1
    decided = terminal.decide(item["id"], approve=True, note="fine")
    assert decided == {"id": item["id"], "status": "approved", "applied": True, "by": "terminal"}
    result = agent.wire.result(call)
    result_fields(result, "decision")
    assert result["decision"] == {"approved": True, "edited": [], "dropped": [], "note": "fine", "by": "terminal"}
    resolved = editor.wire.wait_told("devtools/approvalResolved")
    assert resolved == {"id": item["id"], "status": "approved", "by": "terminal"}
    landed = editor.wire.wait_told("devtools/landed")
    assert landed == {
        "plan": result["plan"],
        "agent": "shapes",
        "files": [{"path": "plain.txt", "kind": "modified", "ranges": [{"start": 2, "end": 2}]}],
    }
    late = terminal.decide(item["id"], approve=False)
    assert late == {"id": item["id"], "status": "approved", "applied": False, "by": "terminal"}


def test_undo_takes_the_last_plan_back_and_asks(place: Place, agent: Agent):
    terminal = place.terminal()
    call = agent.begin_edit("plain.txt", "one", "1")
    # Nobody is attached, so that it is declined at once; a terminal that watches counts as somebody.
    data = agent.error(call)
    assert (data["code"], data["reason"]) == ("E_DEV_GATE_DECLINED", "noDecider")
    terminal.wire.request("devtools/approvals", {"watch": True})
    call = agent.begin_edit("plain.txt", "one", "1")
    approval_fields(terminal.wire.wait_told("devtools/approvalRequested"))
    terminal.decide(terminal.waiting()[0]["id"], approve=True)
    plan = agent.wire.result(call)["plan"]
    undo = agent.wire.start("devtools/undo", {"plan": plan})
    (item,) = terminal.waiting()
    approval_fields(item)
    assert item["step"] == "undo"
    terminal.decide(item["id"], approve=True)
    result = agent.wire.result(undo)
    result_fields(result, "decision")
    assert result["written"] == [{"path": "plain.txt", "kind": "modified"}]
    assert place.text("plain.txt").startswith("one\n")
    gate = [entry["step"] for entry in place.activity(event="gate", plan=result["plan"])]
    assert gate == ["undo"]


def test_bash_output_arrives_line_by_line_with_its_stream(agent: Agent):
    call = agent.begin("bash", {"command": "echo out; echo err >&2"}, surface="workspace", progressToken=7)
    assert agent.error(call)["code"] == "E_DEV_GATE_DECLINED"  # it is not the command that a rule allows
    call = agent.begin("bash", {"command": "echo line"}, surface="workspace", progressToken=7)
    agent.wire.result(call)
    assert agent.wire.told("$/progress") == [
        {"token": 7, "value": {"kind": "output", "stream": "stdout", "text": "line"}}
    ]


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("edit", edit_of("plain.txt", "absent", ""), ("E_DEV_STEP_FAILED", "noMatch", "afterCorrection", "edit")),
        ("edit", edit_of("bad.py", "o", ""), ("E_DEV_STEP_FAILED", "ambiguous", "afterCorrection", "edit")),
        ("edit", edit_of("gone.txt", "a", ""), ("E_DEV_BAD_ARG", "notFound", "afterCorrection", "acquire")),
        ("edit", edit_of("free", "a", ""), ("E_DEV_BAD_ARG", "isDirectory", "afterCorrection", "acquire")),
        ("edit", edit_of("../up.txt", "a", ""), ("E_DEV_POLICY", "outsideRoot", "no", "edit")),
        ("edit", edit_of(".git/config", "a", ""), ("E_DEV_POLICY", "protected", "no", "edit")),
        ("edit", edit_of("free/f.txt", "a", "\u0000"), ("E_DEV_BAD_ARG", "malformed", "afterCorrection", "edit")),
    ],
)
def test_an_error_names_code_reason_retry_step_and_path(
    agent: Agent, tool: str, arguments: Any, expected: tuple[str, ...]
):
    data = agent.refused(tool, arguments)
    fields(data, "code message retry step path", "reason line paths written matches alternatives note")
    assert (data["code"], data.get("reason"), data["retry"], data["step"]) == expected
    assert data["path"] == arguments["path"]


def test_an_ambiguous_edit_lists_its_places(agent: Agent, place: Place):
    place.put({"twice.txt": "x = 1\ny\nx = 1\n"})
    data = agent.refused("edit", edit_of("twice.txt", "x = 1", "x = 2"))
    assert data["matches"] == [{"path": "twice.txt", "line": 1}, {"path": "twice.txt", "line": 3}]


def test_cancelling_answers_with_the_code_for_it(place: Place, agent: Agent):
    terminal = place.terminal()
    terminal.wire.request("devtools/approvals", {"watch": True})
    call = agent.begin_edit("plain.txt", "one", "1")
    approval = terminal.waiting()[0]["id"]
    agent.wire.notify("$/cancelRequest", {"id": call})
    data = agent.error(call)
    fields(data, "code message retry step", "written")
    assert (data["code"], data["retry"], data["step"]) == ("E_DEV_CANCELLED", "yes", "edit")
    assert terminal.wire.wait_told("devtools/approvalResolved")["status"] == "withdrawn"
    assert terminal.decide(approval, approve=True) == {
        "id": approval,
        "status": "withdrawn",
        "applied": False,
        "by": "agent",
    }
    assert agent.status()["pid"]


def test_an_lsp_request_that_is_cancelled_has_the_lsp_code(place: Place):
    """8.0.6: -32800 for LSP requests."""
    editor = place.editor()
    agent = place.agent("slow")
    call = agent.begin_edit("plain.txt", "one", "1")
    mark = editor.wait_mark("plain.txt")
    assert set(editor.actions("plain.txt", mark)) == {"Approve", "Deny", "Remember and approve", "Show diff"}
    assert editor.wire.refused("devtools/nothing", {})["code"] == -32601
    editor.choose("plain.txt", "Deny")
    assert agent.error(call)["reason"] == "denied"


def test_the_activity_log_has_the_fields_of_the_contract_and_no_contents(place: Place, agent: Agent):
    agent.edit("free/f.txt", "a", "secret-content")
    agent.edit("free/f.txt", "secret-content", "a")
    lines = place.activity()
    for line in lines:
        fields(line, "time event plan", "step agent verdict by paths morePaths")
        assert line["event"] in ("gate", "landed", "failed", "engine", "approval")
    raw = (place.state / "activity.jsonl").read_text()
    assert "secret-content" not in raw
    assert "echo" not in raw
    assert (place.state / "activity.jsonl").stat().st_mode & 0o777 == 0o600


def test_agents_may_not_decide(place: Place, agent: Agent):
    editor = place.editor()
    call = agent.begin_edit("plain.txt", "one", "1")
    mark = editor.wait_mark("plain.txt")
    approval = mark["data"]["approvalId"]
    for someone in (agent, place.agent("other")):
        error = someone.wire.refused("devtools/decide", {"id": approval, "approve": True})
        assert (error["code"], error["data"]["code"], error["data"]["reason"]) == (-32050, "E_DEV_POLICY", "notDecider")
    silent = place.wire()  # one that never introduced itself is an agent
    assert silent.refused("devtools/decide", {"id": approval, "approve": True})["data"]["reason"] == "notDecider"
    assert silent.refused("workspace/executeCommand", {"command": "devtools.approve", "arguments": [{"id": approval}]})
    editor.choose("plain.txt", "Deny")
    assert agent.error(call)["reason"] == "denied"


def test_an_unknown_approval_is_no_late_one(place: Place):
    terminal = place.terminal()
    assert terminal.wire.refused("devtools/decide", {"id": "nonsense", "approve": True})["data"]["reason"] == "notFound"
    lost = terminal.decide("0badc0de-1", approve=True)
    assert lost == {"id": "0badc0de-1", "status": "lost", "applied": False, "by": "daemon"}
