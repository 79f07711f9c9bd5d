"""What an engine that changes the disk itself does while a directory turns into a link to outside, and what holds it.

The gauntlet cannot bind another process (SPEC 5.2.2): a command that opens `sub/l.py` by name gets whatever stands
there at that moment. Containment is the operator's `runner` (3.10.5), and this file is the proof of both halves:
without one the write lands outside, sooner or later; with the one that the documentation shows, never. Preset engines
get their texts over pipes or in a private copy, and write nothing themselves; `test_swap.py` attacks those.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.attack.daemon import ALLOW, Daemon
from tests.attack.outside import EXCHANGER, Outside, running

IN_PLACE = """
[engines.fixer]
kind = "command"
extensions = ["py"]
capabilities = ["lint", "fix"]
command = ["ruff"]
cwd = "root"
{runner}

[engines.fixer.lint]
command = ["ruff", "check", "--quiet", "--no-cache", "--isolated", "--select=F401", "{{files}}"]
input = "files"
output = {{ form = "none" }}
ok_exits = [0, 1, 2]

[engines.fixer.fix]
command = ["ruff", "check", "--fix", "--quiet", "--no-cache", "--isolated", "--select=F401", "{{files}}"]
input = "in-place"
output = {{ form = "none" }}
ok_exits = [0, 1, 2]
"""
UNUSED = "import os\n"


@pytest.fixture
def scene(new_daemon, tool) -> Iterator[tuple[Daemon, Outside]]:
    tool("ruff")
    daemon: Daemon = new_daemon()
    daemon.put({"sub/l.py": UNUSED})
    yield daemon, Outside(daemon.base / "outside", ("l.py",))
    daemon.close()


def assault(daemon: Daemon, outside: Outside, *, seconds: float) -> int:
    """Have the engine fix the file again and again; how often it did, when the time is over or something escaped."""
    agent = daemon.agent()
    fixed = 0
    begun = time.monotonic()
    while time.monotonic() - begun < seconds and not outside.escapes():
        agent.try_call("write_file", {"path": "sub/l.py", "content": UNUSED}, "workspace")
        answer = agent.try_call("lint", {"paths": ["sub/l.py"], "fix": True})
        fixed += bool("result" in answer and answer["result"]["written"])
    return fixed


def configure(daemon: Daemon, runner: str = "") -> None:
    (daemon.root / "devtools.toml").write_text(ALLOW + IN_PLACE.format(runner=runner))


def test_without_a_runner_it_escapes(scene):
    """The control, and the reason for the warning in the documentation."""
    daemon, outside = scene
    configure(daemon)
    os.symlink("../outside", daemon.root / "other")
    daemon.start()
    with running(EXCHANGER, daemon.root, "sub", "other"):
        assault(daemon, outside, seconds=60)
    assert outside.escapes() != []


@pytest.mark.parametrize(
    "seconds", [pytest.param(3.0, id="short"), pytest.param(20.0, marks=pytest.mark.full, id="long")]
)
def test_with_a_runner_that_binds_the_root_alone_it_does_not(scene, tool, seconds):
    daemon, outside = scene
    bwrap = tool("bwrap")
    runner = [bwrap, "--ro-bind", "/", "/", "--bind", str(daemon.root), str(daemon.root)]
    if subprocess.run([*runner, "true"], capture_output=True).returncode != 0:
        pytest.skip("bwrap is not allowed here")
    configure(daemon, f"runner = {runner}")
    os.symlink("../outside", daemon.root / "other")
    daemon.start()
    with running(EXCHANGER, daemon.root, "sub", "other"):
        fixed = assault(daemon, outside, seconds=seconds)
        while not fixed:
            fixed = assault(daemon, outside, seconds=1)
    assert outside.escapes() == []
