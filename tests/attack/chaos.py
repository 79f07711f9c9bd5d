"""Two agents, a person's editor and an undo at work on the same few files while the daemon is killed at any moment.

Every content here is one word, repeated as often as the word itself says, so that a look at a file tells who wrote it
and whether all of it is there. Whoever writes notes first what will be written, and on what it is built.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.attack.daemon import Daemon
from tests.attack.wire import Agent, Gone, Message, envelope

PATHS = tuple(f"d{number % 3}/f{number}.txt" for number in range(9))
NEW = tuple(f"n{number}/deep/x{number}.txt" for number in range(4))
REFUSALS = {"E_DEV_CONFLICT", "E_DEV_BAD_ARG", "E_DEV_STEP_FAILED"}
"""What may be answered when others are faster; anything else is a fault of ours."""


def whole(word: str) -> bytes:
    """The content that a word stands for."""
    return (word + "\n").encode() * int(word.rpartition(".")[2])


def word_of(content: bytes) -> str | None:
    """Whose content this is; None for what nobody wrote, in whole."""
    word = content.partition(b"\n")[0].decode("utf-8", "replace")
    return word if word.rpartition(".")[2].isdecimal() and whole(word) == content else None


@dataclass
class Deed:
    """One attempt: the words it would put where (None: it takes the file away), and those it was built on.

    `outcome`: "done", "refused", or "unknown" when the daemon died before it answered. An undo puts what only the
    daemon knows.
    """

    who: str
    puts: dict[str, str | None]
    base: dict[str, str | None]
    undo: bool = False
    outcome: str = "unknown"
    begun: float = field(default_factory=time.monotonic)
    ended: float = float("inf")

    def end(self, outcome: str) -> None:
        self.outcome, self.ended = outcome, time.monotonic()


@dataclass
class Chaos:
    """The actors' shared notes."""

    daemon: Daemon
    seed: int
    deeds: list[Deed] = field(default_factory=list)
    faults: list[Any] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)

    def note(self, deed: Deed) -> Deed:
        self.deeds.append(deed)
        return deed

    def word(self, who: str, source: random.Random) -> str:
        return f"{who}.{len(self.deeds)}.{source.randrange(1 << 20)}.{source.choice((1, 3, 40, 900, 9000))}"


class ChaosAgent:
    """An agent that does one thing after the other; a connection of its own for each life of the daemon.

    One that `takes` also undoes, and deletes: neither says which content it means to take.
    """

    def __init__(self, chaos: Chaos, name: str, *, takes: bool = True) -> None:
        self.chaos = chaos
        self.name = name
        self.source = random.Random(f"{chaos.seed} {name}")
        self.takes = takes

    def live(self) -> None:
        """Work until the daemon dies or everybody stops."""
        try:
            agent = self.chaos.daemon.agent()
            while not self.chaos.stop.is_set():
                deeds = [self.edit, self.edit, self.patch, self.patch, self.patch, *[self.undo] * self.takes]
                self.source.choice(deeds)(agent)
        except (Gone, OSError):
            return
        except BaseException as error:
            self.chaos.faults.append(error)
            raise

    def read(self, path: str) -> str | None:
        try:
            content = (self.chaos.daemon.root / path).read_bytes()
        except FileNotFoundError:
            return None
        found = word_of(content)
        if found is None:
            self.chaos.faults.append((self.name, path, content[:200]))
        return found

    def edit(self, agent: Agent) -> None:
        path = self.source.choice(PATHS)
        old = self.read(path)
        if old is None:
            return
        new = self.chaos.word(self.name, self.source)
        edits = [{"find": whole(old).decode(), "replace": whole(new).decode()}]
        deed = self.chaos.note(Deed(self.name, {path: new}, {path: old}))
        self.judge(deed, agent.try_call("edit", {"path": path, "edits": edits}))

    def patch(self, agent: Agent) -> None:
        lines: list[str] = []
        puts: dict[str, str | None] = {}
        base: dict[str, str | None] = {}
        for path in self.source.sample([*PATHS, *NEW], self.source.randrange(2, 7)):
            old = self.read(path)
            new = self.chaos.word(self.name, self.source)
            body = [f"+{line}" for line in whole(new).decode().splitlines()]
            if old is None:
                lines += [f"*** Add File: {path}", *body]
                puts[path] = new
            elif self.takes and self.source.random() < 0.25:
                lines += [f"*** Delete File: {path}"]
                puts[path] = None
            else:
                lines += [f"*** Update File: {path}", "@@"]
                lines += [f"-{line}" for line in whole(old).decode().splitlines()] + body
                puts[path] = new
            base[path] = old
        deed = self.chaos.note(Deed(self.name, puts, base))
        self.judge(deed, agent.try_call("apply_patch", {"patch": envelope(*lines)}))

    def undo(self, agent: Agent) -> None:
        deed = self.chaos.note(Deed(self.name, {}, {}, undo=True))
        answer = agent.wire.ask("devtools/undo", {})
        assert "error" not in answer or answer["error"]["data"]["code"] in REFUSALS, answer
        deed.end("done" if "result" in answer else "refused")
        self.chaos.count["undone" if "result" in answer else "not undone"] += 1

    def judge(self, deed: Deed, answer: Message) -> None:
        if "result" in answer:
            written = {entry["path"] for entry in answer["result"]["written"]}
            if written != deed.puts.keys():
                self.chaos.faults.append((deed, "written", written))
            deed.end("done")
        else:
            data = answer["error"]["data"]
            if data["code"] not in REFUSALS or data.get("written"):
                self.chaos.faults.append((deed, data))
            deed.end("refused")
        self.chaos.count[deed.outcome] += 1


class Editor:
    """A person's editor: it saves by rename, moves files and deletes them, and knows nothing of the daemon."""

    def __init__(self, chaos: Chaos, *, takes: bool = True) -> None:
        self.chaos = chaos
        self.source = random.Random(f"{chaos.seed} editor")
        self.takes = takes
        self.aside = chaos.daemon.base / "aside"

    def live(self) -> None:
        while not self.chaos.stop.is_set():
            time.sleep(self.source.uniform(0, 0.06))
            path = self.source.choice(PATHS)
            target: Path = self.chaos.daemon.root / path
            with contextlib.suppress(FileNotFoundError):
                if self.takes and self.source.random() < 0.1:
                    deed = self.chaos.note(Deed("editor", {path: None}, {}))
                    target.unlink()
                    deed.end("done")
                elif self.takes and self.source.random() < 0.1:
                    other = self.source.choice(PATHS)
                    deed = self.chaos.note(Deed("editor", {path: None, other: word_of(target.read_bytes())}, {}))
                    os.rename(target, self.chaos.daemon.root / other)
                    deed.end("done")
                else:
                    word = self.chaos.word("editor", self.source)
                    self.aside.write_bytes(whole(word))
                    deed = self.chaos.note(Deed("editor", {path: word}, {}))
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.rename(self.aside, target)
                    deed.end("done")
                self.chaos.count["editor"] += 1
