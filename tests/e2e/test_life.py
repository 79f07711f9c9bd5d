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
    """8.0.12."""
    agent = place.agent()
    place.configure(broken)
    (trouble,) = until(lambda: [said for said in agent.status()["skipped"] if says in said], "the trouble to be told")
    assert "stays in force" in trouble
    assert agent.status()["skipped"] == [trouble]
    assert agent.status()["gate"]["mode"] == "allow"
    place.put({"a.txt": "a\n"})
    assert agent.edit("a.txt", "a", "b")["written"]


def test_a_configuration_that_was_mended_is_in_force_without_a_restart(place: Place):
    agent = place.agent()
    place.configure("[gate\n")
    until(lambda: agent.status()["skipped"], "the trouble to be told")
    place.put({"a.txt": "a\n"})
    place.reconfigure('[gate]\nmode = "deny"\n')
    assert agent.status()["skipped"] == []
    assert agent.refused("edit", edit_of("a.txt", "a", "b"))["reason"] == "denied"


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


def test_no_call_is_harmed_by_a_reload(place: Place):
    """Calls of four agents while the configuration changes all the time; and what they did can be undone."""
    place.reconfigure(ALLOW)
    names = [f"reload/{number}.txt" for number in range(4)]
    place.put(dict.fromkeys(names, "0\n"))
    agents = [place.agent(name) for name in names]
    began, number = time.monotonic(), 0
    while time.monotonic() - began < 0.8 or number < 12:
        if number % 3 == 0:
            place.configure(f"{ALLOW}timeout_s = {number + 100}\n")
        calls = [
            agent.begin_edit(name, f"{number}\n", f"{number + 1}\n") for agent, name in zip(agents, names, strict=True)
        ]
        for agent, call in zip(agents, calls, strict=True):
            assert agent.wire.result(call)["written"]
        number += 1
    place.reconfigure(ALLOW)
    assert {place.text(name) for name in names} == {f"{number}\n"}
    undone = agents[0].wire.request("devtools/undo")["written"]
    assert [entry["kind"] for entry in undone] == ["modified"]
    assert sorted(place.text(name) for name in names) == sorted([f"{number}\n"] * 3 + [f"{number - 1}\n"])


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


@pytest.fixture(scope="module")
def mortal_place(new_place: Callable[..., Place]) -> Place:
    rules = '[[gate.rules]]\nstep = "bash"\ndecision = "allow"\n'
    free = '[[gate.rules]]\nstep = "edit"\npaths = ["free/**"]\ndecision = "allow"\n'
    return new_place(ASK + rules + free, start=False)


@pytest.fixture
def mortal(mortal_place: Place) -> Place:
    """A daemon that a test may end; the next one starts it again."""
    if mortal_place.process is None:
        mortal_place.start()
    return mortal_place


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.full), "kill"])
def test_what_waited_is_lost_with_the_daemon(mortal: Place, how: str):
    """P97, 8.0.9: it cannot be decided any more, and nothing of it is applied."""
    mortal.put({"a.txt": "a\n"})
    editor = mortal.editor()
    agent = mortal.agent()
    call = agent.begin_edit("a.txt", "a", "b")
    approval = editor.wait_mark("a.txt")["data"]["approvalId"]
    if how == "stop":
        assert mortal.process is not None
        mortal.process.send_signal(signal.SIGTERM)
        assert agent.error(call)["code"] == "E_DEV_CANCELLED"
        editor.wire.wait_closed()
        mortal.wait_end()
    else:
        mortal.kill()
    mortal.put({"a.txt": "mine\n"})
    mortal.start()
    assert mortal.terminal().approvals() == []
    late = mortal.terminal().decide(approval, approve=True)
    assert late == {"id": approval, "status": "lost", "applied": False, "by": "daemon"}
    editor = mortal.editor()
    assert editor.marks("a.txt") == []
    assert mortal.text("a.txt") == "mine\n"
    assert mortal.agent().status()["pendingApprovals"] == 0


