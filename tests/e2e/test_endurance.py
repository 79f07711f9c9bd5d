"""Nothing grows with the number of calls: one daemon, every kind of call, people who come and go, all counted.

Between two rounds nobody calls, and the daemon tells what it holds (`counted.py`): a thing that is kept of a call is
seen there long before it is seen in the memory that the system has given.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from tests.e2e.place import ASK, RUFF, Agent, Place, edit_of, op, until
from tests.e2e.wire import Message, Wire

COUNTED = Path(__file__).with_name("counted.py")
SURE_S = 60.0
AGENTS = 8
SLOTS = 20
SHORT, LONG = (800, 4), (100_000, 10)
"""Calls, in so many rounds."""
WARM = 0.4
"""This part of the rounds fills what keeps a fixed number of things: 200 results, 50 plans that can be undone."""

RULES = """
[[gate.rules]]
name = "free"
paths = ["free/**"]
decision = "allow"

[[gate.rules]]
name = "taken back"
step = "undo"
decision = "allow"
"""

MEBIBYTE = 1024 * 1024
GROWN_BYTES = 6 * MEBIBYTE
"""By this much the memory may be larger at the end: an allocator gives pages back as it likes, and the least that can
be kept of each of 90,000 calls, a small object and its entry in a table, would be more than this."""
BLOCKS_A_CALL = 0.3
BLOCKS_BY_CHANCE = 3000
"""Live allocations that may be added for a call once it is warm. Some stores are filled by a call in fifty and take
longer: the ends of the last 1,000 questions, and how the last 4,096 names are judged and spelled, new ones of which are
refused all the time. Measured are 0.17, all of them there; what is kept of every call is at least one."""
LATE_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""The event loop's own pool makes its threads as they are needed."""
LEFT = {"daemon.editor_session.EditorSession": 0, "daemon.connection.Connection": AGENTS}
"""What there is of the daemon's own objects when everybody but the agents has left."""

Judge = Callable[[Message], None]


def fine(answer: Message) -> None:
    assert "result" in answer, answer


def refused(*codes: str) -> Judge:
    def judge(answer: Message) -> None:
        assert "error" in answer, answer
        assert answer["error"]["data"]["code"] in codes, answer

    return judge


def either(*codes: str) -> Judge:
    """Done, or refused for one of these reasons: the world may have moved first."""

    def judge(answer: Message) -> None:
        if "error" in answer:
            refused(*codes)(answer)

    return judge


