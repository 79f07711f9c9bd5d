"""What people met with other tools when files were written: marks, races, huge files, other writers (own table)."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.e2e.place import ALLOW, Agent, Place, edit_of, op, told

MARK = b"\xef\xbb\xbf"


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place]) -> Place:
    return new_place(ALLOW)


@pytest.fixture(autouse=True)
def visit(place: Place) -> Iterator[None]:
    yield from place.visit()


@pytest.fixture
def agent(place: Place) -> Agent:
    return place.agent(surface="workspace")


# -- whole files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        pytest.param(MARK + b"old\n", "new\n", MARK + b"new\n", id="a mark is kept"),
        pytest.param(MARK + b"old\n", "\ufeffnew\n", MARK + b"new\n", id="and not doubled"),
        pytest.param(b"old\n", "new\n", b"new\n", id="and not invented"),
        pytest.param(b"a\r\nb\r\n", "a\nc\n", b"a\r\nc\r\n", id="line ends are kept"),
        pytest.param(None, "a\nb\n", b"a\nb\n", id="a new file has plain ones"),
        pytest.param(None, "", b"", id="nothing is a content"),
        pytest.param(None, "no end", b"no end", id="nor is a last line end added"),
        pytest.param("alt\n".encode("utf-16"), "neu\n", "neu\n".encode("utf-16"), id="utf-16 with a mark stays"),
    ],
)
def test_write_file_keeps_what_a_file_was(place: Place, agent: Agent, before: bytes | None, content: str, after: bytes):
    """P06, I15."""
    target = place.root / "whole.txt"
    target.unlink(missing_ok=True)
    if before is not None:
        target.write_bytes(before)
    result = agent.call("write_file", {"path": "whole.txt", "content": content})
    assert target.read_bytes() == after
    assert result["written"] == [{"path": "whole.txt", "kind": "added" if before is None else "modified"}]


@pytest.mark.parametrize(
    "before", [b"\xff\xfe\xff", b"k = 3 # \xfcber\n", b"a\0b"], ids=["odd utf-16", "latin-1", "nul"]
)
def test_write_file_over_what_is_no_text_is_refused(place: Place, agent: Agent, before: bytes):
    (place.root / "raw").write_bytes(before)
    assert agent.refused("write_file", {"path": "raw", "content": "x"})["reason"] == "notText"
    assert (place.root / "raw").read_bytes() == before


def test_mode_and_owner_of_a_file_survive(place: Place, agent: Agent):
    place.put({"run.sh": "#!/bin/sh\n"})
    (place.root / "run.sh").chmod(0o751)
    agent.call("write_file", {"path": "run.sh", "content": "#!/bin/sh\nexit\n"})
    assert (place.root / "run.sh").stat().st_mode & 0o777 == 0o751


def test_parents_are_made(place: Place, agent: Agent):
    agent.call("write_file", {"path": "deep/er/est/f.txt", "content": "x\n"})
    assert place.text("deep/er/est/f.txt") == "x\n"


# -- who read what --------------------------------------------------------------------------------------------------


def test_a_touched_file_is_the_same_file(place: Place, agent: Agent):
    """P49: by content, never by time."""
    place.put({"t.txt": "v=1\n"})
    agent.call("read_file", {"path": "t.txt"})
    os.utime(place.root / "t.txt", (1, 1))
    result = agent.call("edit_file", {"path": "t.txt", "old_string": "v=1", "new_string": "v=2"})
    assert result["data"]["changedSinceRead"] is False
    assert place.text("t.txt") == "v=2\n"


def test_a_changed_file_is_edited_where_the_text_still_fits_and_says_so(place: Place, agent: Agent):
    place.put({"t.txt": "one\ntwo\n"})
    agent.call("read_file", {"path": "t.txt"})
    place.put({"t.txt": "ONE\ntwo\n"})
    result = agent.call("edit_file", {"path": "t.txt", "old_string": "two", "new_string": "TWO"})
    assert result["data"]["changedSinceRead"] is True
    assert place.text("t.txt") == "ONE\nTWO\n"
    place.put({"t.txt": "other\n"})
    data = agent.refused("edit_file", {"path": "t.txt", "old_string": "TWO", "new_string": "2"})
    assert data["code"] == "E_DEV_CONFLICT"
    assert "other" in data["message"]
    data = agent.refused("write_file", {"path": "t.txt", "content": "mine\n"})
    assert data["code"] == "E_DEV_CONFLICT"
    assert place.text("t.txt") == "other\n"


def test_what_was_not_read_is_not_edited(place: Place, agent: Agent):
    place.put({"t.txt": "a\n"})
    replace = {"path": "t.txt", "old_string": "a", "new_string": "b"}
    assert agent.refused("edit_file", replace)["code"] == "E_DEV_NOT_READ"
    named = place.agent(surface="workspace", session="night")
    named.call("read_file", {"path": "t.txt"})
    named.wire.close()
    assert agent.refused("edit_file", replace)["code"] == "E_DEV_NOT_READ"
    assert place.agent(surface="workspace", session="night").call("edit_file", replace)["written"]


# -- no lost updates ------------------------------------------------------------------------------------------------


@pytest.mark.timeout(180)
def test_two_hundred_pairs_of_edits_of_one_file(place: Place):
    """P31, 8.0.14: both are there, or the later one is told that it is too late."""
    ada, bob = place.agent("ada"), place.agent("bob")
    for number in range(200):
        name = f"pair/{number}.txt"
        place.put({name: "A=1\nB=1\n"})
        calls = [(ada, ada.begin_edit(name, "A=1", "A=2")), (bob, bob.begin_edit(name, "B=1", "B=2"))]
        expected = "A=1\nB=1\n"
        for (agent, call), (old, new) in zip(calls, (("A=1", "A=2"), ("B=1", "B=2")), strict=True):
            answer = agent.wire.answer(call)
            if "result" in answer:
                expected = expected.replace(old, new)
            else:
                assert answer["error"]["data"]["code"] == "E_DEV_CONFLICT"
        assert place.text(name) == expected
        assert expected != "A=1\nB=1\n"


def test_fifty_edits_of_one_file_at_once(place: Place):
    lines = [f"line {number}" for number in range(50)]
    place.put({"many.txt": "\n".join(lines) + "\n"})
    agents = [place.agent(f"agent {number}") for number in range(10)]
    calls = [
        (line, agents[number % 10], agents[number % 10].begin_edit("many.txt", line + "\n", line.upper() + "\n"))
        for number, line in enumerate(lines)
    ]
    expected = place.text("many.txt")
    for line, agent, call in calls:
        answer = agent.wire.answer(call)
        if "result" in answer:
            lines[lines.index(line)] = line.upper()
        else:
            assert answer["error"]["data"]["code"] == "E_DEV_CONFLICT"
    expected = "\n".join(lines) + "\n"
    assert place.text("many.txt") == expected
    assert "LINE" in expected


def test_a_move_and_an_edit_of_one_file_at_once(place: Place):
    ada, bob = place.agent("ada"), place.agent("bob")
    for number in range(30):
        place.put({f"m{number}.txt": "a\nb\n"})
        patch = (
            f"*** Begin Patch\n*** Update File: m{number}.txt\n*** Move to: n{number}.txt\n@@\n-a\n+A\n*** End Patch\n"
        )
        move, edit = ada.begin("apply_patch", {"patch": patch}), bob.begin_edit(f"m{number}.txt", "b", "B")
        moved, edited = "result" in ada.wire.answer(move), "result" in bob.wire.answer(edit)
        there = {
            name: place.text(name) for name in (f"m{number}.txt", f"n{number}.txt") if (place.root / name).exists()
        }
        assert len(there) == 1
        assert ("A" in str(there), "B" in str(there)) == (moved, edited)
        assert moved or edited


# -- large files ----------------------------------------------------------------------------------------------------


def test_a_huge_file_is_read_through_a_window(place: Place, agent: Agent):
    """P51: refused whole with both numbers and the way round; a window costs no memory worth naming."""
    line = b"%06d some text that makes a line of a hundred characters or so, give or take a few of them, yes\n"
    block = b"".join(line % number for number in range(10_000))
    with (place.root / "huge.txt").open("wb") as file:
        for _ in range(300):
            file.write(block)
    daemon = psutil.Process(place.pid)
    data = agent.refused("edit", edit_of("huge.txt", "unique", "x"), surface="granular")
    assert data["code"] == "E_DEV_WORKSPACE_BOUNDS"
    assert data["retry"] == "withLess"
    assert "max_bytes_per_file" in data["message"]
    assert str(2 * 1024 * 1024) in data["message"]
    assert data["message"].endswith("; read a window of it with read_lines or read_file")
    before = daemon.memory_info().rss
    started = time.monotonic()
    result = agent.call("read_lines", {"path": "huge.txt", "start": 2_999_990, "end": 2_999_999}, surface="granular")
    took_s = time.monotonic() - started
    assert result["reads"]["huge.txt"]["text"].startswith("009989 ")
    assert result["reads"]["huge.txt"]["totalLines"] == 3_000_000
    assert daemon.memory_info().rss - before < 50 * 2**20
    assert took_s < 10
    data = agent.refused("read_lines", {"path": "huge.txt", "start": 1}, surface="granular")
    assert (data["code"], data["retry"], data["path"]) == ("E_DEV_WORKSPACE_BOUNDS", "withLess", "huge.txt")
    assert agent.call("read_file", {"path": "huge.txt", "offset": 5, "limit": 2})["data"]["start"] == 5
    (place.root / "huge.txt").unlink()


def test_other_clients_are_served_while_one_reads_a_huge_file(place: Place, agent: Agent):
    with (place.root / "huge.txt").open("wb") as file:
        file.write(b"x\n" * 50_000_000)
    other = place.agent("other")
    call = agent.begin("read_lines", {"path": "huge.txt", "start": 49_000_000, "end": 49_000_001}, surface="granular")
    slowest = 0.0
    while not any(message.get("id") == call for message in agent.wire.messages):
        started = time.monotonic()
        other.status()
        slowest = max(slowest, time.monotonic() - started)
    assert agent.wire.result(call)["reads"]["huge.txt"]["totalLines"] == 50_000_000
    assert slowest < 1.0
    (place.root / "huge.txt").unlink()


# -- killed in the middle -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortal(new_place: Callable[..., Place]) -> Place:
    """A root of its own, whose daemon is killed and started again."""
    return new_place(ALLOW)


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id="short"), pytest.param(50, id="long", marks=[pytest.mark.full, pytest.mark.timeout(1200)])],
)
def test_killed_while_writing_seven_megabytes(mortal: Place, rounds: int):
    """I7, P48: the old content or the new one, every time; nothing stray is found by a search afterwards."""
    place = mortal
    new = "new line of some length\n" * (7 * 2**20 // 24)
    old = "old\n"
    chance = random.Random(48)
    outcomes: set[str] = set()
    for _ in range(rounds):
        place.put({"big.txt": old})
        agent = place.agent(surface="workspace")
        agent.begin("write_file", {"path": "big.txt", "content": new})
        deadline = time.monotonic() + chance.uniform(0.0, 0.6)
        while time.monotonic() < deadline and len(agent.wire.messages) < 2:
            time.sleep(0.001)
        place.kill()
        place.start()
        text = place.text("big.txt")
        assert text in (old, new)
        outcomes.add("old" if text == old else "new")
        agent = place.agent(surface="workspace")
        assert agent.call("glob", {"pattern": "**/*"})["data"]["paths"] == ["big.txt", "devtools.toml"]
        assert agent.call("grep", {"pattern": "of some"})["content"].count("devtools") == 0
    assert outcomes


@pytest.mark.full
def test_killed_while_a_plan_writes_many_files(mortal: Place):
    """I7: all old or all new, and the restart says which."""
    place = mortal
    (place.root / "big.txt").unlink(missing_ok=True)
    names = [f"f{number:02}.txt" for number in range(40)]
    chance = random.Random(7)
    lines = [line for name in names for line in (f"*** Update File: {name}", "@@", "-old", "+new")]
    patch = "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])
    for _ in range(10):
        place.put(dict.fromkeys(names, "old\n"))
        place.agent().begin("apply_patch", {"patch": patch})
        deadline = time.monotonic() + chance.uniform(0.002, 0.06)
        while time.monotonic() < deadline:
            pass
        place.kill()
        place.start()
        found = {place.text(name) for name in names}
        assert len(found) == 1
        assert set(place.tree()) == {"devtools.toml", *names}


def test_a_person_saves_while_agents_edit(place: Place):
    """Another program replaces the file all the time: what was reported as written is not lost to it unseen.

    The person keeps every line that they did not write themselves, as an editor does that reloads before saving.
    """
    place.put({"race.txt": "agent 0\nperson 0\n"})
    agent = place.agent()
    target, staged = place.root / "race.txt", place.base / "staged"
    saved = lost = 0
    agent_line = "agent 0"
    for number in range(1, 40):
        call = agent.begin_edit("race.txt", agent_line, f"agent {number}")
        before = target.read_text()
        staged.write_text(before.partition("\n")[0] + f"\nperson {number}\n")
        if target.read_text() == before:
            staged.rename(target)
            saved += 1
        answer = agent.wire.answer(call)
        text = target.read_text()
        assert text.count("\n") == 2
        if "result" in answer:
            lost += f"agent {number}" not in text
        else:
            assert answer["error"]["data"]["code"] == "E_DEV_CONFLICT"
            assert f"person {number}" in text
        agent_line = text.partition("\n")[0]
    assert saved
    # A person who writes over what landed a moment ago is seen by nobody; the agent never does so to a person.
    assert lost <= saved


# -- what is said of what landed ------------------------------------------------------------------------------------


def test_undo_tells_each_file_once_and_counts_its_lines(place: Place, agent: Agent):
    """A file that moves back and gets its old text is one change, not two (SPEC 3.12.1)."""
    place.put({"moved.txt": "one\ntwo\n", "gone.txt": "1\n2\n3\n"})
    patch = """*** Begin Patch
