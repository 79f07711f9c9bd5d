"""A crowd on one daemon: agents that edit their own and shared files at once, editors that watch, decide, come and go.

Every request has one answer, and what the answers say adds up: to the bytes on the disk, to what every editor was
told, and to how every question ended. Each value is written by one request only, so that each can be followed.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psutil
import pytest

from tests.e2e.place import ALLOW, ASK, Agent, Editor, Place, edit_of, until
from tests.e2e.wire import Message, Wire

RULES = """
[[gate.rules]]
name = "free"
step = "edit"
paths = ["free/**"]
decision = "allow"
"""
TALLY = "free/tally.txt"
SHARED = ("free/shared0.txt", "free/shared1.txt", "free/shared2.txt", "asked/shared.txt")
SLOTS = 6
ANSWERED_S = 60.0
MAX_SESSIONS = 200
"""So many sessions are remembered, those that wait for somebody to come back included."""
DENIED = 5
"""A person denies every value that this divides."""
CONTRARY = 3
"""Where this divides the value, the person approves and denies at once: the first answer counts."""

LANDED_NOTHING = {"E_DEV_STEP_FAILED", "E_DEV_CONFLICT", "E_DEV_GATE_DECLINED", "E_DEV_CANCELLED"}
ENDS = {
    "approved": {"ok", "E_DEV_CANCELLED", "E_DEV_CONFLICT"},
    "denied": {"E_DEV_GATE_DECLINED", "E_DEV_CANCELLED"},
    "withdrawn": {"E_DEV_CANCELLED"},
    "stale": {"E_DEV_CONFLICT", "E_DEV_CANCELLED"},
}
"""What the agent is told when a question ended so. It may have cancelled at the same moment, and somebody else may
have changed the file between the answer and the write."""


@dataclass(frozen=True)
class Size:
    """How many there are, and how many batches of calls each agent makes."""

    agents: int
    batches: int
    editors: int


SMALL = Size(agents=20, batches=6, editors=4)
FULL = Size(agents=50, batches=40, editors=10)


@dataclass(frozen=True)
class Ask:
    """One edit: a line of a file becomes this value. `tally` is the line that everybody counts up."""

    agent: str
    path: str
    line: str
    old: int
    new: int
    cancel: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        return edit_of(self.path, f"{self.line} = {self.old}\n", f"{self.line} = {self.new}\n")


@dataclass
class Landing:
    """An edit that an answer says is on the disk; `plan` is not told where the call was cancelled."""

    ask: Ask
    plan: str | None
    began: float
    answered: float


@dataclass
class Watch:
    """An editor, and the time between it knew to be attached and it began to leave."""

    editor: Editor
    since: float
    until: float = float("inf")

    def told(self, what: str) -> list[Any]:
        return self.editor.wire.told(f"devtools/{what}")


@dataclass
class Crowd:
    """Everybody, and what they were told."""

    place: Place
    size: Size
    values: dict[str, dict[str, int]]
    """The files as the answers say they are: the value of each line, by path."""
    landings: list[Landing] = field(default_factory=list)
    outcomes: dict[tuple[str, int], str] = field(default_factory=dict)
    """How each value of an agent ended: `ok` or the error's code."""
    staying: list[Watch] = field(default_factory=list)
    passing: list[Watch] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """From the first edit to the last answer."""
        # `staying[0]` decides, through the proxy; every second one comes over the socket.
        self.staying = [self._watch("stdio" if number % 2 == 0 else "socket") for number in range(self.size.editors)]
        around = [self._thread(work) for work in (self._decide, self._come_and_go, self._haunt)]
        agents = [self._thread(lambda name=name: self._talk(name)) for name in names(self.size)]
        for thread in agents:
            thread.join(2 * ANSWERED_S)
        self.over.set()
        for thread in around:
            thread.join(ANSWERED_S)
        assert not [thread for thread in (*agents, *around) if thread.is_alive()]
        assert not self.faults, "\n".join(self.faults)

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except (AssertionError, OSError, ValueError, KeyError) as fault:
                self.faults.append(f"{type(fault).__name__}: {str(fault)[:3000]}")

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    # -- agents --------------------------------------------------------------------------------------------------

    def _talk(self, name: str) -> None:
        random, agent, number = Random(name), self.place.agent(name), 0
        for _ in range(self.size.batches):
            if self.faults:
                return
            batch: list[Ask] = []
            places = [*((path, name) for path in SHARED), *own(name), (TALLY, "tally")]
            for path, line in random.sample(places, random.randint(1, 4)):
                number += 1
                old = self.values[path][line] if line != "tally" else tally(agent)
                new = old + 1 if line == "tally" else number
                batch.append(Ask(name, path, line, old, new, cancel=random.random() < 0.2))
            began = time.monotonic()
            requests = [agent.begin("edit", ask.arguments) for ask in batch]
            for ask, request in zip(batch, requests, strict=True):
                if ask.cancel:
                    self.over.wait(random.random() * 0.02)
                    agent.wire.notify("$/cancelRequest", {"id": request})
            for ask, request in zip(batch, requests, strict=True):
                self._take(ask, agent.wire.answer(request, ANSWERED_S), began)
        one_answer_each(agent.wire)

    def _take(self, ask: Ask, answer: Message, began: float) -> None:
        """What the answer says becomes what is expected; nothing else does."""
        answered = time.monotonic()
        if "result" in answer:
            outcome, plan, written = "ok", answer["result"]["plan"], answer["result"]["written"]
            assert written, answer
        else:
            data = answer["error"]["data"]
            outcome, plan, written = data["code"], None, data.get("written", [])
            assert outcome in LANDED_NOTHING, answer
            assert ask.cancel or outcome != "E_DEV_CANCELLED", answer
            # Only the tally may be another's by now.
            assert ask.line == "tally" or outcome != "E_DEV_STEP_FAILED", answer
        assert written in ([], [{"path": ask.path, "kind": "modified"}]), answer
        with self._lock:
            if ask.line != "tally":
                self.outcomes[ask.agent, ask.new] = outcome
            if written:
                self.landings.append(Landing(ask, plan, began, answered))
                if ask.line != "tally":
                    self.values[ask.path][ask.line] = ask.new

    def _haunt(self) -> None:
        """Agents that are killed while they wait, so that nobody hears what became of their edits."""
        random = Random("ghost")
        while not self.over.wait(0.05):
            ghost = self.place.agent("ghost")
            for path in ("free/ghost.txt", "asked/ghost.txt"):
                ghost.begin("edit", edit_of(path, "boo\n", f"boo\n{random.random()}\n"))
            self.over.wait(random.random() * 0.05)
            ghost.wire.vanish()

    # -- editors -------------------------------------------------------------------------------------------------

    def _watch(self, transport: str) -> Watch:
        editor = self.place.editor("utf-8", wire=self.place.stdio() if transport == "stdio" else None)
        return Watch(editor, time.monotonic())

    def _decide(self) -> None:
        """The person of the first editor: answers every question, some of them twice."""
        wire, seen = self.staying[0].editor.wire, 0
        sent: list[int] = []

        def answer(question: dict[str, Any], command: str) -> None:
            sent.append(
                wire.start(
                    "workspace/executeCommand",
                    {"command": f"devtools.{command}", "arguments": [{"id": question["id"]}]},
                )
            )

        while not self.over.wait(0.005):
            new = wire.messages[seen:]
            seen += len(new)
            for message in new:
                if message.get("method") == "devtools/approvalRequested":
                    value = value_of(message["params"])
                    answer(message["params"], "deny" if value % DENIED == 0 else "approve")
                    if value % CONTRARY == 0:
                        answer(message["params"], "approve" if value % DENIED == 0 else "deny")
        self.decisions = [wire.result(request) for request in sent]

    def _come_and_go(self) -> None:
        """Editors that stay for a moment and then close in order, or are gone."""
        random = Random("passing")
        while not self.over.is_set():
            watch = self._watch(random.choice(["stdio", "socket", "socket"]))
            self.over.wait(random.random() * 0.5)
            watch.until = time.monotonic()
            watch.editor._settle()
            self.passing.append(watch)
            if random.random() < 0.5 and watch.editor.wire._connection is not None:
                watch.editor.wire.vanish()
            else:
                watch.editor.wire.close()

    # -- what must be true ---------------------------------------------------------------------------------------

    def judge_disk(self) -> None:
        """Each file is the fold of the answers: nothing is lost, nothing is there that no answer tells of."""
        counted = sorted(landing.ask.new for landing in self.landings if landing.ask.line == "tally")
        assert counted == list(range(1, len(counted) + 1))
        self.values[TALLY]["tally"] = len(counted)
        found = self.place.tree()
        expected = {path: content(lines).encode() for path, lines in self.values.items()}
        assert {path: found[path] for path in expected} == expected
        assert found.keys() - expected.keys() == {"devtools.toml", "free/ghost.txt", "asked/ghost.txt"}

    def judge_announcements(self) -> None:
        """Every landed edit is told to every editor that is there, once, with the line that changed."""
        by_plan = {landing.plan: landing for landing in self.landings if landing.plan is not None}
        assert len(by_plan) == sum(landing.plan is not None for landing in self.landings)
        expected = Counter(landing.ask.agent for landing in self.landings)
        for watch in (*self.staying, *self.passing):
            told = [landed for landed in watch.told("landed") if landed["agent"] != "ghost"]
            plans = Counter(landed["plan"] for landed in told)
            assert set(plans.values()) <= {1}, plans.most_common(3)
            there = {
                plan
                for plan, landing in by_plan.items()
                if watch.since < landing.began and landing.answered < watch.until
            }
            assert there <= plans.keys(), f"never told of {there - plans.keys()}"
            for landed in told:
                landing = by_plan.get(landed["plan"])
                if landing is not None:
                    assert landed == {"plan": landing.plan, "agent": landing.ask.agent, "files": [self._shown(landing)]}
        for watch in self.staying:
            # Also those that landed although they were cancelled, whose plans no answer names.
            told = watch.told("landed")
            assert Counter(landed["agent"] for landed in told if landed["agent"] != "ghost") == expected

    def _shown(self, landing: Landing) -> dict[str, Any]:
        number = list(self.values[landing.ask.path]).index(landing.ask.line) + 1
        return {"path": landing.ask.path, "kind": "modified", "ranges": [{"start": number, "end": number}]}

    def judge_questions(self) -> None:
        """Each is shown once and ends once, for everybody alike, and the agent is told the same."""
        shown = {question["id"]: question for question in self.staying[0].told("approvalRequested")}
        ended = {end["id"]: end for end in self.staying[0].told("approvalResolved")}
        assert shown.keys() == ended.keys()
        for watch in self.staying:
            assert sorted(question["id"] for question in watch.told("approvalRequested")) == sorted(shown)
            assert sorted(watch.told("approvalResolved"), key=identity) == sorted(ended.values(), key=identity)
        for watch in self.passing:
            assert max(Counter(question["id"] for question in watch.told("approvalRequested")).values(), default=1) == 1
            assert [end for end in watch.told("approvalResolved") if end != ended[end["id"]]] == []
        applied = Counter(decision["id"] for decision in self.decisions if decision["applied"])
        assert applied == Counter(end["id"] for end in ended.values() if end["by"] == "editor")
        for decision in self.decisions:
            assert decision["status"] == ended[decision["id"]]["status"], decision
        asked: dict[tuple[str, int], str] = {}
        for question in shown.values():
            if question["agent"] != "ghost":
                key = question["agent"], value_of(question)
                assert key not in asked, f"asked twice about {key}"
                asked[key] = ended[question["id"]]["status"]
                assert self.outcomes[key] in ENDS[asked[key]], (question, ended[question["id"]])
        for landing in self.landings:
            if landing.ask.path.startswith("asked/"):
                assert asked[landing.ask.agent, landing.ask.new] == "approved"

    def judge_end(self, before: Held) -> None:
        """Everybody leaves: the daemon holds what it held, and ends with nothing left behind."""
        for watch in self.staying:
            one_answer_each(watch.editor.wire)
        for wire in self.place.wires:
            wire.close()
        self.place.wires.clear()
        probe = self.place.agent("probe")
        until(lambda: [len(probe.status()[key]) for key in ("editors", "agents")] == [0, 1], "everybody to be gone")
        assert probe.status()["pendingApprovals"] == 0
        until(lambda: Held.by(self.place).descriptors <= before.descriptors, "the descriptors to be closed")
        assert Held.by(self.place).children == before.children
        lines = self.place.activity(event="landed")
        assert Counter(line["agent"] for line in lines if line["agent"] != "ghost") == Counter(
            landing.ask.agent for landing in self.landings
        )
        self.place.stop()
        assert [path.name for path in (self.place.base / "run").rglob("*.sock")] == []
        unfinished = re.compile(r"\.(new|gone|back)\.\d+$|\.(writing|intent)$")
        assert [path for path in self.place.root.rglob("*") if unfinished.search(path.name)] == []
        assert not [line for line in self.place.stderr if " asyncio: " in line], self.place.stderr