@dataclass
class Voice:
    """One agent that says what an agent may say, one thing after the other, of files of its own."""

    place: Place
    name: str
    random: Random
    said: Counter[str] = field(default_factory=Counter)
    agent: Agent = field(init=False)
    value: int = 0
    plan: str | None = None
    handle: str | None = None
    first: list[str] = field(default_factory=lambda: list(WEIGHTS))

    def __post_init__(self) -> None:
        self.agent = self.place.agent(self.name)
        taken(self.agent.wire)
        for path in (self.file, f"asked/{self.name}.py"):
            self.place.put({path: "".join(f"slot_{slot:02} = 0\n" for slot in range(SLOTS))})
        self.call("read_file", {"path": self.file})

    @property
    def file(self) -> str:
        return f"free/{self.name}.py"

    def change(self, path: str) -> tuple[str, str]:
        """A line as it is now, and as it shall be; only this voice writes the file."""
        slot = self.random.randrange(SLOTS)
        line = self.place.text(path).splitlines()[slot]
        self.value += 1
        return line + "\n", f"slot_{slot:02} = {self.value}\n"

    def call(self, tool: str, arguments: Any, judge: Judge = fine) -> Message:
        surface = (
            "workspace" if tool in ("read_file", "edit_file", "write_file", "grep", "glob", "bash") else "granular"
        )
        return self.ask("devtools/call", {"name": tool, "arguments": arguments, "surface": surface}, judge)

    def ask(self, method: str, params: Any, judge: Judge = fine, *, cancel: bool = False) -> Message:
        wire = self.agent.wire
        request = wire.start(method, params)
        if cancel:
            wire.notify("$/cancelRequest", {"id": request})
        answer = wire.answer(request, SURE_S)
        judge(answer)
        answers = [message["id"] for message in taken(wire) if "method" not in message]
        # I13: nothing but this one answer came since the one before.
        assert answers == [request]
        return answer

    def say(self) -> None:
        """Each kind of thing once, and then what comes."""
        kind = self.first.pop(0) if self.first else self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        self.said[kind] += 1
        getattr(self, kind)()

    # -- what is said --------------------------------------------------------------------------------------------

    def read_lines(self) -> None:
        self.call("read_lines", {"path": self.file, "start": self.random.randint(1, SLOTS)})

    def read_file(self) -> None:
        answer = self.call("read_file", {"path": f"free/{self.random.choice(NAMES)}.py"})
        self.handle = answer["result"]["artifact"]["handle"]

    def edit(self) -> None:
        self.plan = self.call("edit", edit_of(self.file, *self.change(self.file)))["result"]["plan"]

    def edit_file(self) -> None:
        old, new = self.change(self.file)
        self.call("edit_file", {"path": self.file, "old_string": old, "new_string": new})

    def grep(self) -> None:
        self.call("grep", {"pattern": f"= {self.random.randrange(1000)}$", "path": "free"})

    def glob(self) -> None:
        self.call("glob", {"pattern": "free/*.py"})

    def lint(self) -> None:
        self.handle = self.call("lint", {"paths": [self.file]})["result"]["artifact"]["handle"]

    def status(self) -> None:
        self.ask("devtools/status", None)

    def tools(self) -> None:
        self.ask("devtools/tools", {"surface": "composite"})

    def artifact(self) -> None:
        # Of the last 200 results: another agent's may have pushed it out.
        self.ask("devtools/artifact", {"handle": self.handle or "none"}, either("E_DEV_BAD_ARG"))

    def plan_in_memory(self) -> None:
        change = edit_of(self.file, self.change(self.file)[0], "import os\nslot_00   =  1\n")
        self.ask("devtools/ops", {"paths": [self.file], "ops": [op("edit", **change), op("format"), op("lint")]})

    def patch(self) -> None:
        path = f"free/new/{self.name}.txt"
        for change in (f"*** Add File: {path}\n+new\n", f"*** Delete File: {path}\n"):
            self.call("apply_patch", {"patch": f"*** Begin Patch\n{change}*** End Patch\n"})

    def undo(self) -> None:
        if self.plan is not None:
            # What was written since is in the way, and a plan may be older than what is kept.
            self.ask("devtools/undo", {"plan": self.plan}, either("E_DEV_CONFLICT", "E_DEV_BAD_ARG"))
            self.plan = None

    def bash(self) -> None:
        self.call("bash", {"command": "true"}, either("E_DEV_GATE_DECLINED"))

    def refusal(self) -> None:
        tool, arguments, code = self.random.choice(
            [
                ("edit", edit_of(self.file, "nowhere", "x"), "E_DEV_STEP_FAILED"),
                ("edit", edit_of("../outside", "a", "b"), "E_DEV_POLICY"),
                ("edit", edit_of(f"free/none-{self.random.random()}.py", "a", "b"), "E_DEV_BAD_ARG"),
                ("read_lines", {"path": self.file, "start": "one"}, "E_DEV_BAD_ARG"),
                (f"no_such_tool_{self.random.random()}", {}, "E_DEV_BAD_ARG"),
                ("grep", {"pattern": "("}, "E_DEV_BAD_ARG"),
                ("edit_file", {"path": "unread.txt", "old_string": "a", "new_string": "b"}, "E_DEV_NOT_READ"),
            ]
        )
        self.call(tool, arguments, refused(code, "E_DEV_UNKNOWN_STEP"))

    def cancelled(self) -> None:
        tool, arguments = self.random.choice(
            [
                ("edit", edit_of(self.file, *self.change(self.file))),
                ("lint", {"paths": ["free/*.py"]}),
                ("read_lines", {"path": self.file, "start": 1}),
                ("edit", edit_of(f"asked/{self.name}.py", *self.change(f"asked/{self.name}.py"))),
            ]
        )
        self.ask(
            "devtools/call",
            {"name": tool, "arguments": arguments, "progressToken": self.value},
            either("E_DEV_CANCELLED", "E_DEV_GATE_DECLINED"),
            cancel=True,
        )

    def asked(self) -> None:
        path = f"asked/{self.name}.py"
        self.call("edit", edit_of(path, *self.change(path)), either("E_DEV_GATE_DECLINED"))


