"""kill -9 of the daemon at every step of a patch, of an undo, and of the recovery at its next start (I7).

The steps are the fault points of `devtools_lsp.fs.faults`; a daemon that passes the armed one sends SIGKILL to itself.
Each next start recovers what the last one left and is armed for the following step.

To see these tests go red, remove the journal: `test_without_the_journal_a_kill_leaves_a_mixture` deletes the record
between the kill and the next start, as a daemon that never wrote one would leave it, and asserts the mixture.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket

import pytest

from tests.attack.daemon import Daemon
from tests.attack.wire import Agent, Gone, envelope

BEFORE = {
    "a.txt": b"a old\n",
    "src/b.py": b"b old\n",
    "src/drop.py": b"drop\n",
    "src/move.py": b"move\n",
    "src/move_edit.py": b"move edit\n",
    "untouched.txt": b"untouched\n",
}
AFTER = {
    "a.txt": b"a new\n",
    "src/b.py": b"b new and longer\n",
    "docs/deep/new.md": b"new\n",
    "lib/moved.py": b"move\n",
    "src/edited.py": b"edited\n",
    "untouched.txt": b"untouched\n",
}
# fmt: off
PATCH = envelope(
    "*** Update File: a.txt", "@@", "-a old", "+a new",
    "*** Add File: docs/deep/new.md", "+new",
    "*** Update File: src/move.py", "*** Move to: lib/moved.py",
    "*** Delete File: src/drop.py",
    "*** Update File: src/b.py", "@@", "-b old", "+b new and longer",
    "*** Update File: src/move_edit.py", "*** Move to: src/edited.py", "@@", "-move edit", "+edited",
)
# fmt: on
SAID = re.compile(r"plan (\S+) was interrupted; its files hold their (old|new) contents")


@pytest.fixture
def daemon(new_daemon):
    daemon = new_daemon()
    yield daemon
    daemon.close()


def fill(daemon: Daemon, files: dict[str, bytes]) -> None:
    """Make the tree these files and nothing else."""
    for path in daemon.root.iterdir():
        if path.name not in (".devtools", ".git", "devtools.toml"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    daemon.put(files)


def patch_until_killed(daemon: Daemon) -> bool:
    """Send the patch; True when the daemon answered it, False when it died."""
    agent = daemon.agent()
    try:
        written = agent.call("apply_patch", {"patch": PATCH})["written"]
    except Gone:
        assert daemon.ended() == -9
        return False
    assert len(written) == 6
    return True


def undo_until_killed(daemon: Daemon) -> bool:
    agent = daemon.agent()
    try:
        agent.ask("devtools/undo")
    except Gone:
        assert daemon.ended() == -9
        return False
    return True


def what_became(daemon: Daemon) -> str:
    """The state of the tree after recovery, which must be one of the two."""
    files = daemon.tree()
    assert files in (BEFORE, AFTER), {
        path: (BEFORE.get(path), files.get(path), AFTER.get(path))
        for path in BEFORE | AFTER | files
        if not BEFORE.get(path) == files.get(path) == AFTER.get(path)
    }
    assert daemon.litter() == []
    return "new" if files == AFTER else "old"


def said_in_status(daemon: Daemon) -> list[tuple[str, str]]:
    """Which plans a start says it found interrupted, and what they became."""
    return [
        match.groups() for line in daemon.agent().ask("devtools/status")["skipped"] for match in SAID.finditer(line)
    ]


def said_in_log(daemon: Daemon) -> list[tuple[str, str]]:
    """The same from the log of a daemon that has ended."""
    return [match.groups() for match in SAID.finditer(daemon.log)]


def last_plan(daemon: Daemon) -> str:
    return daemon.activity(event="gate")[-1]["plan"]


def test_a_kill_at_every_step_of_a_patch(daemon):
    """I7: all old or all new, and the next start says of which plan, in its status and in its log.

    Each start recovers what the one before it left, and is armed for the next step.
    """
    states: list[str] = []
    spoke: list[bool] = []
    plan, answered = "", False
    for count in range(1, 200):
        daemon.start(fault=f"journal:*#{count}:kill")
        said = said_in_status(daemon)
        if count > 1:
            states.append(what_became(daemon))
            assert bool({"docs", "docs/deep", "lib"} & daemon.directories()) == (states[-1] == "new")
            assert said in ([], [(plan, states[-1])])
            spoke.append(bool(said))
        if answered:
            break
        fill(daemon, BEFORE)
        answered = patch_until_killed(daemon)
        plan = last_plan(daemon)
        if answered:
            daemon.stop()
        assert said_in_log(daemon) == said
    else:
        pytest.fail("the patch never came to its end")
    assert len(states) > 25
    # All kills but the one after the commit marker leave the old state; that one and the whole run the new.
    assert states == ["old"] * (len(states) - 2) + ["new", "new"]
    # Before its record is written a plan has done nothing, so that there is nothing to say.
    assert spoke == [*sorted(spoke[:-2]), False, False]
    assert spoke.count(True) > 10


def some_or_all(step: int):
    """By default every `step`-th step, and all of them when asked for."""
    return [pytest.param(step, id="some"), pytest.param(1, marks=pytest.mark.full, id="all")]


@pytest.mark.parametrize("step", some_or_all(9))
def test_a_kill_at_every_step_of_an_undo(daemon, step):
    """I7 for the way back; and what was not undone can still be undone afterwards."""
    seen = set()
    for count in range(1, 100, step):
        daemon.start()
        fill(daemon, BEFORE)
        assert patch_until_killed(daemon)
        daemon.kill()
        daemon.start(fault=f"journal:*#{count}:kill")
        answered = undo_until_killed(daemon)
        if answered:
            daemon.stop()
        daemon.start()
        seen.add(what_became(daemon))
        if daemon.tree() == AFTER:
            assert undo_until_killed(daemon)
            assert daemon.tree() == BEFORE
        daemon.kill()
        if answered:
            break
    else:
        pytest.fail("the undo never came to its end")
    assert seen == {"old", "new"}


@pytest.mark.parametrize("step", some_or_all(3))
@pytest.mark.parametrize(
    "placed", [pytest.param(count, marks=[] if count == 5 else pytest.mark.full) for count in range(1, 9)]
)
def test_a_kill_at_every_step_of_the_recovery(daemon, placed, step):
    """I7: a start that dies while it recovers, and the one after it that dies later, change nothing about the end."""
    for count in range(1, 60, step):
        fill(daemon, BEFORE)
        daemon.start(fault=f"journal:placed#{placed}:kill")
        assert not patch_until_killed(daemon)
        assert daemon.tree() != BEFORE
        plan = last_plan(daemon)
        daemon.begin(fault=f"recovery:*#{count}:kill")
        if daemon.ready():
            break
        assert daemon.ended() == -9
        daemon.begin(fault=f"recovery:*#{count + 1}:kill")
        if not daemon.ready():
            assert daemon.ended() == -9
            daemon.start()
        assert what_became(daemon) == "old"
        assert said_in_status(daemon) == [(plan, "old")]
        daemon.kill()
        assert said_in_log(daemon) == [(plan, "old")]
    else:
        pytest.fail("the recovery never came to its end")
    assert what_became(daemon) == "old"
    assert count > 10


def test_a_daemon_started_by_an_operator_dies_and_recovers(new_daemon):
    """The same with `devtools-lsp serve` in an interpreter of its own, its fault point set in the environment."""
    daemon = new_daemon(own=True)
    daemon.put(BEFORE)
    daemon.start(fault="journal:placed#3:kill")
    assert not patch_until_killed(daemon)
    assert daemon.tree() not in (BEFORE, AFTER)
    plan = last_plan(daemon)
    daemon.start()
    assert what_became(daemon) == "old"
    assert said_in_status(daemon) == [(plan, "old")]
    daemon.stop()
    assert said_in_log(daemon) == [(plan, "old")]


def test_what_a_killed_daemon_was_about_to_run_is_not_taken_for_it(daemon):
    """Between its fork and its exec a child has the lock and the listening socket, too, and may outlive the kill."""
    daemon.start()
    path = daemon.socket_path
    daemon.kill()
    path.unlink()
    child = socket.socket(socket.AF_UNIX)
    child.bind(str(path))
    child.listen()
    child.settimeout(30)
    lock = os.open(f"{path}.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    daemon.begin()
    try:
        child.accept()[0].close()  # The next start asks whether somebody is there.
    finally:
        os.close(lock)
        child.close()
    assert daemon.ready()


def test_without_the_journal_a_kill_leaves_a_mixture(daemon):
    """The control: with the record removed before the next start, the same kill is a mixture for good."""
    fill(daemon, BEFORE)
    daemon.start(fault="journal:placed#3:kill")
    assert not patch_until_killed(daemon)
    [record] = daemon.root.glob(".devtools/*/*.intent")
    record.unlink()
    daemon.start()
    assert daemon.tree() not in (BEFORE, AFTER)


def test_what_a_person_changed_before_the_next_start_is_kept_and_named(daemon):
    """Recovery takes back what is still the plan's, and leaves the rest to whoever wrote it."""
    fill(daemon, BEFORE)
    daemon.start(fault="journal:commit:kill")
    assert not patch_until_killed(daemon)
    assert daemon.tree() == AFTER
    daemon.put({"a.txt": b"a person's\n"})
    daemon.start()
    assert daemon.tree() == {**BEFORE, "a.txt": b"a person's\n"}
    [said] = daemon.agent().ask("devtools/status")["skipped"]
    assert "kept because someone changed them since: a.txt" in said


