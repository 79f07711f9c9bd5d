"""P48: a large file is written over a small one while SIGKILL comes at a random moment (I7 for one file).

Whatever the moment, the target is the old file or the new one byte for byte, and no search after the next start
shows anything that a killed write left behind.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import pytest

from tests.attack.daemon import ALLOW, Daemon
from tests.attack.wire import Gone

SIZE = 7 * 1024 * 1024
OLD = b"old line\n" * 114
BIG = ALLOW + "[workspace]\nmax_bytes_per_file = 16000000\n"
WORD = "needle"


@pytest.fixture
def daemon(new_daemon) -> Iterator[Daemon]:
    daemon: Daemon = new_daemon(BIG)
    yield daemon
    daemon.close()


def new_content(number: int) -> str:
    line = f"{WORD} {number:06} and what else fills a line of sixty-four characters\n"
    return line * (SIZE // len(line))


def write(daemon: Daemon, number: int = 0, kill_after_s: float | None = None) -> float | None:
    """Send the write; the seconds until its answer, or None when the daemon was killed first."""
    agent = daemon.agent("workspace")
    begun = time.monotonic()
    request = agent.wire.begin(
        "devtools/call", {"name": "write_file", "arguments": {"path": "big.txt", "content": new_content(number)}}
    )
    if kill_after_s is not None:
        time.sleep(max(0.0, begun + kill_after_s - time.monotonic()))
        os.kill(daemon.pid, 9)
    try:
        answer = agent.wire.answer(request)
    except Gone:
        return None
    assert "error" not in answer, answer
    return time.monotonic() - begun


@pytest.mark.parametrize("repeats", [pytest.param(5, id="short"), pytest.param(50, marks=pytest.mark.full, id="long")])
def test_a_kill_at_a_random_moment_of_a_large_write(daemon, repeats):
    random.seed(48)
    daemon.put({"big.txt": OLD})
    daemon.start()
    whole_s = write(daemon)
    assert whole_s is not None
    daemon.kill()
    killed = 0
    for number in range(1, repeats + 1):
        daemon.put({"big.txt": OLD})
        daemon.start()
        # From the moment the request is on its way to a little after the answer: so each part of it is hit.
        killed += write(daemon, number, random.uniform(0.0, 1.2) * whole_s) is None
        assert daemon.ended() == -9
        found = (daemon.root / "big.txt").read_bytes()
        assert found in (OLD, new_content(number).encode())
        daemon.start()
        assert (daemon.root / "big.txt").read_bytes() == found
        agent = daemon.agent("workspace")
        places = {match["path"] for match in agent.call("grep", {"pattern": WORD})["data"]["matches"]}
        assert places <= {"big.txt"}
        for pattern in ("**/*", "**/.*", "*.tmp", ".*"):
            assert set(agent.call("glob", {"pattern": pattern})["data"]["paths"]) <= {"big.txt", "devtools.toml"}
        assert daemon.tree().keys() == {"big.txt"}
        assert daemon.litter() == []
        daemon.kill()
    assert killed > 0
