"""The library's door: `DevToolset` over a real root, with real searches and real commands."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devtools_lsp import Cancellation, Decision, DevToolsError, DevToolset, Workspace
from devtools_lsp.client import connect, stop_daemon
from devtools_lsp.errors import PolicyError
from devtools_lsp.ports import Edited, GateCall, GateContext
from tests.toolset.gates import RecordingGate, refused

MUTATING = ("write_file", "edit_file", "bash")


# -- the same as the daemon --------------------------------------------------------------------------------------


@asynccontextmanager
async def daemon(root: Path, configuration: str) -> AsyncIterator[Any]:
    (root / "devtools.toml").write_text(configuration, encoding="utf-8")
    try:
        async with await connect(root, name="library", surface="workspace") as client:
            yield client
    finally:
        await stop_daemon(root)


@pytest.mark.parametrize(
    ("configuration", "settings", "names"),
    [
        ("", {}, ["read_file", "write_file", "edit_file", "glob", "grep", "bash"]),
        ("[workspace]\nread_only = true\n", {"read_only": True}, ["read_file", "glob", "grep"]),
        (
            "[shell]\nenabled = false\n",
            {"allow_bash": False},
            ["read_file", "write_file", "edit_file", "glob", "grep"],
        ),
    ],
)
async def test_the_tools_and_their_refusals_are_the_daemons(
    root: Path, gate: RecordingGate, configuration: str, settings: dict[str, Any], names: list[str]
):
    async with daemon(root, configuration) as client, DevToolset(Workspace(root, **settings), gate) as toolset:
        offered = toolset.tools()
        assert [tool["name"] for tool in offered] == names
        assert offered == await client.tools()
        assert await toolset.confinement() == client.server.confinement
        for name in (*MUTATING, "rm"):
            if name not in names:
                ours = await refused(
                    toolset.call(name, {"command": "touch made", "path": "made"}), _code(name, settings)
                )
                with pytest.raises(DevToolsError) as theirs:
                    await client.call(name, {"command": "touch made", "path": "made"})
                assert ours.to_wire() == theirs.value.to_wire()
    assert not (root / "made").exists()
    assert gate.questions == []


def _code(name: str, settings: dict[str, Any]) -> str:
    if name == "rm":
        return "E_DEV_UNKNOWN_STEP"
    return "E_DEV_READ_ONLY" if settings.get("read_only") else "E_DEV_STEP_UNAVAILABLE"


async def test_results_are_the_daemons(root: Path, tmp_path: Path, gate: RecordingGate):
    """Every member and every value of a call's result, but for what belongs to the one call."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {"path": "a.txt", "offset": 2}),
        ("edit_file", {"path": "a.txt", "old_string": "two", "new_string": "2"}),
        ("edit_file", {"path": "src/b.py", "old_string": "1", "new_string": "2"}),
        ("write_file", {"path": "new/c.txt", "content": "c\n"}),
        ("glob", {"pattern": "**/*.py"}),
        ("grep", {"pattern": "x ="}),
        ("bash", {"command": "echo out; echo err >&2; rm a.txt; exit 3"}),
        ("read_file", {"path": "a.txt", "limit": 0}),
    ]
    other = tmp_path / "other"
    for place in (root, other):
        (place / "src").mkdir(parents=True)
        (place / "a.txt").write_text("one\ntwo\n")
        (place / "src" / "b.py").write_text("x = 1\n")
        # A sandbox mounts it where it is, so that it shows in both or in none.
        (place / "devtools.toml").write_text('[gate]\nmode = "allow"\n')
    async with daemon(other, '[gate]\nmode = "allow"\n') as client, DevToolset(Workspace(root), gate) as toolset:
        for name, arguments in calls:
            ours, theirs = [await _outcome(door.call(name, arguments)) for door in (toolset, client)]
            assert ours == theirs, name
            assert ours.get("ok") is True or ours["code"] in ("E_DEV_NOT_READ", "E_DEV_BAD_ARG"), name


