"""The commands of a terminal: exit codes, what goes to which stream, and that a daemon is started when none runs."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import signal
import socket
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.place import ALLOW, ASK, MISSING, PROGRAM, RUFF, Agent, Place, edit_of, op, until
from tests.e2e.wire import WAIT_S, Wire


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place]) -> Place:
    return new_place(ALLOW + RUFF, {"clean.py": "VALUE = 1\n", "bad.py": "import os\nprint(nothing)\n"})


@pytest.fixture(autouse=True)
def visit(place: Place) -> Iterator[None]:
    yield from place.visit()


@pytest.fixture
def idle(new_place: Callable[..., Place]) -> Iterator[Place]:
    """A root without a daemon; one that is started meanwhile ends with the test."""
    found = new_place(ALLOW, {"a.txt": "a\n"}, start=False)
    yield found
    for socket_path in (found.base / "run").rglob("*.sock"):
        wire = Wire.to_socket(str(socket_path))
        wire.start("devtools/stop")
        wire.wait_closed()
        wire.close()


@pytest.fixture(scope="module")
def asking(new_place: Callable[..., Place]) -> Place:
    """A daemon that asks, at a socket that was chosen."""
    found = new_place(ASK, {"a.txt": "a\n"}, start=False)
    found.env["DEVTOOLS_LSP_SOCKET"] = str(found.base / "chosen.sock")
    found.start()
    assert found.socket == str(found.base / "chosen.sock")
    return found


def error_object(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The object on standard error of a command that was refused."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    found = json.loads(done.stderr.splitlines()[-1])
    assert {"code", "message", "retry"} <= set(found)
    return found


def test_a_call_that_is_ok(place: Place):
    done = place.cli("call", "edit", "--args", json.dumps(edit_of("clean.py", "VALUE = 1", "VALUE = 2")))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ok: 1 file changed")
    assert "clean.py +1 -1" in done.stdout
    assert place.text("clean.py") == "VALUE = 2\n"


def test_a_call_as_json_and_from_standard_input(place: Place):
    done = place.cli("call", "read_lines", "--json", stdin=json.dumps({"path": "bad.py", "start": 1, "end": 1}))
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["reads"]["bad.py"]["text"] == "import os\n"
    assert result["summary"]


def test_error_diagnostics_are_exit_code_1(place: Place):
    done = place.cli("call", "lint", "--args", '{"paths": ["bad.py"]}')
    assert (done.returncode, done.stderr) == (1, "")
    assert "bad.py:2:7: error F821" in done.stdout
    assert "[ruff]" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("edit", "--args", json.dumps(edit_of("clean.py", "absent", ""))), "E_DEV_STEP_FAILED"),
        (("edit", "--args", "[1]"), "E_DEV_BAD_ARG"),
        (("edit", "--args", "{no json"), "E_DEV_BAD_ARG"),
        (("edit", "--args", "{}", "--surface", "huge"), "E_DEV_BAD_ARG"),
        (("frob", "--args", "{}"), "E_DEV_UNKNOWN_STEP"),
    ],
)
def test_what_is_refused_is_exit_code_2_with_the_error_object(place: Place, arguments: tuple[str, ...], code: str):
    assert error_object(place.cli("call", *arguments))["code"] == code


def test_where_a_person_looks_an_error_is_sentences(place: Place):
    """Standard error is a terminal; with --json it is the object all the same."""
    call = ("call", "edit", "--root", str(place.root), "--args", json.dumps(edit_of("clean.py", "absent", "x")))
    for more in ((), ("--json",)):
        shown, terminal = pty.openpty()
        done = subprocess.run(
            [PROGRAM, *call, *more], env=place.env, stdin=subprocess.DEVNULL, stderr=terminal, timeout=30, check=False,
        )  # fmt: skip
        os.close(terminal)
        said = os.read(shown, 65536).decode().replace("\r\n", "\n")
        os.close(shown)
        assert done.returncode == 2
        assert ("(E_DEV_STEP_FAILED, noMatch)" in said) == (not more), said
        assert ("\n  at: edit clean.py:1\n" in said) == (not more), said
        assert said.startswith("{") == bool(more), said


def test_a_tool_of_another_surface_is_told_with_its_surface(place: Place):
    data = error_object(place.cli("call", "grep", "--args", '{"pattern": "VALUE"}'))
    assert (data["code"], data["retry"]) == ("E_DEV_UNKNOWN_STEP", "afterCorrection")
    assert "add --surface workspace" in data["message"]
    assert place.cli("call", "grep", "--surface", "workspace", "--args", '{"pattern": "VALUE"}').returncode == 0


def test_a_plan(place: Place):
    place.put({"plan.py": "import os\n"})
    ops = json.dumps([op("lint", fix=True), op("write")])
    done = place.cli("plan", "plan.py", "--ops", ops, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["written"] == [{"path": "plan.py", "kind": "modified"}]
    assert place.text("plan.py") == ""
    assert error_object(place.cli("plan", "--ops", "[]"))["code"] == "E_DEV_BAD_ARG"
    undone = place.cli("undo", "--json")
    assert undone.returncode == 0, undone.stderr
    assert place.text("plan.py") == "import os\n"


def test_an_undo_of_what_somebody_changed_says_what_can_be_done(place: Place):
    place.put({"u.txt": "a\n", "v.txt": "a\n"})
    place.cli("call", "edit", "--args", json.dumps(edit_of("v.txt", "a", "b")))
    earlier = json.loads(place.cli("call", "edit", "--json", "--args", json.dumps(edit_of("u.txt", "a", "b"))).stdout)
    place.put({"u.txt": "b\nmine\n"})
    data = error_object(place.cli("undo"))
    assert (data["code"], data["reason"], data["paths"]) == ("E_DEV_CONFLICT", "stale", ["u.txt"])
    assert data["retry"] == "afterCorrection"
    assert "put the files back" in data["message"]
    assert place.text("u.txt") == "b\nmine\n"
    # What the message says is true: another plan is undone by its id, and this one once its file is as it left it.
    ids = [line["plan"] for line in place.activity(event="landed")]
    assert place.cli("undo", ids[-2]).returncode == 0
    assert place.text("v.txt") == "a\n"
    place.put({"u.txt": "b\n"})
    assert place.cli("undo", earlier["plan"]).returncode == 0
    assert place.text("u.txt") == "a\n"


def test_the_agents_name_reaches_the_log(place: Place):
    before = [line["agent"] for line in place.activity(event="gate")]
    assert set(before) == {"terminal"}
    place.cli("call", "read_lines", "--agent", "robot", "--args", '{"path": "clean.py", "start": 1}')
    assert [line["agent"] for line in place.activity(event="gate")[len(before) :]] == ["robot", "robot"]
    lines = place.cli("log", "--json", "-n", "2").stdout.splitlines()
    assert [json.loads(line)["step"] for line in lines] == ["acquire", "read_lines"]


def test_a_line_that_a_crash_cut_short_hides_no_other(place: Place):
    log = place.state / "activity.jsonl"
    before = log.stat().st_size
    with log.open("a") as file:
        file.write('{"time": "2026-')
    shown = place.cli("log")
    os.truncate(log, before)
    assert shown.returncode == 0, shown.stderr
    assert "acquire" in shown.stdout
    assert "not a whole line" in shown.stdout


@pytest.mark.full
def test_a_session_remembers_what_was_read(place: Place):
    place.put({"s.txt": "a\n"})
    replace = ("call", "edit_file", "--surface", "workspace", "--args")
    arguments = json.dumps({"path": "s.txt", "old_string": "a", "new_string": "b"})
    read = ("call", "read_file", "--surface", "workspace", "--args", '{"path": "s.txt"}')
    unread = error_object(place.cli(*replace, arguments))
    assert unread["code"] == "E_DEV_NOT_READ"
    assert "--session NAME" in unread["message"]
    assert place.cli(*read, "--session", "night").returncode == 0
    assert place.cli(*replace, arguments, "--session", "night").returncode == 0
    assert place.text("s.txt") == "b\n"


def test_output_of_a_command_goes_to_standard_error_line_by_line(place: Place):
    command = json.dumps({"command": "echo one; echo two"})
    done = place.cli("call", "bash", "--surface", "workspace", "--json", "--args", command)
    assert done.returncode == 0
    assert done.stderr == "one\ntwo\n"
    assert json.loads(done.stdout)["data"]["stdout"] == "one\ntwo\n"


def test_status(place: Place):
    done = place.cli("status", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    status = json.loads(done.stdout)
    assert (status["pid"], status["root"]) == (place.pid, str(place.root))


def test_tools(place: Place):
    done = place.cli("tools", "--json", "--surface", "composite")
    assert [tool["name"] for tool in json.loads(done.stdout)] == ["dev_plan"]


def test_without_a_daemon_a_question_about_it_is_refused(idle: Place):
    nowhere = idle.base / "nowhere"
    nowhere.mkdir()
    assert "--root" in error_object(idle.cli("status", rooted=False, cwd=nowhere))["message"]
    for command in (("status", "--json"), ("approve", "x")):
        data = error_object(idle.cli(*command))
        assert (data["code"], data["reason"]) == ("E_DEV_STEP_FAILED", "notFound")
        assert "devtools-lsp serve" in data["message"]
    assert idle.cli("log", "--json").stdout == ""


def test_a_call_starts_a_daemon_that_stays(idle: Place):
    first = idle.cli("call", "edit", "--args", json.dumps(edit_of("a.txt", "a", "b")))
    assert first.returncode == 0, first.stderr
    assert idle.text("a.txt") == "b\n"
    pid = json.loads(idle.cli("status", "--json").stdout)["pid"]
    # From a directory below, without --root: the nearest one up that has a mark of a project is the root.
    below = idle.root / "src" / "deep"
    below.mkdir(parents=True)
    edit = json.dumps(edit_of("a.txt", "b", "c"))
    assert idle.cli("call", "edit", "--args", edit, rooted=False, cwd=below).returncode == 0
    assert idle.text("a.txt") == "c\n"
    assert json.loads(idle.cli("status", "--json").stdout)["pid"] == pid
    assert (idle.state / "daemon.log").stat().st_mode & 0o777 == 0o600
    done = idle.cli("stop", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"stop": "stopped"})
    # Nobody may be there to reap a daemon whose starter is gone.
    until(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, "its process to end"
    )


@pytest.mark.full
def test_an_editor_starts_a_daemon_through_the_proxy(idle: Place):
    """And it stays when the editor leaves."""
    editor = idle.editor("utf-32", wire=idle.stdio())
    assert editor.encoding == "utf-32"
    pid = editor.wire.request("devtools/status")["pid"]
    editor.wire.close()
    assert json.loads(idle.cli("status", "--json").stdout)["pid"] == pid


@pytest.mark.parametrize(("command", "root"), [("serve", "{home}"), ("init", "{root}/clean.py")])
def test_roots_that_are_refused(place: Place, command: str, root: str):
    """P104."""
    named = root.format(home=place.env["HOME"], base=place.base, root=place.root)
    done = place.cli(command, "--root", named, rooted=False)
    assert error_object(done)["code"] == "E_INVALID_DEV_PIPELINE_CONFIG"


def test_one_daemon_for_a_root(place: Place):
    data = error_object(place.cli("serve"))
    assert str(place.pid) in data["message"]


def test_a_configuration_that_is_wrong_is_told_at_the_start(new_place: Callable[..., Place]):
    place = new_place('[gate]\nmoed = "allow"\n', start=False)
    data = error_object(place.cli("call", "edit", "--args", "{}"))
    assert (data["code"], data["path"]) == ("E_INVALID_DEV_PIPELINE_CONFIG", "devtools.toml")
    assert data["message"] == ("the daemon did not start: devtools.toml: unknown key 'gate.moed'; did you mean 'mode'?")


# -- people ---------------------------------------------------------------------------------------------------------


def test_a_person_watches_and_decides_in_terminals(asking: Place):
    place = asking
    place.put({"a.txt": "a\n"})
    watching = subprocess.Popen(
        [PROGRAM, "approvals", "--root", place.root, "--watch", "--json"],
        env=place.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    try:
        _until_somebody_watches(place)
        assert "watching terminals 1" in place.cli("status").stdout
        assert "nobody is there" not in place.cli("status").stdout
        agent = place.agent("ada")
        call = agent.begin_edit("a.txt", "a", "b")
        shown = next(entry for line in watching.stdout if (entry := json.loads(line))["agent"] == "ada")
        listed = json.loads(place.cli("approvals", "--json").stdout)
        assert [entry["id"] for entry in listed] == [shown["id"]]
        text = place.cli("approvals").stdout
        assert "-a" in text
        assert "+b" in text
        denied = place.cli("deny", shown["id"], "--note", "not today")
        assert (denied.returncode, denied.stdout.strip()) == (0, f"{shown['id']}: denied by terminal")
        assert agent.error(call)["note"] == "not today"
        late = place.cli("approve", shown["id"], "--json")
        assert late.returncode == 2
        assert json.loads(late.stdout)["status"] == "denied"
        call = agent.begin_edit("a.txt", "a", "b")
        shown = json.loads(watching.stdout.readline())
        # The number behind the dash will do; the beginning of an id will not, for it may be another's whole id.
        assert place.cli("approve", shown["id"].partition("-")[0]).returncode == 2
        approved = place.cli("approve", shown["id"].partition("-")[2], "--remember", "--json")
        answer = json.loads(approved.stdout)
        assert answer["status"] == "approved"
        assert agent.wire.result(call)["written"]
        assert agent.edit("a.txt", "b", "c")["written"]
        # Another session is asked again, until a person puts the rule that was printed into the configuration.
        again = place.agent("ada")
        call = again.begin_edit("a.txt", "c", "d")
        shown = json.loads(watching.stdout.readline())
        text = place.cli("approve", shown["id"], "--remember").stdout
        assert "until the agent's session ends" in text
        assert "add to devtools.toml" in text
        assert text.endswith(f"\n{answer['rule']}")
        assert again.wire.result(call)["written"]
        place.reconfigure(ASK + "\n" + text[text.index("[[gate.rules]]") :])
        assert place.agent("ada").edit("a.txt", "d", "e")["written"]
        other = place.agent("eve")
        call = other.begin_edit("a.txt", "e", "f")
        assert json.loads(watching.stdout.readline())["agent"] == "eve"
        other.wire.notify("$/cancelRequest", {"id": call})
        assert other.error(call)["code"] == "E_DEV_CANCELLED"
        place.reconfigure(ASK)
    finally:
        watching.terminate()
        watching.communicate(timeout=20)


def test_a_rule_to_keep_is_spelled_for_the_file_that_configures_the_root(new_place: Callable[..., Place]):
    configured = ASK.replace("[gate]", "[tool.devtools-lsp.gate]")
    place = new_place("", {"pyproject.toml": configured, "a.txt": "a\n"})
    person, agent = place.terminal(), place.agent("ada")
    person.wire.request("devtools/approvals", {"watch": True})
    call = agent.begin_edit("a.txt", "a", "b")
    (item,) = person.waiting()
    text = place.cli("approve", item["id"], "--remember").stdout
    assert agent.wire.result(call)["written"]
    assert "add to pyproject.toml" in text
    (rule,) = tomllib.loads(text[text.index("[[") :])["tool"]["devtools-lsp"]["gate"]["rules"]
    assert rule["agent"] == "ada"
    # In editors it is said in a message, and plugins are told the file.
    editor, other = place.editor(), place.agent("eve")
    call = other.begin_edit("a.txt", "b", "c")
    (item,) = person.waiting()
    remember = {"command": "devtools.rememberAndApprove", "arguments": [{"id": item["id"]}]}
    decided = editor.wire.request("workspace/executeCommand", remember)
    assert other.wire.result(call)["written"]
    assert decided["ruleFile"] == "pyproject.toml"
    (rule,) = tomllib.loads(decided["rule"])["tool"]["devtools-lsp"]["gate"]["rules"]
    assert rule["agent"] == "eve"
    said = editor.wire.told("window/showMessage")[-1]["message"]
    assert said.endswith(f"add to pyproject.toml:\n{decided['rule']}")


def _until_somebody_watches(place: Place) -> None:
    place.put({"probe.txt": "a\n"})
    probe = place.agent("probe")

    def waits() -> bool:
        call = probe.begin_edit("probe.txt", "a", "b")
        until(lambda: probe.approvals() or any(m.get("id") == call for m in probe.wire.messages), "an outcome")
        if not probe.approvals():
            return False
        probe.wire.notify("$/cancelRequest", {"id": call})
        return probe.error(call)["code"] == "E_DEV_CANCELLED"

    until(waits, "the terminal to watch")


@pytest.fixture
def waiting_call(asking: Place) -> Iterator[tuple[subprocess.Popen[str], Agent]]:
    """`call edit` in a terminal, and the terminal that is asked about it."""
    visit = asking.visit()
    next(visit)
    asking.put({"a.txt": "a\n"})
    terminal = asking.terminal()
    terminal.wire.request("devtools/approvals", {"watch": True})
    calling = subprocess.Popen(
        [PROGRAM, "call", "edit", "--root", asking.root, "--args", json.dumps(edit_of("a.txt", "a", "b"))],
        env=asking.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    terminal.waiting()
    yield calling, terminal
    calling.kill()
    calling.communicate()
    next(visit, None)


def test_a_call_that_waits_says_whom_to_ask(waiting_call: tuple[subprocess.Popen[str], Agent]):
    calling, terminal = waiting_call
    (item,) = terminal.approvals()
    assert calling.stderr is not None
    assert f"devtools-lsp approve {item['id']}" in calling.stderr.readline()
    terminal.decide(item["id"], approve=False)
    _, stderr = calling.communicate(timeout=30)
    assert calling.returncode == 2
    assert json.loads(stderr.splitlines()[-1])["reason"] == "denied"


def test_an_interrupted_call_withdraws_its_question(waiting_call: tuple[subprocess.Popen[str], Agent]):
    calling, terminal = waiting_call
    calling.send_signal(signal.SIGINT)
    stdout, stderr = calling.communicate(timeout=30)
    assert (calling.returncode, stdout) == (130, "")
    assert terminal.wire.wait_told("devtools/approvalResolved")["status"] == "withdrawn"
    told = json.loads(stderr.splitlines()[-1])
    assert told["code"] == "E_DEV_CANCELLED"
    assert "nothing was written" in told["message"]
    assert "withdrawn" in told["message"]


def test_a_call_interrupted_before_a_daemon_answers_was_not_sent(idle: Place):
    """The daemon's place is held by something that accepts and never answers."""
    path = idle.base / "silent.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        silent.settimeout(WAIT_S)
        calling = subprocess.Popen(
            [PROGRAM, "call", "check", "--root", idle.root, "--args", "{}"],
            env={**idle.env, "DEVTOOLS_LSP_SOCKET": str(path)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        connection, _ = silent.accept()
        connection.settimeout(WAIT_S)
        connection.recv(1)
        calling.send_signal(signal.SIGINT)
        _, stderr = calling.communicate(timeout=30)
        connection.close()
    assert calling.returncode == 130
    assert "nothing was done" in json.loads(stderr.splitlines()[-1])["message"]


# -- setting up -----------------------------------------------------------------------------------------------------


def test_init_finds_what_is_installed_and_the_projects_interpreter(new_place: Callable[..., Place], engines: None):
    place = new_place("", {"a.py": "x = 1\n", "pyproject.toml": '[project]\nname = "p"\nversion = "0"\n'}, start=False)
    interpreter = place.root / ".venv" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to(Path(os.path.realpath(PROGRAM.parent / "python")))
    (place.root / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    dry = place.cli("init", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert not (place.root / "devtools.toml").exists()
    done = place.cli("init", "--json")
    assert done.returncode == 0, done.stderr
    assert {"ruff", "basedpyright"} <= set(json.loads(done.stdout)["engines"])
    written = place.text("devtools.toml")
    assert written == dry.stdout
    assert ".venv" in written
    assert error_object(place.cli("init"))["code"] == "E_INVALID_DEV_PIPELINE_CONFIG"
    assert place.text("devtools.toml") == written


def test_doctor_starts_each_engine_and_says_what_to_mend(new_place: Callable[..., Place], engines: None):
    place = new_place(ALLOW + RUFF + MISSING, {"a.py": "x = 1\n"}, start=False)
    done = place.cli("doctor", "--json")
    assert done.returncode == 2
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["engine ruff"]["ok"] is True
    assert checks["engine gone"]["ok"] is False
    assert "no-such-server" in checks["engine gone"]["message"] + checks["engine gone"].get("remedy", "")
    assert (place.root / "a.py").read_text() == "x = 1\n"


@pytest.mark.full
def test_a_foreign_thing_at_the_place_of_the_socket_is_not_touched(new_place: Callable[..., Place]):
    """P109."""
    place = new_place(ALLOW, start=False)
    victim = place.base / "victim"
    victim.write_text("precious\n")
    runtime = place.base / "run" / "devtools-lsp"
    runtime.symlink_to(place.base / "elsewhere")
    assert error_object(place.cli("serve"))["code"] == "E_DEV_POLICY"
    runtime.unlink()
    place.start()
    path = Path(place.socket)
    place.stop()
    path.symlink_to(victim)
    assert error_object(place.cli("serve"))["code"] == "E_DEV_POLICY"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        assert place.cli("serve").returncode == 2
    assert victim.read_text() == "precious\n"
    assert place.cli("status").returncode == 2
    place.start()  # the socket of one that is gone is stale, and is replaced


def test_the_socket_and_its_directory_are_private(place: Place):
    path = Path(place.socket)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert place.state.stat().st_mode & 0o777 == 0o700
    assert path.name == f"{hashlib.sha256(str(place.root).encode()).hexdigest()[:16]}.sock"
