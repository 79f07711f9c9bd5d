"""The daemon's own life: reloads, restarts, what is lost with it, and that it can always be stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.place import ALLOW, ASK, Place, edit_of, until


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place]) -> Place:
    return new_place(ALLOW, {"a.txt": "a\n"})


@pytest.fixture(autouse=True)
def visit(place: Place) -> Iterator[None]:
    yield from place.visit()


# -- the configuration ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("[gate\n", "TOML"),
        ('[gate]\nmoed = "deny"\n', "mode"),
        ('[gate]\nmode = "maybe"\n', "gate.mode"),
        ("[gate]\ntimeout_s = -1\n", "gate.timeout_s"),
        ('[workspace]\nmax_files = "many"\n', "workspace.max_files"),
        ('[policy]\nallow_write = ["a**b"]\n', "allow_write"),
        ('[[gate.rules]]\ndecision = "perhaps"\n', "decision"),
        ('[engines.x]\npreset = "rufff"\n', "ruff"),
        ('[engines.x]\nkind = "command"\n', "command"),
        ("\xff\xfe", "devtools.toml"),
    ],
)
def test_a_broken_configuration_is_told_and_the_old_one_stays(place: Place, broken: str, says: str):
    """8.0.12, and mended again: it is in force without a restart."""
    place.reconfigure(ALLOW)
    agent = place.agent()
    assert agent.status()["skipped"] == []
    place.configure(broken)
    trouble = until(lambda: agent.status()["skipped"], "the trouble to be told")
    assert len(trouble) == 1
    assert says in trouble[0]
    assert "stays in force" in trouble[0]
    assert agent.status()["gate"]["mode"] == "allow"
    place.put({"a.txt": "a\n"})
    assert agent.edit("a.txt", "a", "b")["written"]
    place.reconfigure('[gate]\nmode = "deny"\n')
    assert agent.status()["skipped"] == []
    assert agent.refused("edit", edit_of("a.txt", "b", "c"))["reason"] == "denied"


def test_every_section_takes_effect_while_running(place: Place):
    agent = place.agent(surface="workspace")
    place.put({"a.txt": "a\n", "b.txt": "b\r\n", "locked/c.txt": "c\n", "hidden.txt": "h\n", "two.txt": "t\n"})
    place.reconfigure(ALLOW + '[policy]\ndeny_write = ["locked/**"]\ndeny_read = ["hidden.txt"]\n')
    assert agent.refused("write_file", {"path": "locked/c.txt", "content": ""})["code"] == "E_DEV_POLICY"
    assert agent.refused("read_file", {"path": "hidden.txt"})["code"] == "E_DEV_POLICY"
    place.reconfigure(ALLOW + "[workspace]\nmax_files = 1\n")
    data = agent.refused("dev_plan", {"paths": ["*.txt"], "ops": [{"step": "write"}]}, surface="composite")
    assert data["code"] == "E_DEV_WORKSPACE_BOUNDS"
    assert "max_files" in data["message"]
    assert agent.call("read_file", {"path": "hidden.txt"})["ok"]
    place.reconfigure(ALLOW + '[workspace]\ntext = "normalize"\n')
    result = agent.call("edit", edit_of("b.txt", "b", "B"), surface="granular")
    assert result["normalized"] == [{"path": "b.txt", "from": "utf-8 crlf", "to": "utf-8 lf"}]
    assert place.text("b.txt") == "B\n"
    place.reconfigure(ALLOW + "[shell]\nenabled = false\n")
    assert "bash" not in [tool["name"] for tool in agent.wire.request("devtools/tools")["tools"]]
    assert agent.refused("bash", {"command": "true"})["code"] == "E_DEV_STEP_UNAVAILABLE"
    place.reconfigure(ALLOW + "[workspace]\nread_only = true\n")
    names = [tool["name"] for tool in agent.wire.request("devtools/tools")["tools"]]
    assert names == ["read_file", "glob", "grep"]
    for surface, tool, arguments in (
        ("granular", "edit", edit_of("a.txt", "a", "b")),
        ("granular", "apply_patch", {"patch": "*** Begin Patch\n*** Add File: n\n+x\n*** End Patch\n"}),
        ("workspace", "write_file", {"path": "a.txt", "content": ""}),
        ("workspace", "bash", {"command": "true"}),
        ("composite", "dev_plan", {"paths": ["a.txt"], "ops": [{"step": "write"}]}),
    ):
        assert agent.refused(tool, arguments, surface=surface)["code"] == "E_DEV_READ_ONLY"
    assert agent.wire.refused("devtools/undo", {})["data"]["code"] == "E_DEV_READ_ONLY"
    assert place.text("a.txt") == "a\n"


def test_a_call_that_runs_ends_under_the_configuration_it_began_with(place: Place):
    place.reconfigure(ALLOW)
    agent = place.agent(surface="workspace")
    call = agent.begin("bash", {"command": "touch began; while [ ! -e go ]; do sleep 0.01; done; echo done"})
    until(lambda: (place.root / "began").exists(), "the command to run")
    place.reconfigure(ALLOW + "[workspace]\nread_only = true\n")
    place.put({"go": ""})
    assert agent.wire.result(call)["data"]["stdout"] == "done\n"
    assert agent.refused("bash", {"command": "true"})["code"] == "E_DEV_READ_ONLY"


def test_a_configuration_that_is_removed_leaves_the_defaults(place: Place):
    place.reconfigure(ALLOW)
    agent = place.agent()
    (place.root / "devtools.toml").unlink()
    until(lambda: agent.status()["gate"]["mode"] == "editor", "the defaults to be in force")
    assert agent.refused("edit", edit_of("a.txt", "a", "b"))["reason"] == "noDecider"
    place.put({"pyproject.toml": '[project]\nname = "p"\n[tool.devtools-lsp.gate]\nmode = "deny"\n'})
    until(lambda: agent.status()["gate"]["mode"] == "deny", "pyproject.toml to be read")
    data = agent.refused("write_file", {"path": "pyproject.toml", "content": ""}, surface="workspace")
    assert (data["code"], data["reason"]) == ("E_DEV_POLICY", "protected")
    (place.root / "pyproject.toml").unlink()
    place.reconfigure(ALLOW)


def test_no_approval_makes_a_configuration_of_ours(place: Place):
    """5.2.3: also where none is, and whoever approves."""
    place.reconfigure(ALLOW)
    agent, terminal = place.agent(), place.terminal()
    terminal.wire.request("devtools/approvals", {"watch": True})
    grab = {"path": "pyproject.toml", "content": '[tool.devtools-lsp.gate]\nmode = "allow"\n'}
    call = agent.begin("write_file", grab, surface="workspace")
    until(lambda: terminal.approvals() or any(m.get("id") == call for m in agent.wire.messages), "an outcome")
    for item in terminal.approvals():
        terminal.decide(item["id"], approve=True)
    assert agent.error(call)["code"] == "E_DEV_POLICY"
    assert not (place.root / "pyproject.toml").exists()


# -- restarts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_waited_is_lost_with_the_daemon(new_place: Callable[..., Place], how: str):
    """P97, 8.0.9: it cannot be decided any more, and nothing of it is applied."""
    place = new_place(ASK, {"a.txt": "a\n"})
    editor = place.editor()
    agent = place.agent()
    call = agent.begin_edit("a.txt", "a", "b")
    approval = editor.wait_mark("a.txt")["data"]["approvalId"]
    if how == "stop":
        assert place.process is not None
        place.process.send_signal(signal.SIGTERM)
        data = agent.error(call)
        assert data["code"] == "E_DEV_CANCELLED"
        editor.wire.wait_closed()
        place.wait_end()
    else:
        place.kill()
    place.put({"a.txt": "mine\n"})
    place.start()
    assert place.terminal().approvals() == []
    late = place.terminal().decide(approval, approve=True)
    assert late == {"id": approval, "status": "lost", "applied": False, "by": "daemon"}
    editor = place.editor()
    assert editor.marks("a.txt") == []
    assert place.text("a.txt") == "mine\n"
    assert place.agent().status()["pendingApprovals"] == 0


def test_undo_and_artifacts_outlive_a_restart(new_place: Callable[..., Place]):
    place = new_place(ALLOW, {"a.txt": "a\n", "b.txt": "b\n"})
    agent = place.agent()
    first = agent.edit("a.txt", "a", "A")
    agent.edit("b.txt", "b", "B")
    place.kill()
    place.start()
    agent = place.agent()
    page = agent.wire.request("devtools/artifact", {"handle": first["artifact"]["handle"]})
    assert page == {"items": [], "offset": 0, "total": 0}
    undone = agent.wire.request("devtools/undo", {"plan": first["plan"]})
    assert undone["written"] == [{"path": "a.txt", "kind": "modified"}]
    assert (place.text("a.txt"), place.text("b.txt")) == ("a\n", "B\n")
    place.put({"b.txt": "person\n"})
    data = agent.wire.refused("devtools/undo", {})["data"]
    assert (data["code"], data["paths"]) == ("E_DEV_CONFLICT", ["b.txt"])
    assert place.text("b.txt") == "person\n"


def test_stop_answers_what_runs_and_waits_for_nobody(new_place: Callable[..., Place]):
    """`stop` always works: with a question open, a command running, an editor attached and a client that is deaf."""
    place = new_place(ASK + '[[gate.rules]]\nstep = "bash"\ndecision = "allow"\n', {"a.txt": "a\n"})
    place.editor()
    deaf = place.wire()
    deaf.raw(b"Content-Length: 500\r\n\r\n{")
    agent = place.agent(surface="workspace")
    edit = agent.begin("edit", edit_of("a.txt", "a", "b"), surface="granular")
    bash = agent.begin("bash", {"command": "touch began; trap '' TERM; sleep 300"})
    until(lambda: (place.root / "began").exists() and agent.status()["pendingApprovals"], "both to wait")
    started = time.monotonic()
    done = place.cli("stop")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 30
    assert agent.error(edit)["code"] == "E_DEV_CANCELLED"
    data = agent.error(bash)
    assert (data["code"], data["step"]) == ("E_DEV_CANCELLED", "bash")
    assert data["written"] == [{"path": "began", "kind": "added"}]
    assert place.text("a.txt") == "a\n"
    place.wait_end()
    assert place.cli("stop").returncode == 0  # and again, when none runs


def test_any_client_may_ask_it_to_stop_in_any_version(place: Place, new_place: Callable[..., Place]):
    place = new_place(ALLOW)
    wire = place.wire()
    wire.start("devtools/stop")
    wire.wait_closed()
    place.wait_end()


def test_it_ends_by_itself_when_nobody_comes(new_place: Callable[..., Place]):
    place = new_place(ALLOW + "[daemon]\nidle_exit_s = 0.5\n")
    agent = place.agent()
    time.sleep(0.7)  # what is shown is that nothing happens meanwhile: a client is there
    assert agent.status()["pid"]
    agent.wire.close()
    place.wait_end()


@pytest.mark.full
def test_stop_ends_a_daemon_that_hangs(new_place: Callable[..., Place]):
    """One that does not answer, nor take SIGTERM, is killed in the end; that takes its bounds, and no longer."""
    place = new_place(ALLOW)
    assert place.process is not None
    place.process.send_signal(signal.SIGSTOP)
    done = place.cli("stop", timeout_s=110)
    assert (done.returncode, done.stdout) == (0, "killed\n")
    place.wait_end(-signal.SIGKILL)


def test_the_log_of_a_daemon_that_a_command_started_is_kept(new_place: Callable[..., Place]):
    place = new_place(ALLOW, {"a.txt": "a\n"}, start=False)
    assert place.cli("call", "read_lines", "--args", '{"path": "a.txt", "start": 1}').returncode == 0
    assert (place.state / "daemon.log").stat().st_mode & 0o777 == 0o600
    assert place.cli("stop").returncode == 0