async def _outcome(work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    try:
        result = await work
    except DevToolsError as error:
        return error.to_wire()
    # What comes over a socket is JSON, and so must be what does not.
    result = json.loads(json.dumps(result))
    assert result.pop("plan")
    assert result["artifact"].pop("handle")
    result["data"].pop("durationS", None)
    return result


# -- the gate ----------------------------------------------------------------------------------------------------


async def test_the_gate_is_asked_as_in_the_daemon(toolset: DevToolset, gate: RecordingGate, plant):
    plant({"a.txt": "one\n"})
    await toolset.call("read_file", {"path": "a.txt"})
    await toolset.call("edit_file", {"path": "a.txt", "old_string": "one", "new_string": "1"})
    await toolset.call("write_file", {"path": "new/b.txt", "content": "b\n"})
    await toolset.call("grep", {"pattern": "b"})
    await toolset.call("bash", {"command": "true"})
    assert [(call.step, dict(call.args), call.targets, call.may_create) for _, call in gate.questions] == [
        ("acquire", {}, ("a.txt",), ()),
        ("read_lines", {"path": "a.txt"}, ("a.txt",), ()),
        ("acquire", {}, ("a.txt",), ()),
        ("edit", {"path": "a.txt", "old_string": "one", "new_string": "1", "persists": True}, ("a.txt",), ()),
        ("write_file", {"path": "new/b.txt", "content": "b\n", "persists": True}, ("new/b.txt",), ("new/b.txt",)),
        ("search", {"pattern": "b"}, (), ()),
        ("bash", {"command": "true"}, (), ()),
    ]
    assert {context.agent for context, _ in gate.questions} == {"library"}
    assert {context.session for context, _ in gate.questions} == {"default"}


async def test_what_the_gate_declines_does_not_happen(toolset: DevToolset, gate: RecordingGate, root: Path, plant):
    """I1: with its reason and its note for the agent."""
    plant({"a.txt": "one\n"})
    await toolset.call("read_file", {"path": "a.txt"})
    gate.answer = lambda _context, call: Decision(
        approved=call.step in ("acquire", "read_lines", "search"), by="person", note="not today"
    )
    for name, arguments in (
        ("edit_file", {"path": "a.txt", "old_string": "one", "new_string": "1"}),
        ("write_file", {"path": "a.txt", "content": "1\n"}),
        ("write_file", {"path": "new/b.txt", "content": "b\n"}),
        ("bash", {"command": "touch made"}),
    ):
        error = await refused(toolset.call(name, arguments), "E_DEV_GATE_DECLINED")
        assert (error.reason, error.note) == ("denied", "not today")
    assert (root / "a.txt").read_text() == "one\n"
    assert sorted(path.name for path in root.iterdir() if not path.name.startswith(".")) == ["a.txt"]


async def test_a_person_at_the_gate_sees_the_diff_and_has_the_last_word(
    toolset: DevToolset, gate: RecordingGate, root: Path, plant
):
    plant({"a.txt": "one\n"})
    diffs: list[str] = []

    async def person(context: GateContext, call: GateCall) -> Decision:
        if call.args.get("persists") is not True:
            return Decision(approved=True, by="reading")
        diffs.append((await context.diff()).diff)
        return Decision(approved=True, by="ann", person=True, edited=(Edited("uno\n", path="a.txt"),), note="Spanish")

    gate.answer = person
    await toolset.call("read_file", {"path": "a.txt"})
    result = await toolset.call("edit_file", {"path": "a.txt", "old_string": "one", "new_string": "eins"})
    assert "-one\n+eins\n" in diffs[0]
    assert (root / "a.txt").read_text() == "uno\n"
    assert result["decision"] == {"approved": True, "edited": ["a.txt"], "dropped": [], "by": "ann", "note": "Spanish"}


@pytest.mark.parametrize("answer", [True, None, "yes"])
async def test_a_gate_that_answers_something_else_approves_nothing(
    toolset: DevToolset, gate: RecordingGate, root: Path, answer: Any
):
    gate.answer = lambda _context, _call: answer
    error = await refused(toolset.call("write_file", {"path": "a.txt", "content": "x"}), "E_DEV_STEP_FAILED")
    assert "it must return a devtools_lsp.Decision" in error.message
    assert not (root / "a.txt").exists()


async def test_a_gate_that_is_no_coroutine_function_is_told_so(root: Path):
    def gate(_context: GateContext, _call: GateCall) -> Decision:
        return Decision(approved=True, by="me")

    async with DevToolset(Workspace(root), gate) as toolset:  # type: ignore[arg-type]
        error = await refused(toolset.call("write_file", {"path": "a.txt", "content": "x"}), "E_DEV_STEP_FAILED")
    assert "the gate broke down" in error.message
    assert not (root / "a.txt").exists()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"path": ".git/config", "content": "x"}),
        ("write_file", {"path": "devtools.toml", "content": "x"}),
        ("write_file", {"path": "../out.txt", "content": "x"}),
        ("read_file", {"path": ".env"}),
        ("read_file", {"path": "/etc/passwd"}),
    ],
)
async def test_the_policy_is_that_of_a_daemon_without_configuration(
    toolset: DevToolset, gate: RecordingGate, plant, tool: str, arguments: dict[str, Any]
):
    """No gate opens what is protected, and none is asked about it."""
    plant({".env": "TOKEN=1\n", ".git/HEAD": "ref: refs/heads/main\n"})
    await refused(toolset.call(tool, arguments), "E_DEV_POLICY")
    assert gate.questions == []