NAMES = [f"agent{number}" for number in range(AGENTS)]
PERSONS = {f"free/person{number}.py": "import os\n" for number in range(3)}
WEIGHTS: dict[str, float] = {
    "read_lines": 18,
    "edit": 14,
    "read_file": 12,
    "edit_file": 12,
    "grep": 8,
    "lint": 8,
    "refusal": 8,
    "status": 7,
    "cancelled": 5,
    "plan_in_memory": 2,
    "artifact": 2,
    "asked": 1,
    "tools": 1,
    "glob": 1,
    "patch": 0.5,
    "undo": 0.5,
    "bash": 0.1,
}
"""How often each is said, of a hundred or so."""


def taken(wire: Wire) -> list[Message]:
    """What came, which is not kept here: it would fill the memory of the test."""
    messages = wire.messages[:]
    del wire.messages[: len(messages)]
    return messages


@dataclass
class Sample:
    """What the daemon holds while nobody calls."""

    calls: int
    rss: int
    descriptors: int
    threads: int
    children: int
    blocks: int
    tasks: list[str]
    objects: Counter[str]

    def __str__(self) -> str:
        return (
            f"{self.calls:>7} calls: {self.rss / MEBIBYTE:6.1f} MiB, {self.blocks} blocks, {self.descriptors} "
            f"descriptors, {self.threads} threads, {self.children} processes, {len(self.tasks)} tasks"
        )


