"""No callback holds the event loop: heavy work, with a watchdog on every callback of the real daemon."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.place import ASK, PROGRAM, Agent, Editor, Place, op, until
from tests.e2e.wire import WAIT_S

WATCHED = Path(__file__).with_name("watched.py")
BUDGET_S = 0.02
ALLOWED_S = 2.5 * BUDGET_S
"""CPU time is not the same everywhere either: a core that others use as well has colder caches."""
READING = ("_SelectorSocketTransport._read_ready", " reads: ")
"""Where a connection deals with a frame: as it arrives, or in a task when something has to be awaited."""
FILES = 500
LINE = "value = 'some words that make a line of a usual length'\n"
LARGE = LINE * (2 * 1024 * 1024 // len(LINE) - 100)


@dataclass
class Heavy:
    """An agent of each surface that needs one, two editors that are shown everything, and who approves."""

    place: Place
    report: Path
    agent: Agent
    shell: Agent
    person: Agent
    editors: list[Editor]

    def approved(self, agent: Agent, request: int) -> dict[str, Any]:
        """The result of a call that a person approves once it waits."""
        (waiting,) = self.person.waiting()
        self.person.decide(waiting["id"], True)
        return agent.wire.result(request)

    def held(self) -> list[str]:
        """What held the loop for too long. Reading a frame is excepted: it can only be decoded whole."""
        found = [json.loads(line) for line in self.report.read_text().splitlines()]
        return [
            f"{_ms(entry['seconds'])} ({_ms(entry['wall'])} passed, {_ms(entry['gc'])} collecting garbage, "
            f"{entry['faults']} pages): {entry['what']} -> {entry['ends']}"
            for entry in found
            if entry["seconds"] > ALLOWED_S and not any(reading in entry["what"] for reading in READING)
        ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


@pytest.fixture(scope="module")
def heavy(new_place: Callable[..., Place], tmp_path_factory: pytest.TempPathFactory) -> Heavy:
    files = {f"src/d{n % 20}/f{n}.py": f"first = {n}\n{LINE * 20}" for n in range(FILES)}
    place = new_place(ASK, {"large.txt": LARGE, **files}, start=False)
    report = tmp_path_factory.mktemp("loop") / "report"
    place.program = [sys.executable, WATCHED, report]
    place.start()
    heavy = Heavy(
        place,
        report,
        place.agent("heavy"),
        place.agent("shell", surface="workspace"),
        place.terminal(),
        [place.editor("utf-8"), place.editor("utf-16")],
    )
    # Whatever was loaded until now was loaded once.
    report.write_text("")
    return heavy


def test_a_patch_of_thousands_of_hunks(heavy: Heavy):
    hunks = "".join(f"@@ -{n},1 +{n},1 @@\n-{LINE}+{LINE.upper()}" for n in range(1, 30_000, 20))
    request = heavy.agent.begin("apply_patch", {"patch": f"--- a/large.txt\n+++ b/large.txt\n{hunks}"})
    heavy.approved(heavy.agent, request)
    assert heavy.held() == []


def test_a_large_file_is_replaced(heavy: Heavy):
    heavy.shell.call("read_file", {"path": "large.txt"})
    content = heavy.place.text("large.txt").swapcase()
    heavy.approved(heavy.shell, heavy.shell.begin("write_file", {"path": "large.txt", "content": content}))
    assert heavy.place.text("large.txt") == content
    assert heavy.held() == []


def test_hundreds_of_files_at_once_and_back(heavy: Heavy):
    changes = "".join(
        f"*** Update File: src/d{n % 20}/f{n}.py\n@@\n-first = {n}\n+second = {n}\n" for n in range(FILES)
    )
    patch = f"*** Begin Patch\n{changes}*** End Patch\n"
    result = heavy.approved(heavy.agent, heavy.agent.begin("apply_patch", {"patch": patch}))
    assert heavy.place.text("src/d7/f7.py").startswith("second = 7\n")
    heavy.approved(heavy.agent, heavy.agent.wire.start("devtools/undo", {"plan": result["plan"]}))
    assert heavy.place.text("src/d7/f7.py").startswith("first = 7\n")
    assert heavy.held() == []


def test_everything_is_read_and_searched(heavy: Heavy):
    heavy.agent.ops(["src/**/*.py"], op("read_lines", path="src/d0/f0.py", start=1, end=3))
    heavy.shell.call("grep", {"pattern": "value"})
    heavy.shell.call("glob", {"pattern": "**/*.py"})
    assert heavy.held() == []


def test_an_mcp_client_comes_reads_and_writes(heavy: Heavy):
    client = McpClient(heavy.place)
    try:
        assert heavy.held() == [], "the SDK is loaded in a thread"
        assert "value = " in client.result(client.call("read_file", {"path": "large.txt"}))["content"][0]["text"]
        content = heavy.place.text("large.txt").swapcase()
        writing = client.call("write_file", {"path": "large.txt", "content": content})
        (waiting,) = heavy.person.waiting()
        heavy.person.decide(waiting["id"], True)
        assert not client.result(writing)["isError"]
        assert heavy.place.text("large.txt") == content
    finally:
        client.end()
    assert heavy.held() == []


class McpClient:
    """One MCP session over `devtools-lsp mcp`, as lines of JSON."""

    def __init__(self, place: Place) -> None:
        command = [PROGRAM, "mcp", "--root", place.root, "--surface", "workspace"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=place.env)
        self._count = 0
        who = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "lines", "version": "1"}}
        self.result(self._ask("initialize", who))
        self._send({"method": "notifications/initialized"})

    def call(self, name: str, arguments: dict[str, Any]) -> int:
        return self._ask("tools/call", {"name": name, "arguments": arguments})

    def result(self, request: int) -> Any:
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        assert answer["id"] == request
        return answer["result"]

    def _ask(self, method: str, params: dict[str, Any]) -> int:
        self._count += 1
        self._send({"id": self._count, "method": method, "params": params})
        return self._count

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.communicate(timeout=WAIT_S)


def test_a_person_types_in_a_large_document(heavy: Heavy):
    text = heavy.place.text("large.txt")
    for editor in heavy.editors:
        editor.open("large.txt", text)
        editor.type("large.txt", text + "x\n")
    assert heavy.held() == []


def test_a_command_prints_a_million_lines(heavy: Heavy):
    request = heavy.shell.begin("bash", {"command": "seq 1 1000000"}, progressToken=1)
    heavy.approved(heavy.shell, request)
    until(lambda: heavy.shell.wire.told("$/progress"), "some of it as progress")
    assert heavy.held() == []
