"""Random talk over the real socket, in all gate modes: whatever is said, the daemon tells the truth and goes on.

Two agents talk at once, each about files of its own and about shared ones; an outside program writes to the shared
ones; in mode `editor` an LSP client with unsaved buffers approves, denies, edits, drops hunks or lets time pass. The
seed is in the test's id, so that a conversation can be had again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
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

from tests.e2e.fuzzing import MARK, NAMES, Said, Speaker
from tests.e2e.place import RUFF, Place, until
from tests.e2e.wire import Message, Wire

CODES = {
    "E_INVALID_DEV_PIPELINE_CONFIG",
    "E_DEV_UNKNOWN_STEP",
    "E_DEV_BAD_ARG",
    "E_DEV_ENGINE_REQUIRED",
    "E_DEV_STEP_UNAVAILABLE",
    "E_DEV_STEP_FAILED",
    "E_DEV_WORKSPACE_BOUNDS",
    "E_DEV_POLICY",
    "E_DEV_GATE_DECLINED",
    "E_DEV_CONFLICT",
    "E_DEV_NOT_READ",
    "E_DEV_READ_ONLY",
    "E_DEV_TIMEOUT",
    "E_DEV_CANCELLED",
}
REASONS = {
    *("notFound", "isDirectory", "notText", "noMatch", "ambiguous", "exists", "malformed", "notAcquired"),
    *("outsideRoot", "symlink", "protected", "stale", "dirtyInEditor", "noDecider", "denied", "expired"),
    *("notDecider", "pending"),
}
DATA = {
    *("code", "reason", "message", "retry", "step", "path", "line", "paths", "written", "matches", "alternatives"),
    "note",
}
STANDARD = {-32700, -32600, -32601, -32602}
ANSWERED_S = 120.0
"""Seconds until everything is answered, also what waits for an engine that chokes on another's file, and its retry."""
GROWTH = 160 * 1024 * 1024
"""Bytes of memory by which a daemon may grow over a conversation."""

MODES = {
    "allow": '[gate]\nmode = "allow"\ntimeout_s = 2\n',
    "editor": '[gate]\nmode = "editor"\ntimeout_s = 2\npreview_deadline_s = 0.2\n',
    "deny": '[gate]\nmode = "deny"\n',
}
LONG = [
    pytest.param(mode, seed, 60.0, marks=pytest.mark.full, id=f"{mode}-{seed}-long")
    for seed in range(10, 15)
    for mode in MODES
]


