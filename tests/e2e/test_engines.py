"""Engines as the daemon runs them: missing ones, dying ones, what they are told, and that none outlives it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.e2e.place import ALLOW, BASEDPYRIGHT, MISSING, RUFF, Agent, Place, alive, edit_of, op, until

DYING = f"""
[engines.dying]
kind = "language-server"
command = ["{sys.executable}", "-c", "raise SystemExit(1)"]
extensions = ["txt"]
capabilities = ["lint"]
"""
STUCK = f"""
[engines.stuck]
kind = "command"
command = ["{sys.executable}", "-c", "import time; time.sleep(60)"]
extensions = ["md"]
capabilities = ["format"]
timeout_s = 0.4
"""


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place], engines: None) -> Place:
    place = new_place(
        ALLOW + RUFF + BASEDPYRIGHT + DYING + STUCK, {"a.py": "VALUE = 1\n", "a.txt": "a\n", "a.md": "a\n"}
    )
    place.tolerated.append("dying")
    return place


@pytest.fixture(autouse=True)
def visit(place: Place) -> Iterator[None]:
    yield from place.visit()


@pytest.fixture
def agent(place: Place) -> Agent:
    return place.agent()


def engine(agent: Agent, name: str) -> dict[str, Any]:
    return next(entry for entry in agent.status()["engines"] if entry["id"] == name)


def test_an_engine_that_is_not_installed_prevents_nothing(new_place: Callable[..., Place]):
    """The daemon starts, the step is not offered, and status says why."""
    place = new_place(ALLOW + MISSING, {"a.py": "x = 1\n"})
    agent = place.agent()
    assert "check" not in [tool["name"] for tool in agent.greeting["tools"]]
    gone = engine(agent, "gone")
    assert (gone["state"], gone["version"], gone["path"], gone["generation"]) == ("missing", None, None, 0)
    assert "no-such-server" in gone["reason"]
    data = agent.refused("check", {"paths": ["a.py"]})
    assert (data["code"], data["retry"]) == ("E_DEV_ENGINE_REQUIRED", "no")
    assert "do not retry" in data["message"]
    assert "edit" in data["alternatives"]
    plan = agent.refused("dev_plan", {"paths": ["a.py"], "ops": [op("check")]}, surface="composite")
    assert plan["code"] == "E_DEV_ENGINE_REQUIRED"
    assert agent.edit("a.py", "x = 1", "x = 2")["written"]


def test_an_engine_that_always_dies_is_unavailable_and_nothing_else_is(place: Place, agent: Agent):
    """P100: each call is answered soon, restarts are few, other engines and edits go on."""
    for _ in range(3):
        started = time.monotonic()
        data = agent.refused("lint", {"paths": ["a.txt"]})
        assert data["code"] == "E_DEV_STEP_FAILED"
        assert "dying" in data["message"]
        assert time.monotonic() - started < 15
    state = engine(agent, "dying")
    assert state["state"] not in ("ready", "starting")
    assert state["reason"]
    assert state["generation"] <= 10
    assert agent.edit("a.txt", "a", "b")["written"]
    assert agent.call("lint", {"paths": ["a.py"]})["ok"]
    place.put({"a.txt": "a\n"})


def test_a_formatter_that_hangs_is_ended_in_time(place: Place, agent: Agent):
    """P113."""
    started = time.monotonic()
    data = agent.refused("format", {"paths": ["a.md"]})
    assert time.monotonic() - started < 10
    assert data["code"] in ("E_DEV_STEP_FAILED", "E_DEV_TIMEOUT")
    assert "stuck" in data["message"]
    assert place.text("a.md") == "a\n"
    until(lambda: not [name for name in _commands(place) if "time.sleep(60)" in name], "the formatter to be ended")


def _commands(place: Place) -> list[str]:
    found: list[str] = []
    for process in place.family():
        try:
            found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def test_a_file_that_another_program_makes_is_known_at_the_next_check(place: Place, agent: Agent):
    """P93, D8: made, changed and deleted by bash, by a person, and by an edit of ours."""
    place.put({"user.py": "from helper import fly\n\nfly()\n"})
    missing = agent.call("check", {"paths": ["user.py"]})
    assert missing["counts"]["error"] >= 1
    agent.call("bash", {"command": "printf 'def fly() -> None: ...\\n' > helper.py"}, surface="workspace")
    assert agent.call("check", {"paths": ["user.py"]})["counts"]["error"] == 0
    place.put({"helper.py": "def walk() -> None: ...\n"})
    until(lambda: agent.call("check", {"paths": ["user.py"]})["counts"]["error"], "the change from outside to be known")
    agent.edit("helper.py", "walk", "fly")
    assert agent.call("check", {"paths": ["user.py"]})["counts"]["error"] == 0
    agent.call("apply_patch", {"patch": "*** Begin Patch\n*** Delete File: helper.py\n*** End Patch\n"})
    assert agent.call("check", {"paths": ["user.py"]})["counts"]["error"] >= 1


def test_old_errors_are_not_blamed_on_an_edit(place: Place, agent: Agent):
    """D1, D2, D5."""
    place.put({"old.py": "def first() -> int:\n    return 1\n\n\nprint(missing)\n"})
    moved = agent.ops(["old.py"], op("edit", **edit_of("old.py", "def first", "# a line\ndef first")), op("check"))
    assert (moved["delta"]["introduced"], moved["delta"]["resolved"]) == ([], [])
    assert moved["delta"]["unchanged"] >= 1
    swapped = agent.ops(["old.py"], op("edit", **edit_of("old.py", "missing", "absent")), op("check"))
    assert len([entry for entry in swapped["delta"]["introduced"] if entry["severity"] == "error"]) == 1
    assert len([entry for entry in swapped["delta"]["resolved"] if entry["severity"] == "error"]) == 1


def test_two_agents_preview_one_file_and_each_sees_its_own(place: Place):
    """D6, D7: afterwards the engine judges what is on disk."""
    place.put({"both.py": "first = 1\nsecond = 2\n"})
    ada, bob = place.agent("ada"), place.agent("bob")
    sent = []
    for agent, name in ((ada, "first"), (bob, "second")):
        number = "1" if name == "first" else "2"
        ops = [op("edit", **edit_of("both.py", f"{name} = {number}", f"{name}: int = 'text'")), op("check")]
        sent.append((agent, name, agent.wire.start("devtools/ops", {"paths": ["both.py"], "ops": ops})))
    for agent, name, call in sent:
        result = agent.wire.result(call)
        errors = [entry for entry in result["delta"]["introduced"] if entry["severity"] == "error"]
        assert [entry["line"] for entry in errors] == [1 if name == "first" else 2]
    assert place.text("both.py") == "first = 1\nsecond = 2\n"
    assert ada.call("check", {"paths": ["both.py"]})["counts"]["error"] == 0


def test_format_never_takes_code_away(place: Place, agent: Agent):
    """P112."""
    place.put({"m.py": "x=1\n"})
    agent.edit("m.py", "x=1", "import os\nx=1")
    agent.call("format", {"paths": ["m.py"]})
    assert "import os" in place.text("m.py")
    assert "x = 1" in place.text("m.py")


def test_what_a_check_no_longer_says_is_cleared(place: Place, agent: Agent):
    """P118: also for a file that no editor has open."""
    place.put({"shown.py": "print(nowhere)\n"})
    editor = place.editor()
    agent.call("check", {"paths": ["shown.py"]})
    until(lambda: [entry for entry in editor.shown("shown.py") if entry["severity"] == 1], "the finding")
    agent.edit("shown.py", "nowhere", "1")
    until(lambda: not [entry for entry in editor.shown("shown.py") if entry["severity"] == 1], "it to be cleared")
    agent.call("apply_patch", {"patch": "*** Begin Patch\n*** Delete File: shown.py\n*** End Patch\n"})
    until(lambda: not editor.shown("shown.py"), "everything to be cleared with the file")


def test_an_engine_that_is_killed_comes_back(place: Place, agent: Agent):
    """8.0.12: the others go on, and the next call is answered by a new generation."""
    agent.call("lint", {"paths": ["a.py"]})
    before = engine(agent, "ruff")
    psutil.Process(before["pid"]).kill()
    assert agent.call("lint", {"paths": ["a.py"]})["ok"]
    after = until(
        lambda: (state := engine(agent, "ruff"))["state"] == "ready" and state["pid"] != before["pid"] and state,
        "ruff to be back",
    )
    assert agent.call("lint", {"paths": ["a.py"]})["ok"]
    assert after["generation"] > before["generation"]
    verdicts = [line["verdict"] for line in place.activity(event="engine", by="ruff")]
    assert verdicts[0] == verdicts[-1] == "started"
    assert set(verdicts) & {"died", "failed"}


def test_no_zombies_while_it_runs(place: Place, agent: Agent):
    """P99."""
    agent.call("bash", {"command": "true"}, surface="workspace")

    def zombies() -> list[psutil.Process]:
        return [process for process in place.family() if process.is_running() and not alive(process)]

    until(lambda: not zombies(), "every child to be reaped")


def test_engines_come_and_go_with_the_configuration(place: Place):
    """What is removed ends, and its findings with it."""
    place.put({"late.py": "import os\n"})
    editor = place.editor()
    agent = place.agent()
    agent.call("lint", {"paths": ["late.py"]})
    until(lambda: "ruff" in [entry["source"] for entry in editor.shown("late.py")], "ruff's finding")
    pid = engine(agent, "ruff")["pid"]
    place.reconfigure(ALLOW + BASEDPYRIGHT)
    assert [entry["id"] for entry in agent.status()["engines"]] == ["basedpyright"]
    assert "lint" not in [tool["name"] for tool in agent.wire.request("devtools/tools")["tools"]]
    until(lambda: not psutil.pid_exists(pid), "ruff to end")
    until(lambda: "ruff" not in [entry["source"] for entry in editor.shown("late.py")], "its findings to go")
    place.reconfigure(ALLOW + BASEDPYRIGHT + RUFF)
    assert agent.call("lint", {"paths": ["late.py"]})["counts"]["warning"]


@pytest.mark.parametrize(
    "rounds", [pytest.param(1, id="once"), pytest.param(5, id="five times", marks=pytest.mark.full)]
)
def test_no_engine_survives_a_killed_daemon(place: Place, rounds: int):
    """P99: five seconds after SIGKILL nothing of it is left, and the next one works."""
    for _ in range(rounds):
        agent = place.agent(surface="workspace")
        agent.call("check", {"paths": ["a.py"]}, surface="granular")
        agent.begin("bash", {"command": "touch running; setsid sleep 300 & sleep 300"})
        until(lambda: (place.root / "running").exists(), "the command to run")
        family = place.kill()
        assert len(family) >= 3
        until(lambda family=family: not [process for process in family if alive(process)], f"the end of {family}", 5)
        (place.root / "running").unlink()
        place.start()
        assert place.agent().call("check", {"paths": ["a.py"]})["ok"]