def test_undo_and_artifacts_outlive_a_restart(mortal: Place):
    mortal.put({"free/a.txt": "a\n", "free/b.txt": "b\n"})
    agent = mortal.agent()
    first = agent.edit("free/a.txt", "a", "A")
    second = agent.edit("free/b.txt", "b", "B")
    # The answer does not wait for its artifact to be on the disk.
    kept = mortal.state / "artifacts"
    until(
        lambda: [file for file in kept.iterdir() if file.name.startswith(first["artifact"]["handle"])], "the artifact"
    )
    mortal.kill()
    mortal.start()
    agent, editor = mortal.agent(), mortal.editor()
    page = agent.wire.request("devtools/artifact", {"handle": first["artifact"]["handle"]})
    assert page == {"items": [], "offset": 0, "total": 0}
    call = agent.wire.start("devtools/undo", {"plan": first["plan"]})
    editor.choose("free/a.txt", "Approve")
    assert agent.wire.result(call)["written"] == [{"path": "free/a.txt", "kind": "modified"}]
    assert (mortal.text("free/a.txt"), mortal.text("free/b.txt")) == ("a\n", "B\n")
    mortal.put({"free/b.txt": "person\n"})
    data = agent.wire.refused("devtools/undo", {"plan": second["plan"]})["data"]
    assert (data["code"], data["paths"]) == ("E_DEV_CONFLICT", ["free/b.txt"])
    assert agent.wire.refused("devtools/undo", {"plan": "p-unknown"})["data"]["code"] == "E_DEV_BAD_ARG"
    assert mortal.text("free/b.txt") == "person\n"


def test_stop_answers_what_runs_and_waits_for_nobody(mortal: Place):
    """`stop` always works: with a question open, a command running, an editor attached and a client that is deaf."""
    mortal.put({"a.txt": "a\n"})
    mortal.editor()
    deaf = mortal.wire()
    deaf.raw(b"Content-Length: 500\r\n\r\n{")
    agent = mortal.agent(surface="workspace")
    edit = agent.begin("edit", edit_of("a.txt", "a", "b"), surface="granular")
    bash = agent.begin("bash", {"command": "touch began; trap '' TERM; sleep 300"})
    until(lambda: (mortal.root / "began").exists() and agent.status()["pendingApprovals"], "both to wait")
    started = time.monotonic()
    done = mortal.cli("stop")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 30
    assert agent.error(edit)["code"] == "E_DEV_CANCELLED"
    data = agent.error(bash)
    assert (data["code"], data["step"]) == ("E_DEV_CANCELLED", "bash")
    assert data["written"] == [{"path": "began", "kind": "added"}]
    assert mortal.text("a.txt") == "a\n"
    mortal.wait_end()
    assert mortal.cli("stop").returncode == 0  # and again, when none runs


def test_any_client_may_ask_it_to_stop(mortal: Place):
    """Whatever its version: nothing has to be agreed upon first."""
    wire = mortal.wire()
    wire.start("devtools/stop")
    wire.wait_closed()
    mortal.wait_end()


@pytest.mark.full
def test_it_ends_by_itself_when_nobody_comes(mortal_place: Place):
    if mortal_place.process is not None:
        mortal_place.stop()
    mortal_place.configure(ALLOW + "[daemon]\nidle_exit_s = 0.5\n")
    mortal_place.start()
    agent = mortal_place.agent()
    began = time.monotonic()
    while time.monotonic() - began < 0.8:
        assert agent.status()["pid"] == mortal_place.pid
    agent.wire.close()
    mortal_place.wait_end()


@pytest.mark.full
def test_stop_ends_a_daemon_that_hangs(new_place: Callable[..., Place]):
    """One that does not answer, nor take SIGTERM, is killed in the end; that takes its bounds, and no longer."""
    place = new_place(ALLOW)
    assert place.process is not None
    place.process.send_signal(signal.SIGSTOP)
    done = place.cli("stop", timeout_s=110)
    assert (done.returncode, done.stdout) == (0, "killed\n")
    place.wait_end(-signal.SIGKILL)