@dataclass
class Fuzz:
    """One conversation, and what was seen of it."""

    place: Place
    mode: str
    seed: int
    until_s: float
    calls: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    plans: set[str] = field(default_factory=set)

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until_s or bool(self.faults)

    def guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """The work, whose failure is kept for the end and ends the conversation."""

        def run() -> None:
            try:
                work()
            except (AssertionError, OSError, ValueError, KeyError) as fault:
                self.faults.append(f"{type(fault).__name__}: {fault}")

        return run

    # -- an agent ------------------------------------------------------------------------------------------------

    def talk(self, name: str) -> None:
        speaker = Speaker(f"{self.seed} {name}", name)
        random = speaker.random
        home = self.place.root / name
        agent = self.place.agent(name, session=name)
        answered: Counter[object] = Counter()
        while not self.over:
            if random.random() < 0.3:
                self._refresh(speaker, home)
            before = tree(home)
            speaker.texts = {f"{name}/{path}": lf(data) for path, data in before.items()}
            said = speaker.say()
            request = agent.wire.start(said.method, said.params)
            if random.random() < 0.1:
                time.sleep(random.random() * 0.03)
                agent.wire.notify("$/cancelRequest", {"id": request})
            answer = agent.wire.answer(request, ANSWERED_S)
            self.calls[said.method] += 1
            try:
                self._judge(said, answer, name, before, tree(home))
            except AssertionError as fault:
                raise AssertionError(f"{name} said {json.dumps(said.params)[:3000]}: {fault}") from None
            result = answer.get("result")
            if isinstance(result, dict) and "plan" in result:
                speaker.plans.append(result["plan"])
            answered.update(taken(agent.wire))
            # I13: as many answers as requests, each under the id of one.
            assert set(answered.values()) == {1}, answered.most_common(3)

    def haunt(self) -> None:
        """Agents that are gone before they hear the answer, and whose calls concern shared files alone."""
        speaker = Speaker(f"{self.seed} ghost", "shared")
        while not self.over:
            ghost = self.place.agent("ghost", session="ghost")
            speaker.texts = {f"shared/{path}": lf(data) for path, data in tree(self.place.root / "shared").items()}
            for _ in range(speaker.random.randrange(4)):
                said = speaker.say()
                ghost.wire.start(said.method, said.params)
            time.sleep(speaker.random.random() * 0.05)
            ghost.wire.vanish()
            self.place.wires.remove(ghost.wire)

    def _refresh(self, speaker: Speaker, home: Path) -> None:
        for _ in range(speaker.random.randrange(4)):
            target = home / speaker.random.choice(NAMES)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(speaker.data())

    # -- what an answer must be ----------------------------------------------------------------------------------

    def _judge(self, said: Said, answer: Message, home: str, before: dict[str, bytes], after: dict[str, bytes]) -> None:
        changed = {f"{home}/{path}" for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        if "error" in answer:
            written = self._judge_error(said, answer["error"])
        else:
            written = self._judge_result(said, answer["result"], home, before, after)
        if said.tool != "bash":
            mine = {path for path in written if path.startswith(f"{home}/")}
            assert changed == mine, f"changed on disk: {changed}, told: {mine}: {str(answer)[:2000]}"

    def _judge_error(self, said: Said, error: Message) -> set[str]:
        code = error["code"]
        if code != -32050:
            assert code in STANDARD, error
            return set()
        data = error["data"]
        self.calls[data["code"]] += 1
        assert data["code"] in CODES, error
        assert set(data) <= DATA, error
        assert data.get("reason", "denied") in REASONS, error
        assert data["retry"] in ("no", "afterCorrection", "withLess", "yes"), error
        assert data["message"] == error["message"], error
        assert not re.search(r"\b[A-Z]\w*(Error|Exception)\b", data["message"]), error
        return touched(data.get("written", []))

    def _judge_result(
        self, said: Said, result: Any, home: str, before: dict[str, bytes], after: dict[str, bytes]
    ) -> set[str]:
        if not isinstance(result, dict) or "plan" not in result:
            return set()
        self.plans.add(result["plan"])
        self.calls["ok"] += 1
        assert result["ok"] == (result["counts"]["error"] == 0)
        for entry in result["written"]:
            if entry["path"].startswith(f"{home}/"):
                there = entry["path"].removeprefix(f"{home}/") in after
                assert there == (entry["kind"] != "deleted"), entry
        decision = result.get("decision") or {}
        arguments = said.params.get("arguments") if isinstance(said.params, dict) else None
        if isinstance(arguments, dict) and not decision.get("edited") and not decision.get("dropped"):
            self._judge_text(said.tool, arguments, home, before, after)
        return touched(result["written"])

    def _judge_text(
        self, tool: str, arguments: dict[str, Any], home: str, before: dict[str, bytes], after: dict[str, bytes]
    ) -> None:
        """A success means that the file now holds what was asked for."""
        folder, _, path = str(arguments.get("path")).partition("/")
        if folder != home or tool not in ("write_file", "edit"):
            return
        there = lf(after[path])
        if tool == "write_file":
            assert there == plain(arguments["content"])
            return
        text, spans = lf(before[path]), []
        for block in arguments["edits"]:
            find = plain(block["find"])
            assert find in text, f"{find!r} was not there"
            if text.count(find) > 1 or text.find(find) != text.rfind(find):
                return  # It is unique only outside what an earlier block took.
            spans.append((text.index(find), len(find), plain(block["replace"])))
        for start, length, replace in sorted(spans, reverse=True):
            text = text[:start] + replace + text[start + length :]
        assert there == text

    # -- people and other programs -------------------------------------------------------------------------------

    def decide(self) -> None:
        """An editor's person: decides as it comes, sometimes wrongly, sometimes never, and types meanwhile."""
        random = Random(f"{self.seed} person")
        editor, terminal = self.place.editor(), self.place.terminal()
        while not self.over:
            new = editor.wire.messages[:]
            del editor.wire.messages[: len(new)]
            for message in new:
                if message.get("method") == "devtools/approvalRequested":
                    answer = self._answer(random, message["params"])
                    if answer is not None:
                        outcome = terminal.wire.answer(terminal.wire.start("devtools/decide", answer))
                        self._judge_decision(answer, outcome)
                elif message.get("method") == "window/showMessageRequest" and random.random() < 0.5:
                    actions = message["params"]["actions"]
                    chosen = random.choice([*actions, None])
                    editor.wire.send({"jsonrpc": "2.0", "id": message["id"], "result": chosen})
            if random.random() < 0.02:
                path = "shared/" + random.choice(NAMES)
                uri = self.place.uri(path)
                document = {"uri": uri, "languageId": "x", "version": 1, "text": f"{MARK} unsaved\n"}
                editor.wire.notify("textDocument/didOpen", {"textDocument": document})
                if random.random() < 0.7:
                    editor.wire.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
            time.sleep(0.002)

    def _answer(self, random: Random, approval: dict[str, Any]) -> dict[str, Any] | None:
        roll = random.random()
        hunks = [hunk for file in approval["files"] for hunk in file["hunks"]]
        answer: dict[str, Any] = {"id": approval["id"], "approve": True}
        if roll < 0.02:
            return None
        if roll < 0.15:
            return {**answer, "approve": False, "note": "no"}
        if roll < 0.2:
            return {**answer, "remember": True}
        if roll < 0.3 and hunks:
            return {**answer, "drop": [hunk["id"] for hunk in hunks if random.random() < 0.6]}
        if roll < 0.4 and hunks:
            text = random.choice([f"+{MARK} mine\n", "", "nonsense", hunks[0]["text"], " \n"])
            return {**answer, "edited": [{"hunkId": random.choice(hunks)["id"], "text": text}]}
        if roll < 0.45 and approval["files"]:
            path = random.choice([*(file["path"] for file in approval["files"]), "elsewhere.txt"])
            return {**answer, "edited": [{"path": path, "content": f"{MARK} mine\r\n"}]}
        if roll < 0.47:
            return {**answer, "drop": ["no such hunk"]}
        return answer

    def _judge_decision(self, answer: dict[str, Any], outcome: Message) -> None:
        if "error" in outcome:
            assert outcome["error"]["code"] == -32050, outcome
            assert {"edited", "drop", "remember"} & set(answer), outcome
            return
        decided = outcome["result"]
        self.calls[f"decided {decided['status']}"] += 1
        rule = {"rule", "ruleFile"} if answer.get("remember") and decided["applied"] else set[str]()
        assert set(decided) - rule == {"id", "status", "applied", "by"}, outcome
        assert decided["status"] in ("approved", "denied", "expired", "withdrawn", "stale", "lost"), outcome

    def interfere(self) -> None:
        """An outside program that writes, deletes and moves shared files, atomically or not."""
        speaker = Speaker(f"{self.seed} outside", "shared")
        random = speaker.random
        while not self.over:
            target = self.place.root / "shared" / random.choice(NAMES)
            target.parent.mkdir(parents=True, exist_ok=True)
            roll = random.random()
            try:
                if roll < 0.5:
                    target.write_bytes(speaker.data())
                elif roll < 0.8:
                    staged = self.place.base / "staged"
                    staged.write_bytes(speaker.data())
                    staged.rename(target)
                elif roll < 0.9:
                    target.unlink(missing_ok=True)
                else:
                    target.rename(self.place.root / "shared" / random.choice(NAMES))
            except OSError:
                pass  # Somebody else was there first; this program does not mind.
            time.sleep(random.random() * 0.05)


def taken(wire: Wire) -> list[object]:
    """The ids of the answers that came, which are not kept: a long conversation would fill the memory."""
    messages = wire.messages[:]
    del wire.messages[: len(messages)]
    return [message["id"] for message in messages if "method" not in message]


def tree(home: Path) -> dict[str, bytes]:
    """Every file below a directory by relative path."""
    found: dict[str, bytes] = {}
    for path in sorted(home.rglob("*")):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                found[str(path.relative_to(home))] = path.read_bytes()
    return found


def lf(data: bytes) -> str:
    """The text of a file's bytes as the contract decodes it; empty where it is none."""
    for mark, encoding in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data.decode(encoding, "replace").replace("\r\n", "\n")
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def plain(text: str) -> str:
    """Authored text as it is taken: CRLF means LF, and a mark at its beginning is no part of it."""
    return text.replace("\r\n", "\n").removeprefix("\ufeff")


def touched(written: list[dict[str, Any]]) -> set[str]:
    """Every path at which a report of what was written says that the disk changed."""
    return {entry["path"] for entry in written} | {entry["from"] for entry in written if "from" in entry}


def prepare(place: Place) -> None:
    """Homes for the speakers, and what leads astray: links out and in, a FIFO, names that are asked about."""
    for home in ("ada", "bob", "shared"):
        (place.root / home).mkdir()
    (place.root / "inside-target").mkdir()
    (place.base / "outside").mkdir()
    (place.root / "out").symlink_to(place.base / "outside")
    (place.root / "inside").symlink_to("inside-target")
    os.mkfifo(place.root / "fifo")
    place.put({"package.json": "{}\n", ".env": f"SECRET={MARK}\n"})


def nothing_left(place: Place) -> None:
    """No temporary file anywhere below the root, nothing outside it, the FIFO untouched."""
    known = {Path(name).name for name in NAMES} | {"devtools.toml", "package.json", ".env", "fifo", ".gitignore"}
    assert list((place.base / "outside").iterdir()) == []
    assert stat.S_ISFIFO((place.root / "fifo").stat().st_mode)
    for path in place.root.rglob("*"):
        relative = path.relative_to(place.root)
        if path.is_file() and relative.parts[0] != ".devtools" and path.name.startswith("."):
            assert path.name in known, f"left behind: {relative}"


@pytest.mark.parametrize(("mode", "seed", "seconds"), [*((mode, 1, 1.5) for mode in MODES), *LONG])
def test_whatever_is_said_the_daemon_tells_the_truth_and_goes_on(
    new_place: Callable[..., Place], mode: str, seed: int, seconds: float
):
    """I6, I8, I13, I15 from outside: one answer a request, only codes of the contract, `written` equals the disk."""
    place = new_place(MODES[mode] + RUFF, start=False)
    prepare(place)
    place.start()
    probe = place.agent("probe")
    begun = psutil.Process(place.pid).memory_info().rss
    fuzz = Fuzz(place, mode, seed, time.monotonic() + seconds)
    works = [lambda: fuzz.talk("ada"), lambda: fuzz.talk("bob"), fuzz.interfere, fuzz.haunt]
    works += [fuzz.decide] if mode == "editor" else []
    threads = [threading.Thread(target=fuzz.guarded(work)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 2 * ANSWERED_S)
    assert not fuzz.faults, "\n".join(fuzz.faults)
    assert sum(fuzz.calls.values()) > 20, fuzz.calls
    until(lambda: probe.status()["pendingApprovals"] == 0, "no approval to be left")
    nothing_left(place)
    grown = psutil.Process(place.pid).memory_info().rss - begun
    print(f"\n{mode} {seed}: {dict(fuzz.calls)}, grown by {grown >> 20} MiB")
    assert grown < GROWTH
    assert not [line for line in place.stderr if " asyncio: " in line], "the event loop had to complain"
    lines = place.activity()
    gated = {line["plan"] for line in lines if line["event"] == "gate"}
    assert fuzz.plans <= gated, f"answered without a question: {fuzz.plans - gated}"
    for line in lines:
        assert set(line) <= {"time", "event", "plan", "step", "agent", "verdict", "by", "paths", "morePaths"}
        assert MARK not in json.dumps({key: value for key, value in line.items() if key != "paths"})