async def test_a_configuration_in_the_root_is_not_read(root: Path, gate: RecordingGate):
    """The workspace's settings stand in its place, and what is wrong with it is nothing to us."""
    (root / "devtools.toml").write_text('[workspace]\nread_only = true\nnonsense = "x"\n', encoding="utf-8")
    async with DevToolset(Workspace(root), gate) as toolset:
        await toolset.call("write_file", {"path": "a.txt", "content": "x"})
    assert (root / "a.txt").read_text() == "x"


# -- sessions and parallel calls ---------------------------------------------------------------------------------


async def test_each_session_must_have_read_what_it_edits(toolset: DevToolset, root: Path, plant):
    plant({"a.txt": "one\n"})
    edit = {"path": "a.txt", "old_string": "one", "new_string": "1"}
    await refused(toolset.call("edit_file", edit), "E_DEV_NOT_READ")
    await toolset.call("read_file", {"path": "a.txt"}, session="reviewer")
    await refused(toolset.call("edit_file", edit), "E_DEV_NOT_READ")
    (root / "a.txt").write_text("zero\none\n")
    result = await toolset.call("edit_file", edit, session="reviewer")
    assert result["data"] == {"path": "a.txt", "changedSinceRead": True}
    assert (root / "a.txt").read_text() == "zero\n1\n"


async def test_parallel_calls_lose_no_update(toolset: DevToolset, root: Path, plant):
    lines = [f"line {number:02}\n" for number in range(12)]
    plant({"a.txt": "".join(lines)})
    await toolset.call("read_file", {"path": "a.txt"})
    edits = [
        toolset.call("edit_file", {"path": "a.txt", "old_string": line, "new_string": line.upper()}) for line in lines
    ]
    others = [toolset.call("grep", {"pattern": "(?i)line"}), toolset.call("bash", {"command": "echo up"})]
    await asyncio.gather(*edits, *others)
    assert (root / "a.txt").read_text() == "".join(lines).upper()


async def test_two_toolsets_on_one_root_do_not_overwrite_each_other(root: Path, gate: RecordingGate, plant):
    plant({"a.txt": "one\ntwo\n"})
    async with DevToolset(Workspace(root), gate) as first, DevToolset(Workspace(root), gate) as second:
        for toolset in (first, second):
            await toolset.call("read_file", {"path": "a.txt"})
        await first.call("edit_file", {"path": "a.txt", "old_string": "one", "new_string": "1"})
        result = await second.call("edit_file", {"path": "a.txt", "old_string": "two", "new_string": "2"})
    assert result["data"]["changedSinceRead"] is True
    assert (root / "a.txt").read_text() == "1\n2\n"


