"""I4: whatever door a mutation comes through, it passes the eight stages, all of them, in order.

The gauntlet's own recorder (`on_stage`) is put into the gauntlets that `create_dev_pipeline` and the daemon's
composition root make; what changed on the disk must be what it saw pass.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp import app
from devtools_lsp.agent.forge import Invocation
from devtools_lsp.config import parse_configuration
from devtools_lsp.errors import StepUnavailableError
from devtools_lsp.fs.gauntlet import STAGES, WriteGauntlet
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.memory import MemoryFileSystem
from devtools_lsp.fs.opening import open_local
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.pipeline.guarded import Caller
from devtools_lsp.ports import Cancellation, Decision, PlanIdentity
from tests.attack.doors import CHANGE, DOORS, NEW, OLD, SPARE, TRIGGER, Door, Entrance, edit_file

Passed = list[tuple[str, str]]
PATH = "deep/er/file.txt"
FILES = {SPARE: NEW.encode(), TRIGGER: NEW.encode()}


class FourMethods:
    """The least that an adapter may have."""

    def __init__(self, memory: MemoryFileSystem) -> None:
        self.stat, self.list, self.read, self.write = memory.stat, memory.list, memory.read, memory.write


@pytest.fixture
def passed(monkeypatch) -> Passed:
    passed: Passed = []
    record = lambda stage, path: passed.append((stage, path))  # noqa: E731
    monkeypatch.setattr(app, "WriteGauntlet", partial(WriteGauntlet, on_stage=record))
    monkeypatch.setattr(app, "open_local", partial(open_local, on_stage=record))
    return passed


@pytest.fixture(params=["local", "local without journal", "atomic memory", "memory", "four methods"])
def make(request, tmp_path: Path):
    """Makes an entrance over each kind of file system; gives it with a look at its files."""
    entrances: list[Entrance] = []

    def build(files: dict[str, bytes]):
        memory = MemoryFileSystem(files, atomic=request.param == "atomic memory")
        policy = PathPolicy()
        if "local" not in request.param:
            file_system = FourMethods(memory) if request.param == "four methods" else memory
            return Entrance(tmp_path, file_system, policy), lambda: dict(memory.contents)
        for path, data in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(data)
        local = LocalFileSystem(str(tmp_path), policy=policy, journaled="without" not in request.param)
        entrances.append(Entrance(tmp_path, local, policy))
        return entrances[-1], lambda: tree(tmp_path)

    yield build
    for entrance in entrances:
        entrance.close()


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".devtools" not in path.parts
    }


def assert_all_stages(passed: Passed, changed: set[str]) -> None:
    """Every changed file, and whatever else reached the mutation, passed every stage in order."""
    mutated = {path for stage, path in passed if stage == "mutation"}
    assert mutated >= changed
    for path in mutated:
        stages = [stage for stage, other in passed if other == path]
        times = len(stages) // len(STAGES)
        assert stages == [*STAGES] * times, path


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_every_door_passes_all_stages(make, passed: Passed, door: Door):
    entrance, files = make({**FILES, PATH: OLD.encode()} if door in CHANGE else FILES)
    entrance.acquired = (PATH,) if door in CHANGE else ()
    if door is edit_file:
        await entrance.call("read_file", "workspace", path=PATH)
    before = files()
    with contextlib.suppress(StepUnavailableError):
        await door(entrance, PATH)
    after = files()
    arrived = {path for path, data in after.items() if before.get(path) != data}
    gone = {path for path in before if path not in after}
    if not arrived | gone:
        # An adapter that can neither make directories nor take away: refused, or the engine that needs it is left out.
        assert isinstance(entrance.file_system, FourMethods)
        assert "mutation" not in [stage for stage, _ in passed]
        return
    # A move is recorded under its destination.
    assert_all_stages(passed, arrived or gone)


async def test_the_doors_of_the_daemon_pass_all_stages(tmp_path: Path, passed: Passed):
    """The tools of every surface and undo, as the daemon composes them."""
    root = tmp_path / "root"
    for path in ("a.txt", "b.txt", "c.txt"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(OLD)

    async def approve(_context: object, _call: object) -> Decision:
        return Decision(approved=True, by="test")

    built = app.build(str(root), parse_configuration({}), app.World(gate=approve), artifacts=tmp_path / "artifacts")
    who = Invocation("attacker", "session", Cancellation(), None)

    async def call(surface: Any, name: str, arguments: dict[str, Any]) -> None:
        await built.tools(surface).find(name).call(arguments, who, None)

    edits = [{"find": OLD, "replace": NEW}]
    try:
        await call("granular", "edit", {"path": "a.txt", "edits": edits})
        assert_all_stages(passed, {"a.txt"})
        ops = [{"step": "edit", "args": {"path": "b.txt", "edits": edits}}, {"step": "write", "args": {}}]
        await call("composite", "dev_plan", {"paths": ["b.txt"], "ops": ops})
        assert_all_stages(passed, {"a.txt", "b.txt"})
        await call("workspace", "write_file", {"path": "new/c.txt", "content": NEW})
        assert_all_stages(passed, {"a.txt", "b.txt", "new", "new/c.txt"})
        passed.clear()
        await built.pipeline.undo(None, Caller(PlanIdentity("p-undo", "attacker", "session")))
        assert_all_stages(passed, {"new/c.txt"})
    finally:
        await built.close()
    assert (root / "b.txt").read_text() == NEW
    assert not (root / "new/c.txt").exists()
