"""An attacker swaps what agents work on with a link to outside as fast as it can: zero escapes, zero leaks (I8).

Two seconds each by default, twenty with `-m full`. What makes it hold is `O_NOFOLLOW` in the flags with which the
file system opens every directory on the way (`fs.walk.STEP_FLAGS`). `test_without_o_nofollow_it_is_red` starts a
daemon that lacks it, which the nursery does on request (`follow_links`), and waits for the first escape or leak.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.attack.daemon import ALLOW, Daemon
from tests.attack.outside import EXCHANGER, RENAMER, SECRET, Outside, running
from tests.attack.wire import Gone, Message, envelope, refusal

RUFF = '[engines.ruff]\npreset = "ruff"\n'
UNUSED = "import os\n"
KNOWN = {"E_DEV_POLICY", "E_DEV_CONFLICT", "E_DEV_BAD_ARG", "E_DEV_STEP_FAILED", "E_DEV_NOT_READ"}
"""What an agent may be answered while the ground moves; anything else is a fault of ours."""


class Assault:
    """Everything that an agent can do below `sub`, again and again, through every tool that writes or reads."""

    def __init__(self, daemon: Daemon, outside: Outside) -> None:
        self.daemon = daemon
        self.outside = outside
        self.count: Counter[str] = Counter()
        self._agent = daemon.agent(marks=outside.marks)

    @property
    def leaks(self) -> list[bytes]:
        return self._agent.wire.leaks

    @property
    def met_both(self) -> bool:
        """Whether the attack was one: again and again it met the directory, and the link."""
        return min(self.count["done"], self.count["refused"]) > 20

    def until(self, *, seconds: float) -> None:
        """Go on until the time is over, or something escaped or leaked; on a slow machine until it met both states."""
        begun = time.monotonic()
        number = 0
        while not self.leaks and not (number % 16 == 0 and self.outside.escapes()):
            for attempt in (self._whole, self._edit, self._patch, self._moves, self._fix, self._undo):
                attempt(number)
            number += 1
            spent = time.monotonic() - begun
            if spent > seconds and (self.met_both or spent > 10 * seconds):
                return

    def _try(self, tool: str, arguments: Message, surface: str = "granular") -> Message | None:
        return self._count(tool, self._agent.try_call(tool, arguments, surface))

    def _count(self, what: str, answer: Message) -> Message | None:
        if "error" in answer:
            data = refusal(answer)
            assert data["code"] in KNOWN, data
            self.count["refused"] += 1
            return None
        self.count["done"] += 1
        self.count[what] += 1
        return answer["result"]

    def _whole(self, number: int) -> None:
        self._try("read_file", {"path": "sub/f.txt"}, "workspace")
        self._try("write_file", {"path": "sub/f.txt", "content": f"f {number}\n"}, "workspace")
        self._try("write_file", {"path": f"sub/deep{number}/er/new.txt", "content": "new\n"}, "workspace")
        self._try("edit_file", {"path": "sub/f.txt", "old_string": "f ", "new_string": "F "}, "workspace")

    def _edit(self, number: int) -> None:
        read = self._try("read_lines", {"path": "sub/g.txt", "start": 1})
        if read is not None:
            edit = {"find": read["reads"]["sub/g.txt"]["text"], "replace": f"g {number}\n"}
            self._try("edit", {"path": "sub/g.txt", "edits": [edit]})

    def _patch(self, number: int) -> None:
        plain = (self.daemon.root / "plain.txt").read_text().rstrip("\n")
        # fmt: off
        self._try("apply_patch", {"patch": envelope(
            f"*** Add File: sub/added{number}.txt", "+added",
            f"*** Add File: sub/more{number}/added.txt", "+added",
            "*** Update File: plain.txt", "@@", f"-{plain}", f"+plain {number}",
        )})
        # fmt: on

    def _moves(self, number: int) -> None:
        old, new = f"sub/added{number}.txt", f"sub/moved{number}.txt"
        self._try("apply_patch", {"patch": envelope(f"*** Update File: {old}", f"*** Move to: {new}")})
        self._try("apply_patch", {"patch": envelope(f"*** Delete File: {new}")})

    def _fix(self, number: int) -> None:
        self._try("lint", {"paths": ["sub/l.py"], "fix": True})
        self._try("write_file", {"path": "sub/l.py", "content": UNUSED}, "workspace")
        self._try("lint", {"paths": ["sub/*.py"], "fix": True})

    def _undo(self, number: int) -> None:
        self._count("undo", self._agent.wire.ask("devtools/undo", {}))


@pytest.fixture
def scene(new_daemon, tool) -> Iterator[tuple[Daemon, Outside]]:
    tool("ruff")
    daemon: Daemon = new_daemon(ALLOW + RUFF)
    daemon.put({"sub/f.txt": "f\n", "sub/g.txt": "g\n", "sub/l.py": UNUSED, "plain.txt": "plain\n"})
    yield daemon, Outside(daemon.base / "outside", ("f.txt", "g.txt", "l.py"))
    daemon.close()


SECONDS = [pytest.param(2.0, id="short"), pytest.param(20.0, marks=pytest.mark.full, id="long")]


def configure(daemon: Daemon, symlinks: str) -> None:
    (daemon.root / "devtools.toml").write_text(f'{ALLOW}{RUFF}[workspace]\nsymlinks = "{symlinks}"\n')


def assert_contained(assault: Assault) -> None:
    """Nothing outside changed, nothing of it was told, and the attack was one: it met both states again and again."""
    assert assault.outside.escapes() == []
    assert assault.leaks == []
    assert assault.met_both, assault.count


@pytest.mark.parametrize("symlinks", ["reject", "inside"])
@pytest.mark.parametrize("seconds", SECONDS)
def test_a_directory_that_turns_into_a_link(scene, seconds, symlinks):
    """I8: the directory and a link to outside exchange their names, some hundred thousand times a second."""
    daemon, outside = scene
    configure(daemon, symlinks)
    os.symlink("../outside", daemon.root / "other")
    daemon.start()
    assault = Assault(daemon, outside)
    with running(EXCHANGER, daemon.root, "sub", "other"):
        assault.until(seconds=seconds)
    assert_contained(assault)
    missed = {"write_file", "edit_file", "edit", "apply_patch", "lint", "undo"} - assault.count.keys()
    assert not missed or seconds < 10


@pytest.mark.parametrize("symlinks", ["reject", "inside"])
@pytest.mark.parametrize("seconds", SECONDS)
def test_a_file_that_turns_into_a_link(scene, seconds, symlinks):
    """I8 at the last component: the file itself is a link to outside every other moment."""
    daemon, outside = scene
    configure(daemon, symlinks)
    os.symlink("../../outside/f.txt", daemon.root / "sub/link.txt")
    daemon.start()
    assault = Assault(daemon, outside)
    with running(EXCHANGER, daemon.root / "sub", "f.txt", "link.txt"):
        assault.until(seconds=seconds)
    assert_contained(assault)


@pytest.mark.parametrize(
    "operations", [pytest.param(400, id="short"), pytest.param(10_000, marks=pytest.mark.full, id="long")]
)
def test_a_directory_moved_away_with_a_link_in_its_place(scene, operations):
    """I8, P59: the directory is moved away, a link to outside takes its place, and back, without an exchange.

    Between two of these steps nothing of that name is there, so that the daemon may make a directory of its own.
    """
    daemon, outside = scene
    daemon.start()
    agent = daemon.agent("workspace", marks=outside.marks)
    done = 0
    with running(RENAMER, daemon.root, "sub", str(outside.place)):
        for number in range(operations // 2):
            content = f"f {number}\n"
            written = agent.try_call("write_file", {"path": "sub/f", "content": content})
            read = agent.try_call("read_file", {"path": "sub/f"})
            for answer in (written, read):
                assert "error" not in answer or refusal(answer)["code"] in KNOWN
                done += "error" not in answer
    assert outside.escapes() == []
    assert agent.wire.leaks == []
    assert done > operations / 20


@pytest.mark.parametrize("seconds", SECONDS)
def test_searches_see_nothing_through_the_link(scene, seconds):
    """P59 for grep and glob: the program that searches opens names, and what it saw through the link is not shown."""
    daemon, outside = scene
    (outside.place / f"{SECRET}.txt").write_text(f"{SECRET}\n")
    (outside.place / f"{SECRET}.bin").write_bytes(b"\0" + SECRET.encode())
    os.symlink("../outside", daemon.root / "other")
    daemon.start()
    agent = daemon.agent("workspace", marks=outside.marks)
    calls = (
        ("grep", {"pattern": SECRET[:6], "path": "sub"}),
        ("grep", {"pattern": SECRET[:6]}),
        ("grep", {"pattern": "import", "path": "sub", "glob": "*.py"}),
        ("glob", {"pattern": "sub/**"}),
        ("glob", {"pattern": "**/*", "path": "sub"}),
    )
    deadline = time.monotonic() + seconds
    found = rounds = 0
    with running(EXCHANGER, daemon.root, "sub", "other"):
        while time.monotonic() < deadline and not agent.wire.leaks:
            rounds += 1
            for tool, arguments in calls:
                answer = agent.try_call(tool, arguments)
                if "error" in answer:
                    assert refusal(answer)["code"] in KNOWN
                elif "sub/l.py" in answer["result"]["content"]:
                    found += 1
    assert agent.wire.leaks == []
    # What is inside was seen through the directory, again and again.
    assert found > rounds / 4


def test_a_recovery_under_attack(scene):
    """I8 without a permit: what a start takes back goes no other way than what an agent writes."""
    daemon, outside = scene
    os.symlink("../outside", daemon.root / "other")
    before = daemon.tree()
    for _ in range(3):
        daemon.start(fault="journal:commit:kill")
        agent = daemon.agent()
        # fmt: off
        patch = envelope(
            "*** Update File: plain.txt", "@@", "-plain", "+changed",
            "*** Update File: sub/f.txt", "@@", "-f", "+changed",
            "*** Delete File: sub/g.txt",
            "*** Add File: sub/new.txt", "+new",
        )
        # fmt: on
        with pytest.raises(Gone):
            agent.call("apply_patch", {"patch": patch})
        assert daemon.ended() == -9
        with running(EXCHANGER, daemon.root, "sub", "other"):
            daemon.start()
        daemon.kill()
        assert outside.escapes() == []
        # What the attacker kept from being restored is for the next start, when the directory is one again.
        daemon.start()
        daemon.kill()
        daemon.put(before)
        (daemon.root / "sub/new.txt").unlink(missing_ok=True)


def test_without_o_nofollow_it_is_red(scene):
    """The control: a daemon whose walk follows links escapes or leaks within moments of the same assault."""
    daemon, outside = scene
    os.symlink("../outside", daemon.root / "other")
    daemon.start(follow_links=True)
    assault = Assault(daemon, outside)
    with running(EXCHANGER, daemon.root, "sub", "other"):
        assault.until(seconds=20.0)
    assert outside.escapes() or assault.leaks