# -- commands ----------------------------------------------------------------------------------------------------


async def test_lines_arrive_while_the_command_runs(toolset: DevToolset, root: Path):
    """The command goes on only after its first line has arrived."""
    told: list[dict[str, Any]] = []

    def progress(value: dict[str, Any]) -> None:
        told.append(value)
        (root / "go").touch()

    command = "echo one; until [ -e go ]; do sleep 0.02; done; echo two >&2"
    result = await toolset.call("bash", {"command": command, "timeout_secs": 20}, progress=progress)
    assert told == [
        {"kind": "output", "stream": "stdout", "text": "one"},
        {"kind": "output", "stream": "stderr", "text": "two"},
    ]
    assert result["data"]["exitCode"] == 0
    assert [entry["path"] for entry in result["written"]] == ["go"]


async def test_a_progress_callback_may_be_a_coroutine_function(toolset: DevToolset):
    told: asyncio.Queue[str] = asyncio.Queue(1)

    async def progress(value: dict[str, Any]) -> None:
        await told.put(value["text"])

    call = asyncio.create_task(toolset.call("bash", {"command": "printf '1\n'; printf '2\n' >&2"}, progress=progress))
    assert [await told.get(), await told.get()] == ["1", "2"]
    assert (await call)["content"] == "1\n2\n"


async def test_a_progress_callback_that_fails_ends_nothing(toolset: DevToolset, caplog: pytest.LogCaptureFixture):
    def progress(_value: dict[str, Any]) -> None:
        raise RuntimeError("the window is gone")

    result = await toolset.call("bash", {"command": "echo one"}, progress=progress)
    assert result["content"] == "one\n"
    assert "the window is gone" in caplog.text


SECRETS = ("PATH", "HOME", "CANARY", "OTHER", "DEVTOOLS_LSP_SOCKET")


@pytest.mark.parametrize(
    ("settings", "inherited"),
    [
        ({}, {"PATH", "HOME"}),
        ({"env_allow": ["PATH", "CANARY"]}, {"PATH", "CANARY"}),
        ({"env_allow": []}, {"PATH"}),
        ({"inherit_env": True}, {"PATH", "HOME", "CANARY", "OTHER"}),
        ({"inherit_env": True, "env_allow": ["PATH"]}, {"PATH", "HOME", "CANARY", "OTHER"}),
    ],
)
async def test_what_commands_inherit(
    root: Path,
    gate: RecordingGate,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    inherited: set[str],
):
    for name in ("CANARY", "OTHER"):
        monkeypatch.setenv(name, "sings")
    monkeypatch.setenv("DEVTOOLS_LSP_SOCKET", "/tmp/not-there.sock")
    async with DevToolset(Workspace(root, **settings), gate) as toolset:
        result = await toolset.call("bash", {"command": "env"})
    found = dict(line.split("=", 1) for line in result["data"]["stdout"].splitlines() if "=" in line)
    assert {name for name in SECRETS if name in found} == inherited
    assert (found["TERM"], found["GIT_EDITOR"], found["NO_COLOR"]) == ("dumb", "false", "1")


async def test_the_limits_of_a_command(root: Path, gate: RecordingGate, nap, running, eventually):
    command = nap()
    async with DevToolset(Workspace(root, bash_timeout_s=0.5, max_output_bytes=1024), gate) as toolset:
        late = await toolset.call("bash", {"command": f"echo up; {command}"})
        long = await toolset.call("bash", {"command": "seq 1 5000"})
        own = await toolset.call("bash", {"command": "sleep 0.8; echo late", "timeout_secs": 30})
    assert late["data"]["timedOut"] is True
    assert late["ok"] is False
    assert "timed out after 0.5 s" in late["content"]
    await eventually(lambda: not running(command))
    assert long["data"]["droppedBytes"] > 20_000
    assert len(long["content"]) < 2000
    assert own["content"] == "late\n"