@dataclass(frozen=True)
class Held:
    """What a daemon holds of the system."""

    descriptors: int
    children: int

    @classmethod
    def by(cls, place: Place) -> Held:
        return cls(psutil.Process(place.pid).num_fds(), len(place.family()))


def names(size: Size) -> list[str]:
    return [f"agent{number:02}" for number in range(size.agents)]


def own(name: str) -> list[tuple[str, str]]:
    """The lines that only one agent writes."""
    return [(f"{folder}/{name}.txt", f"slot{slot}") for folder in ("free", "asked") for slot in range(SLOTS)]


def beginning(size: Size) -> dict[str, dict[str, int]]:
    """Every line of every file, at 0."""
    values: dict[str, dict[str, int]] = {path: dict.fromkeys(names(size), 0) for path in SHARED}
    for name in names(size):
        for path, line in own(name):
            values.setdefault(path, {})[line] = 0
    return {**values, TALLY: {"tally": 0}}


def content(lines: dict[str, int]) -> str:
    return "".join(f"{line} = {value}\n" for line, value in lines.items())


def tally(agent: Agent) -> int:
    """What everybody counted up to, as the daemon reads it."""
    read = agent.call("read_lines", {"path": TALLY, "start": 1})["reads"]
    (found,) = re.findall(r"tally = (\d+)", str(read))
    return int(found)