*** Update File: moved.txt
*** Move to: there.txt
@@
 one
-two
+three
+four
*** Delete File: gone.txt
*** Add File: made.txt
+new
*** End Patch
"""
    plan = agent.call("apply_patch", {"patch": patch}, surface="granular")["plan"]
    result = agent.wire.request("devtools/undo", {"plan": plan})
    told_changes = {change["path"]: change for change in result["changes"]}
    assert told_changes == {
        "gone.txt": {"path": "gone.txt", "kind": "added", "added": 3, "removed": 0},
        "made.txt": {"path": "made.txt", "kind": "deleted", "added": 0, "removed": 1},
        "moved.txt": {"path": "moved.txt", "kind": "renamed", "from": "there.txt", "added": 1, "removed": 2},
    }
    assert len(result["changes"]) == len(result["written"]) == 3
    assert "3 files changed" in result["summary"]


def test_a_result_that_fits_no_frame_still_says_what_was_written(place: Place, agent: Agent):
    """Nothing is half-told: an error after bytes landed lists them (SPEC 9)."""
    names = [f"long{number}.txt" for number in range(5)]
    place.put({"short.txt": "a\n", **dict.fromkeys(names, "a line of some length\n" * 90_000)})
    reading = [op("read_lines", path=name, start=1) for name in names]
    ops = [op("edit", **edit_of("short.txt", "a", "b")), op("write"), *reading]
    data = told(agent.wire.refused("devtools/ops", {"paths": ["short.txt", *names], "ops": ops}))
    assert (data["code"], data["retry"]) == ("E_DEV_WORKSPACE_BOUNDS", "withLess")
    assert data["written"] == [{"path": "short.txt", "kind": "modified"}]
    assert place.text("short.txt") == "b\n"


def test_an_edit_that_changes_nothing_does_not_say_that_it_did(place: Place, agent: Agent):
    place.put({"same.txt": "same\n"})
    agent.call("read_file", {"path": "same.txt"})
    result = agent.call("edit_file", {"path": "same.txt", "old_string": "same", "new_string": "same"})
    assert result["written"] == []
    assert result["content"] == "same.txt: unchanged\n"


def test_a_file_cannot_come_to_be_below_another(place: Place, agent: Agent):
    """It is the patch that is wrong, and nobody is asked about what could not land (SPEC 4.3)."""
    place.put({"kept.txt": "k\n"})
    add = "*** Begin Patch\n*** Add File: both\n+1\n*** Add File: both/below\n+2\n*** End Patch\n"
    move = "*** Begin Patch\n*** Update File: kept.txt\n*** Move to: up/kept\n*** Add File: up\n+2\n*** End Patch\n"
    for patch in (add, move):
        asked = len(place.activity(event="gate", step="apply_patch"))
        data = agent.refused("apply_patch", {"patch": patch}, surface="granular")
        assert (data["code"], data["reason"], data["step"]) == ("E_DEV_STEP_FAILED", "exists", "apply_patch")
        assert "below" in data["message"]
        assert len(place.activity(event="gate", step="apply_patch")) == asked
    assert place.text("kept.txt") == "k\n"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"path": "text.txt", "content": "a\0b\n"}),
        ("edit_file", {"path": "text.txt", "old_string": "t", "new_string": "\0"}),
        ("edit_file", {"path": "text.txt", "old_string": "t", "new_string": "\0", "replace_all": True}),
    ],
)
def test_no_tool_makes_a_file_that_is_no_text(place: Place, agent: Agent, tool: str, arguments: dict[str, object]):
    """It could be neither read nor edited afterwards."""
    place.put({"text.txt": "text\n"})
    agent.call("read_file", {"path": "text.txt"})
    data = agent.refused(tool, arguments)
    assert (data["code"], data["reason"], data["path"]) == ("E_DEV_BAD_ARG", "malformed", "text.txt")
    assert "NUL" in data["message"]
    assert place.text("text.txt") == "text\n"