async def test_the_hooks_of_the_shell(root: Path, gate: RecordingGate):
    told: list[str] = []

    def check(command: str) -> None:
        if "rm" in command.split():
            raise PolicyError("rm is not for agents", reason="protected")

    async with DevToolset(
        Workspace(root), gate, check_command=check, redact=lambda text: text.replace("hunter2", "***")
    ) as toolset:
        error = await refused(toolset.call("bash", {"command": "rm -r ."}), "E_DEV_POLICY")
        result = await toolset.call(
            "bash", {"command": "echo hunter2"}, progress=lambda value: told.append(value["text"])
        )
    assert error.message == "rm is not for agents"
    assert result["content"] == "***\n"
    assert told == ["***"]


# -- for a harness -----------------------------------------------------------------------------------------------


async def test_a_list_of_tools_is_the_callers_own(toolset: DevToolset):
    first = toolset.tools()
    first[0]["inputSchema"]["properties"].clear()
    assert toolset.tools()[0]["inputSchema"]["properties"]


async def test_a_models_calls_are_answered(toolset: DevToolset, plant):
    """A loop of a harness: whatever the model asks for, there is a result that goes back to it."""
    plant({"a.txt": "one\n"})

    async def answer(name: str, **arguments: Any) -> tuple[str, bool]:
        result = await toolset.answer({"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments})
        assert (result["type"], result["tool_use_id"]) == ("tool_result", "toolu_1")
        return result["content"], result["is_error"]

    assert await answer("read_file", path="a.txt") == ("     1\tone\n", False)
    assert await answer("edit_file", path="a.txt", old_string="one", new_string="1") == ("a.txt: edited\n", False)
    assert await answer("bash", command="true") == ("(no output)", False)
    text, is_error = await answer("edit_file", path="a.txt", old_string="two", new_string="2")
    assert is_error
    assert text.startswith("E_DEV_STEP_FAILED (noMatch): ")
    assert text.endswith("correct the call and repeat it")
    assert (await answer("bash", commnd="true"))[1]
    text, is_error = await answer("rm")
    assert is_error
    assert "the tools are read_file, write_file, edit_file, glob, grep, bash" in text
    with pytest.raises(DevToolsError, match="no call of a tool"):
        await toolset.answer({"type": "text", "text": "done"})


async def test_malformed_arguments_of_a_model_are_answered(toolset: DevToolset, gate: RecordingGate):
    result = await toolset.answer({"id": "call_1", "function": {"name": "bash", "arguments": '{"command": "tru'}})
    assert (result["role"], result["tool_call_id"]) == ("tool", "call_1")
    assert "not valid JSON" in result["content"]
    assert gate.questions == []


async def test_a_stopped_call_of_a_model_is_answered(toolset: DevToolset, root: Path, nap, eventually):
    stop = Cancellation()
    block = {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": f"touch up; {nap()}"}}
    call = asyncio.create_task(toolset.answer(block, signal=stop))
    await eventually((root / "up").exists)
    stop.cancel("the person pressed stop")
    result = await call
    assert result["is_error"] is True
    assert "the person pressed stop" in result["content"]
    assert "already on disk: up (added)" in result["content"]


async def test_what_a_reply_leaves_out_is_in_its_artifact(toolset: DevToolset):
    result = await toolset.call("bash", {"command": "for n in $(seq 400); do echo > file-number-$n.txt; done"})
    assert result["truncated"] is True
    assert result["omitted"]["written"] > 0
    whole = await toolset.artifact(result["artifact"]["handle"])
    assert len(whole["written"]) == 400
    assert msgspec.to_builtins(whole["written"][: len(result["written"])]) == result["written"]
    await refused(toolset.artifact("A" * 22), "E_DEV_BAD_ARG")


async def test_results_are_kept_outside_the_root(root: Path, gate: RecordingGate, monkeypatch: pytest.MonkeyPatch):
    """Also where the temporary directory is inside it: no tool finds them there."""
    (root / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(root / "tmp"))
    async with DevToolset(Workspace(root), gate) as toolset:
        await toolset.call("glob", {"pattern": "**"})
        assert list((root / "tmp").iterdir()) == []
