"""What no client should send: one clear error or a clean close, and nobody else is the worse for it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.place import ALLOW, RUFF, Agent, Place, edit_of, until

PARSE, INVALID, NO_METHOD, BAD_PARAMS, NOT_INITIALIZED = -32700, -32600, -32601, -32602, -32002


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place]) -> Place:
    return new_place(ALLOW + RUFF, {"a.py": "value = 1\n"})


@pytest.fixture(scope="module")
def bystander(place: Place) -> Agent:
    """Another client, there all the while."""
    return place.agent("bystander")


@pytest.fixture(autouse=True)
def unharmed(place: Place, bystander: Agent):
    """Whatever a test does: the daemon goes on, and so does everybody else."""
    before = place.pid, bystander.status()["pid"]
    yield from place.visit()
    assert bystander.call("read_lines", {"path": "a.py", "start": 1})["reads"]["a.py"]["totalLines"] == 1
    assert (place.pid, bystander.status()["pid"]) == before


def frame(body: bytes, length: int | None = None) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body) if length is None else length, body)


STATUS = b'{"jsonrpc": "2.0", "id": 7, "method": "devtools/status"}'


@dataclass(frozen=True)
class Bad:
    """Bytes, the code that answers them, and whether the stream can go on afterwards."""

    name: str
    sent: bytes
    code: int
    goes_on: bool = True
    id: int | None = None


FRAMES = [
    Bad("no JSON", frame(b"{nonsense"), PARSE),
    Bad("no UTF-8", frame(b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}'), PARSE),
    Bad("an empty body", frame(b""), PARSE),
    Bad("nested too deeply", frame(b"[" * 200_000), PARSE),
    Bad("a batch", frame(b"[" + STATUS + b"]"), INVALID),
    Bad("a number", frame(b"5"), INVALID),
    Bad("no version", frame(b'{"id": 3, "method": "devtools/status"}'), INVALID, id=3),
    Bad("a method that is a number", frame(b'{"jsonrpc": "2.0", "id": 3, "method": 5}'), INVALID, id=3),
    Bad("an id that is null", frame(b'{"jsonrpc": "2.0", "id": null, "method": "devtools/status"}'), INVALID),
    Bad("an id that is an object", frame(b'{"jsonrpc": "2.0", "id": {}, "method": "devtools/status"}'), INVALID),
    Bad("neither method nor result", frame(b'{"jsonrpc": "2.0", "id": 3}'), INVALID, id=3),
    Bad("a length beyond the bound", frame(b"", 99_999_999_999), INVALID, goes_on=False),
    Bad("a body just beyond the bound", frame(STATUS + b" " * 8 * 1024 * 1024), INVALID, id=7),
    Bad("a length that is no number", b"Content-Length: many\r\n\r\n{}", PARSE, goes_on=False),
    Bad("a negative length", b"Content-Length: -5\r\n\r\n{}", PARSE, goes_on=False),
    Bad("two lengths", b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", PARSE, goes_on=False),
    Bad("no length at all", b"X-Other: 1\r\n\r\n{}", PARSE, goes_on=False),
    Bad("a header without end", b"X" * 100_000, PARSE, goes_on=False),
    Bad("a length that is too short", frame(STATUS, len(STATUS) - 5) + frame(STATUS), PARSE, goes_on=False),
]


@pytest.mark.parametrize("bad", FRAMES, ids=lambda bad: bad.name)
def test_a_bad_frame_has_one_error_or_ends_its_connection(place: Place, bad: Bad):
    wire = place.wire()
    wire.raw(bad.sent)
    error = wire.wait(lambda message: "error" in message, "error")
    assert error["id"] == bad.id
    assert error["error"]["code"] in (bad.code, PARSE if not bad.goes_on else bad.code)
    assert error["error"]["message"]
    if bad.goes_on:
        assert wire.request("devtools/status")["pid"]
        assert sum("error" in message for message in wire.messages) == 1
    else:
        wire.wait_closed()


def test_a_length_that_is_too_long_waits_for_no_more_than_the_end(place: Place):
    wire = place.wire()
    wire.raw(frame(STATUS, len(STATUS) + 50))
    wire.close()
    assert wire.closed


def test_headers_in_any_case_and_with_others_beside_them(place: Place):
    wire = place.wire()
    length = len(STATUS)
    wire.raw(b"content-type: x\r\nCONTENT-LENGTH:%d\r\n\r\n%b" % (length, STATUS))
    assert wire.result(7)["pid"]


def test_a_frame_that_comes_byte_by_byte(place: Place):
    wire = place.wire()
    for byte in frame(STATUS):
        wire.raw(bytes([byte]))
    assert wire.result(7)["pid"]


@pytest.mark.parametrize(
    ("method", "params", "code", "says"),
    [
        ("devtools/nothing", {}, NO_METHOD, "devtools/nothing"),
        ("textDocument/hover", {}, NO_METHOD, "hover"),
        ("x" * 5000, {}, NO_METHOD, "x"),
        ("devtools/status", {"deep": True}, BAD_PARAMS, "deep"),
        ("devtools/status", [1], BAD_PARAMS, ""),
        ("devtools/status", "text", BAD_PARAMS, ""),
        ("devtools/tools", {"surface": "huge"}, BAD_PARAMS, "huge"),
        ("devtools/call", {}, BAD_PARAMS, "name"),
        ("devtools/call", {"name": 5}, BAD_PARAMS, "name"),
        ("devtools/call", {"name": "edit", "argumets": {}}, BAD_PARAMS, "argumets"),
        ("devtools/call", {"name": "edit", "arguments": {}, "progressToken": [1]}, BAD_PARAMS, "progressToken"),
        ("devtools/ops", {"ops": []}, BAD_PARAMS, "paths"),
        ("devtools/ops", {"paths": "a.py", "ops": []}, BAD_PARAMS, "paths"),
        ("devtools/ops", {"paths": [5], "ops": []}, BAD_PARAMS, "paths"),
        ("devtools/artifact", {"handle": "x", "severity": "fatal"}, BAD_PARAMS, "fatal"),
        ("devtools/artifact", {"handle": "x", "offset": -1}, BAD_PARAMS, "offset"),
        ("devtools/decide", {"id": "x"}, BAD_PARAMS, "approve"),
        ("devtools/decide", {"id": "x", "approve": "yes"}, BAD_PARAMS, "approve"),
        ("devtools/decide", {"id": "x", "approve": True, "edited": [{"path": "a"}]}, BAD_PARAMS, "edited"),
        ("devtools/undo", {"plan": 5}, BAD_PARAMS, "plan"),
        ("devtools/initialize", {"client": {"name": "again"}}, INVALID, "agent"),
    ],
)
def test_wrong_methods_and_params_have_the_standard_codes(place: Place, method: str, params: Any, code: int, says: str):
    agent = place.agent()
    error = agent.wire.refused(method, params)
    assert error["code"] == code, error
    assert says in error["message"]
    assert agent.status()["pid"]


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"client": {}},
        {"client": {"name": ""}},
        {"client": {"name": "x" * 200}},
        {"client": {"name": "bell\x07"}},
        {"client": {"name": "a"}, "role": "editor"},
        {"client": {"name": "a"}, "role": "root"},
        {"client": {"name": "a"}, "surface": "all"},
        {"client": {"name": "a"}, "gate": "allow"},
    ],
)
def test_a_malformed_introduction_may_be_mended(place: Place, params: Any):
    wire = place.wire()
    assert wire.refused("devtools/initialize", params)["code"] == BAD_PARAMS
    assert wire.request("devtools/initialize", {"client": {"name": "a"}})["surface"] == "granular"


BAD_ARGUMENTS: list[tuple[str, str, Any, str, str]] = [
    (surface, tool, arguments, "E_DEV_BAD_ARG", "")
    for surface, tool in (("granular", "edit"), ("composite", "dev_plan"), ("workspace", "read_file"))
    for arguments in (None, [], [1], "text", 5, True)
] + [
    ("granular", "edit", {}, "E_DEV_BAD_ARG", "path"),
    ("granular", "edit", {"path": "a.py", "edits": []}, "E_DEV_BAD_ARG", "edits"),
    ("granular", "edit", {"path": "a.py", "edits": [{"find": "", "replace": ""}]}, "E_DEV_BAD_ARG", "apply_patch"),
    ("granular", "edit", {"path": "a.py", "edits": [{"find": "x"}]}, "E_DEV_BAD_ARG", "replace"),
    ("granular", "edit", {"path": "a.py", "edit": []}, "E_DEV_BAD_ARG", "edits"),
    ("granular", "read_lines", {"path": "a.py", "start": 0}, "E_DEV_BAD_ARG", "start"),
    ("granular", "read_lines", {"path": "a.py", "start": True}, "E_DEV_BAD_ARG", "start"),
    ("granular", "read_lines", {"path": "a.py", "start": 1.0}, "E_DEV_BAD_ARG", "start"),
    ("granular", "read_lines", {"path": "a.py", "start": 3, "end": 2}, "E_DEV_BAD_ARG", "end"),
    ("granular", "read_lines", {"path": "a.py", "start": 10**30}, "E_DEV_BAD_ARG", "no line"),
    ("granular", "lint", {}, "E_DEV_BAD_ARG", "paths"),
    ("granular", "lint", {"paths": []}, "E_DEV_BAD_ARG", "paths"),
    ("granular", "lint", {"paths": [1]}, "E_DEV_BAD_ARG", "paths"),
    ("granular", "lint", {"paths": ["a.py"], "fix": "yes"}, "E_DEV_BAD_ARG", "fix"),
    ("granular", "lint", {"paths": ["[ab].py"]}, "E_DEV_BAD_ARG", "[ab].py"),
    ("granular", "apply_patch", {"patch": ""}, "E_DEV_BAD_ARG", "patch"),
    ("granular", "apply_patch", {"patch": "hello"}, "E_DEV_BAD_ARG", ""),
    ("granular", "write", {}, "E_DEV_UNKNOWN_STEP", "read_lines"),
    ("granular", "check", {"paths": ["a.py"]}, "E_DEV_ENGINE_REQUIRED", "read_lines"),
    ("composite", "dev_plan", {"ops": []}, "E_DEV_BAD_ARG", "op"),
    ("composite", "dev_plan", {"paths": [], "ops": [{"step": "fly"}]}, "E_DEV_UNKNOWN_STEP", "apply_patch"),
    ("composite", "dev_plan", {"paths": [], "ops": [5]}, "E_DEV_BAD_ARG", "ops[0]"),
    ("composite", "dev_plan", {"paths": [5], "ops": [{"step": "write"}]}, "E_DEV_BAD_ARG", "paths"),
    ("composite", "dev_plan", {"paths": [], "ops": [{"step": "write", "args": []}]}, "E_DEV_BAD_ARG", "args"),
    ("composite", "dev_plan", {"paths": [], "ops": [{"step": "write", "gate": None}]}, "E_DEV_BAD_ARG", "gate"),
    ("workspace", "grep", {"pattern": "("}, "E_DEV_BAD_ARG", "("),
    ("workspace", "bash", {"command": "true", "timeout_secs": 0}, "E_DEV_BAD_ARG", "timeout_secs"),
    ("workspace", "bash", {"command": "a\0b"}, "E_DEV_BAD_ARG", "NUL"),
]


@pytest.mark.parametrize(("surface", "tool", "arguments", "code", "says"), BAD_ARGUMENTS)
def test_malformed_tool_arguments_are_told_to_the_model(
    place: Place, bystander: Agent, surface: str, tool: str, arguments: Any, code: str, says: str
):
    gated = len(place.activity(event="gate"))
    data = bystander.refused(tool, arguments, surface=surface)
    assert data["code"] == code, data
    assert says in data["message"] or says in str(data.get("alternatives"))
    assert data["retry"] == ("afterCorrection" if code == "E_DEV_BAD_ARG" else "no")
    assert data.get("step") in (tool, "acquire", "fly", "write", "search") or "op" in data["message"]
    if tool not in ("read_lines", "grep"):
        # How many lines a file has, and what the search program takes for a pattern, is known only afterwards.
        assert len(place.activity(event="gate")) == gated


def test_text_that_no_file_can_hold_is_refused_and_answered(bystander: Agent):
    """A lone surrogate is valid JSON and no text: the request that carries it has its own answer, like any other."""
    answer = bystander.wire.answer(bystander.begin("edit", edit_of("a.py", "value", "\ud800")), timeout_s=5)
    assert answer["error"]["code"] in (PARSE, -32050)
    assert answer["error"]["message"]


def test_an_id_may_be_used_again_only_after_its_answer(place: Place):
    wire = place.agent("twice", surface="workspace").wire
    call = {"name": "bash", "arguments": {"command": "read x < fifo"}}
    os.mkfifo(place.root / "fifo")
    wire.send({"jsonrpc": "2.0", "id": "same", "method": "devtools/call", "params": call})
    wire.send({"jsonrpc": "2.0", "id": "same", "method": "devtools/status"})
    error = wire.wait(lambda message: message.get("id") == "same", "refusal")
    assert error["error"]["code"] == INVALID
    with (place.root / "fifo").open("w") as fifo:
        fifo.write("go\n")
    done = wire.wait(lambda message: message.get("id") == "same" and "result" in message, "answer")
    assert done["result"]["data"]["exitCode"] == 0
    (place.root / "fifo").unlink()
    wire.send({"jsonrpc": "2.0", "id": "same", "method": "devtools/status"})
    wire.wait(lambda message: message.get("id") == "same" and "pid" in message.get("result", {}), "answer")


def test_a_client_that_vanishes_mid_call_is_forgotten(place: Place, bystander: Agent):
    """What it asked is cancelled; its command does not outlive it."""
    agent = place.agent("vanishing", surface="workspace")
    agent.begin("bash", {"command": "echo $$ > started; sleep 600"})
    until(lambda: (place.root / "started").exists() and place.text("started").strip(), "the command to run")
    agent.wire.vanish()
    until(lambda: "vanishing" not in json.dumps(bystander.status()["agents"]), "it to be forgotten")
    until(lambda: not any("sleep" in name for name in place.names()), "its command to end")


def test_five_hundred_requests_at_once_have_five_hundred_answers(place: Place):
    """I13."""
    agent = place.agent()
    requests = [agent.begin("read_lines", {"path": "a.py", "start": 1}) for _ in range(500)]
    for request in requests:
        assert agent.wire.result(request)["reads"]["a.py"]["text"] == "value = 1\n"
    answered = [message["id"] for message in agent.wire.messages if "id" in message]
    assert sorted(answered) == [1, *requests]


# -- the same on an editor's connection -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["textDocument/codeAction", "workspace/executeCommand", "shutdown"])
def test_an_lsp_request_before_initialize(place: Place, method: str):
    wire = place.wire()
    assert wire.refused(method, {})["code"] == NOT_INITIALIZED
    assert wire.request("devtools/status")["pid"] == place.pid


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("initialize", {"processId": None, "rootUri": None, "capabilities": {}}, INVALID),
        ("devtools/initialize", {"client": {"name": "agent"}}, INVALID),
        ("textDocument/hover", {}, NO_METHOD),
        ("textDocument/codeAction", {"textDocument": 5}, BAD_PARAMS),
        ("textDocument/codeAction", "text", BAD_PARAMS),
        ("workspace/executeCommand", {"command": "devtools.approve", "arguments": []}, BAD_PARAMS),
        ("workspace/executeCommand", {"command": "devtools.approve", "arguments": [{"id": 5}]}, BAD_PARAMS),
        ("workspace/executeCommand", {"command": "devtools.approve", "arguments": [{"id": "none"}]}, -32050),
        ("workspace/executeCommand", {"command": "rm -rf", "arguments": []}, NO_METHOD),
    ],
)
def test_wrong_lsp_requests_are_answered_and_the_session_goes_on(place: Place, method: str, params: Any, code: int):
    editor = place.editor()
    assert editor.wire.refused(method, params)["code"] == code
    assert len(editor.wire.request("devtools/status")["editors"]) == 1


def test_wrong_lsp_notifications_are_dropped_and_the_session_goes_on(place: Place):
    editor = place.editor()
    for method, params in (
        ("textDocument/didOpen", {"textDocument": 5}),
        ("textDocument/didOpen", "text"),
        (
            "textDocument/didChange",
            {"textDocument": {"uri": "file:///nowhere", "version": 1}, "contentChanges": [{"text": ""}]},
        ),
        ("textDocument/didClose", {"textDocument": {"uri": "file:///never-opened"}}),
        ("textDocument/didClose", {"textDocument": {"uri": "not a uri"}}),
        ("$/cancelRequest", {"id": 12345}),
        ("$/cancelRequest", {"id": [1]}),
        ("$/setTrace", {"value": "verbose"}),
        ("workspace/didChangeConfiguration", {"settings": None}),
        ("unknown/notification", {"a": 1}),
    ):
        editor.wire.notify(method, params)
    editor.wire.send({"jsonrpc": "2.0", "id": 4711, "result": "an answer to nothing"})
    assert editor.wire.request("devtools/status")["editors"]
    assert not [message for message in editor.wire.messages if message.get("id") in (None, 4711) and "error" in message]
    assert not [line for line in place.stderr if "12345" in line], "an everyday thing is no warning"


def test_shutdown_and_exit_end_one_connection(place: Place, bystander: Agent):
    one, other = place.editor(), place.editor()
    assert one.wire.request("shutdown") is None
    assert one.wire.refused("textDocument/codeAction", {})["code"] == INVALID
    one.wire.notify("exit")
    one.wire.wait_closed()
    assert len(other.wire.request("devtools/status")["editors"]) == 1
    assert bystander.status()["pid"] == place.pid


def test_a_client_that_never_reads_costs_nobody_anything(place: Place, bystander: Agent):
    """It is read no further once enough waits for it; others are served meanwhile."""
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "devtools/tools"}).encode()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(place.socket)
        deaf.settimeout(0.3)
        with pytest.raises(TimeoutError):
            deaf.sendall(frame(request) * 100_000)
        assert bystander.status()["pid"] == place.pid