def test_agents_work_on_after_a_recovery(daemon):
    """The start that recovered serves at once, and what it does next can be undone."""
    fill(daemon, BEFORE)
    daemon.start(fault="journal:placed#4:kill")
    assert not patch_until_killed(daemon)
    daemon.start()
    agent: Agent = daemon.agent()
    agent.call("apply_patch", {"patch": PATCH})
    assert daemon.tree() == AFTER
    agent.ask("devtools/undo")
    assert daemon.tree() == BEFORE


def test_an_undo_that_died_before_it_was_answered_is_not_done_twice(daemon):
    """Whoever heard nothing asks again: the second undo goes one plan further back, and never forward again."""
    fill(daemon, {"a.txt": b"one\n", "b.txt": b"one\n"})
    daemon.start()
    agent = daemon.agent()
    for old, new in (("one", "two"), ("two", "three")):
        change = ("@@", f"-{old}", f"+{new}")
        patch = envelope("*** Update File: a.txt", *change, "*** Update File: b.txt", *change)
        agent.call("apply_patch", {"patch": patch})
    daemon.kill()
    daemon.start(fault="journal:committed:kill")
    assert not undo_until_killed(daemon)
    assert daemon.tree() == {"a.txt": b"two\n", "b.txt": b"two\n"}
    daemon.start()
    daemon.agent().ask("devtools/undo")
    assert daemon.tree() == {"a.txt": b"one\n", "b.txt": b"one\n"}