@dataclass
class Endurance:
    """The daemon, its voices, and the people around them."""

    place: Place
    report: Path
    voices: list[Voice]
    calls: int = 0
    faults: list[str] = field(default_factory=list)
    visits: int = 0
    decided: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def round(self, calls: int) -> None:
        """Everybody talks until so many calls are answered; afterwards nobody is there who was not before."""
        share = calls // len(self.voices)
        self._over.clear()
        talking = [self._thread(lambda voice=voice: self._talk(voice, share)) for voice in self.voices]
        around = [self._thread(self._visit), self._thread(self._decide)]
        for thread in talking:
            thread.join()
        self._over.set()
        for thread in around:
            thread.join(SURE_S)
        assert not self.faults, "\n".join(self.faults)
        self.calls += share * len(self.voices)

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except (AssertionError, OSError, ValueError, KeyError) as fault:
                self.faults.append(f"{type(fault).__name__}: {str(fault)[:2000]}")

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def _talk(self, voice: Voice, calls: int) -> None:
        for _ in range(calls):
            if self.faults:
                return
            voice.say()

    def _visit(self) -> None:
        """Editors and agents that look in and leave, in order or as if they were killed."""
        random = Random(self.visits)
        while not self._over.is_set():
            self.visits += 1
            editor = self.place.editor("utf-8", wire=self.place.stdio() if random.random() < 0.1 else None)
            # A file that no voice writes: what is unsaved would keep them from it.
            path = f"free/person{random.randrange(3)}.py"
            editor.open(path)
            editor.type(path, f"import os\nunsaved = {self.visits}\n")
            guest = self.place.agent(f"guest{self.visits}")
            guest.call("read_file", {"path": path}, surface="workspace")
            guest.begin("lint", {"paths": ["free/*.py"]})
            guest.wire.vanish()
            editor.wire.close()
            for wire in (guest.wire, editor.wire):
                self.place.wires.remove(wire)
            self._over.wait(0.2)

    def _decide(self) -> None:
        """A person in an editor, who denies every fifth."""
        editor = self.place.editor("utf-16")
        while not self._over.is_set():
            for message in taken(editor.wire):
                if message.get("method") == "devtools/approvalRequested":
                    self.decided += 1
                    command = "devtools.deny" if self.decided % 5 == 0 else "devtools.approve"
                    argument = {"id": message["params"]["id"]}
                    editor.wire.start("workspace/executeCommand", {"command": command, "arguments": [argument]})
            self._over.wait(0.01)
        editor.wire.close()
        self.place.wires.remove(editor.wire)

    def sample(self) -> Sample:
        """Once what follows the last calls is done: the spool is written and who left is forgotten."""
        probe = self.voices[0].agent
        until(lambda: [len(probe.status()[key]) for key in ("editors", "agents")] == [0, AGENTS], "the guests to go")
        process = psutil.Process(self.place.pid)
        counts = self._count()
        while (again := self._count())["blocks"] < counts["blocks"]:
            counts = again
        for voice in self.voices:
            taken(voice.agent.wire)
        return Sample(
            self.calls,
            process.memory_info().rss,
            process.num_fds(),
            process.num_threads(),
            len(self.place.family()),
            again["blocks"],
            again["tasks"],
            Counter(again["objects"]),
        )

    def _count(self) -> dict[str, Any]:
        before = self.report.stat().st_size
        time.sleep(0.3)
        os.kill(self.place.pid, signal.SIGUSR2)
        until(lambda: self.report.stat().st_size > before and self.report.read_bytes().endswith(b"\n"), "the counts")
        return json.loads(self.report.read_text().splitlines()[-1])


@pytest.fixture
def endurance(new_place: Callable[..., Place], engines: None, tmp_path: Path) -> Endurance:
    place = new_place(ASK + RULES + RUFF, {"unread.txt": "a\n", **PERSONS}, start=False)
    report = tmp_path / "report"
    report.touch()
    place.program = [sys.executable, COUNTED, report]
    place.start()
    return Endurance(place, report, [Voice(place, name, Random(name)) for name in NAMES])


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("calls", "rounds"), [SHORT, pytest.param(*LONG, marks=pytest.mark.full)])
def test_nothing_grows_with_the_number_of_calls(endurance: Endurance, calls: int, rounds: int):
    """I13 over a long time, and that memory, descriptors, threads, processes and tasks are flat."""
    begun = time.monotonic()
    samples: list[Sample] = []
    for _ in range(rounds):
        endurance.round(calls // rounds)
        samples.append(endurance.sample())
        print(f"\n{time.monotonic() - begun:6.0f} s {samples[-1]}", end="", flush=True)
    said = sum((voice.said for voice in endurance.voices), Counter[str]())
    print(f"\n{dict(said)}, {endurance.decided} questions, {endurance.visits} visits")
    first, warm, end = samples[0], samples[round(rounds * WARM) - 1], samples[-1]
    more = (end.objects - warm.objects).most_common(12)
    assert end.blocks - warm.blocks < BLOCKS_A_CALL * (end.calls - warm.calls) + BLOCKS_BY_CHANCE, more
    assert end.rss - first.rss < GROWN_BYTES, more
    assert (end.descriptors, end.children) <= (first.descriptors, first.children)
    assert end.threads <= first.threads + LATE_THREADS
    assert len(end.tasks) <= len(first.tasks), end.tasks
    assert {kind: end.objects[f"devtools_lsp.{kind}"] for kind in LEFT} == LEFT
