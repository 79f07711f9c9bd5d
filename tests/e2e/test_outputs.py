"""What `--json` prints is what the reference page says, command by command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from devtools_lsp.cli.outputs import OUTPUTS
from tests.e2e.place import ASK, PROGRAM, RUFF, Place, edit_of, op, until
from tests.e2e.wire import Wire


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place]) -> Place:
    return new_place(ASK + RUFF, {"a.py": "import os\n"})


@pytest.fixture(autouse=True)
def visit(place: Place) -> Iterator[None]:
    yield from place.visit()


def shaped(command: str, value: dict[str, Any]) -> dict[str, Any]:
    output = OUTPUTS[command]
    assert set(output.keys) <= set(value), set(output.keys) - set(value)
    assert set(value) <= {*output.keys, *output.optional}, set(value) - {*output.keys, *output.optional}
    return value


def printed(command: str, done: subprocess.CompletedProcess[str]) -> Any:
    assert done.stdout, (command, done.stderr)
    value = json.loads(done.stdout)
    for entry in value if isinstance(value, list) else [value]:
        shaped(command, entry)
    return value


def test_each_command(place: Place):
    person = place.terminal()
    person.wire.request("devtools/approvals", {"watch": True})
    assert printed("status", place.cli("status", "--json"))["watching"]
    assert printed("tools", place.cli("tools", "--json"))
    printed("call", place.cli("call", "lint", "--json", "--args", '{"paths": ["a.py"]}'))
    printed("plan", place.cli("plan", "a.py", "--json", "--ops", json.dumps([op("lint")])))
    agent = place.agent("ada")
    for command, more in (("deny", ()), ("approve", ()), ("approve", ("--remember",))):
        call = agent.begin("edit", edit_of("a.py", "os", "sys"))
        (item,) = person.waiting()
        assert [entry["id"] for entry in printed("approvals", place.cli("approvals", "--json"))] == [item["id"]]
        answer = printed(command, place.cli(command, item["id"], "--json", *more))
        assert ("rule" in answer) == bool(more)
        if command == "deny":
            assert agent.error(call)["reason"] == "denied"
            continue
        assert agent.wire.result(call)["written"]
        _undo(place, person.wire)
    lines = place.cli("log", "--json").stdout.splitlines()
    assert {shaped("log", json.loads(line))["event"] for line in lines} >= {"gate", "landed", "approval", "engine"}


def _undo(place: Place, person: Wire) -> None:
    """Take the edit back in a terminal, a person approving: a command that waits and one that answers."""
    undoing = subprocess.Popen(
        [PROGRAM, "undo", "--root", place.root, "--json"],
        env=place.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    item = until(lambda: person.request("devtools/approvals")["items"], "the undo to ask")[0]
    person.request("devtools/decide", {"id": item["id"], "approve": True})
    stdout, stderr = undoing.communicate(timeout=30)
    assert undoing.returncode == 0, stderr
    shaped("undo", json.loads(stdout))


def test_commands_that_set_up(new_place: Callable[..., Place]):
    place = new_place("", {"pyproject.toml": "", "a.py": ""}, start=False)
    dry = printed("init", place.cli("init", "--dry-run", "--json"))
    written = printed("init", place.cli("init", "--json"))
    assert dry == {**written, "text": place.text("devtools.toml")}
    (place.root / "devtools.toml").write_text("")
    for check in printed("doctor", place.cli("doctor", "--json"))["checks"]:
        assert set(check) - {"remedy"} == {"name", "ok", "message"}
    assert printed("stop", place.cli("stop", "--json")) == {"stop": "notRunning"}