def value_of(question: dict[str, Any]) -> int:
    """The value that a question is about; a ghost's is none."""
    (file,) = question["files"]
    found = re.search(r"^\+\w+ = (\d+)$", "\n".join(hunk["text"] for hunk in file["hunks"]), re.MULTILINE)
    return int(found[1]) if found else 1


def identity(message: dict[str, Any]) -> str:
    return message["id"]


def one_answer_each(wire: Wire) -> None:
    """I13: as many answers as requests, each under the id of one."""
    answers: Iterable[Message] = [message for message in wire.messages if "method" not in message]
    assert sorted(message["id"] for message in answers) == list(range(1, wire._count + 1))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", [SMALL, pytest.param(FULL, marks=pytest.mark.full)], ids=["small", "full"])
def test_a_crowd_loses_nothing_and_is_told_everything_once(new_place: Callable[..., Place], size: Size):
    """I5, I13: agents, editors and disk agree about every edit, every question and every answer."""
    values = beginning(size)
    files = {path: content(lines) for path, lines in values.items()}
    place = new_place(ASK + RULES, {**files, "free/ghost.txt": "boo\n", "asked/ghost.txt": "boo\n"})
    # The first edit opens what stays open, the log and the journal.
    place.agent("ghost").edit("free/ghost.txt", "boo\n", "boo\nfirst\n")
    before = Held.by(place)
    place.wires.pop().close()
    crowd = Crowd(place, size, values)
    crowd.run()
    print(f"\n{Counter(crowd.outcomes.values())}, {len(crowd.landings)} landed, {len(crowd.decisions)} decisions")
    crowd.judge_disk()
    crowd.judge_announcements()
    crowd.judge_questions()
    crowd.judge_end(before)


def test_who_came_and_left_pushes_nobody_out(new_place: Callable[..., Place]):
    """What an agent has read is remembered however many connections there were meanwhile: theirs is forgotten."""
    place = new_place(ALLOW, {"a.txt": "a\n"})
    agent, named = place.agent("patient"), place.agent("named", session="kept")
    for reader in (agent, named):
        reader.call("read_file", {"path": "a.txt"}, surface="workspace")
    named.wire.close()
    for _ in range(MAX_SESSIONS + 10):
        guest = place.agent("guest")
        guest.call("read_file", {"path": "a.txt"}, surface="workspace")
        guest.wire.close()
    again = place.agent("named", session="kept")
    for writer, old, new in ((agent, "a", "b"), (again, "b", "c")):
        change = {"path": "a.txt", "old_string": old, "new_string": new}
        assert writer.call("edit_file", change, surface="workspace")["written"]
    assert place.text("a.txt") == "c\n"
