"""Every file-system call of a plan failing in turn: what was told to have been written is what the disk holds (I6).

The plan is a patch that adds, changes, deletes and moves, sent through `create_dev_pipeline`. On the local file
system its modules see an `os` whose n-th call fails, once or from then on; other adapters fail by themselves.
"""

from __future__ import annotations

import errno
import importlib
import os
import pkgutil
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp import fs
from devtools_lsp.errors import DevToolsError
from devtools_lsp.fs import syscalls
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.memory import MemoryFileSystem
from devtools_lsp.fs.policy import PathPolicy
from tests.attack.doors import Entrance
from tests.attack.wire import envelope

BEFORE = {"a.txt": b"a old\n", "src/b.py": b"b old\n", "src/drop.py": b"drop\n", "src/move.py": b"move\n"}
AFTER = {"a.txt": b"a new\n", "src/b.py": b"b new\n", "docs/new.md": b"new\n", "lib/moved.py": b"moved\n"}
# fmt: off
PATCH = envelope(
    "*** Update File: a.txt", "@@", "-a old", "+a new",
    "*** Add File: docs/new.md", "+new",
    "*** Update File: src/move.py", "*** Move to: lib/moved.py", "@@", "-move", "+moved",
    "*** Delete File: src/drop.py",
    "*** Update File: src/b.py", "@@", "-b old", "+b new",
)
FLAT_BEFORE = {"a.txt": b"a old\n", "b.txt": b"b old\n"}
FLAT_AFTER = {"a.txt": b"a new\n", "b.txt": b"b new\n", "new.txt": b"new\n"}
FLAT_PATCH = envelope(
    "*** Update File: a.txt", "@@", "-a old", "+a new",
    "*** Add File: new.txt", "+new",
    "*** Update File: b.txt", "@@", "-b old", "+b new",
)
"""What an adapter of four methods can do: nothing goes, and no directory is missing."""
CALLS = frozenset((
    "open", "read", "pread", "write", "fsync", "stat", "fstat", "link", "unlink", "rename", "mkdir", "rmdir",
    "readlink", "scandir", "fchmod", "fchown", "listxattr", "getxattr", "setxattr",
))
# fmt: on


class FailingOs:
    """`os`, whose n-th call fails; all from the n-th on where it fails for good."""

    def __init__(self, fail_at: int, *, for_good: bool) -> None:
        self.count = 0
        self._fail_at = fail_at
        self._for_good = for_good

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self.wrapped(found) if name in CALLS else found

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self._fail_at or (self._for_good and self.count > self._fail_at):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return function(*arguments, **options)

        return call


@pytest.fixture
def failing(monkeypatch):
    """Puts a failing `os` into every module of the disk's room."""
    modules = [importlib.import_module(found.name) for found in pkgutil.iter_modules(fs.__path__, "devtools_lsp.fs.")]

    def install(fail_at: int, *, for_good: bool) -> FailingOs:
        proxy = FailingOs(fail_at, for_good=for_good)
        for module in modules:
            if hasattr(module, "os"):
                monkeypatch.setattr(module, "os", proxy)
        monkeypatch.setattr(syscalls, "_flagged", proxy.wrapped(syscalls._flagged))
        return proxy

    return install


async def outcome(entrance: Entrance, patch: str) -> tuple[list[dict[str, Any]], DevToolsError | None]:
    """What was told to have been written, and the error if there was one."""
    try:
        result = (await entrance.call("apply_patch", patch=patch)).result
    except DevToolsError as error:
        assert "/dev/" not in error.message
        return error.written or [], error
    return [{"path": entry.path, "kind": entry.kind, "from": entry.from_} for entry in result.written], None


def told(
    before: Mapping[str, bytes], after: Mapping[str, bytes], written: Iterable[Mapping[str, Any]]
) -> dict[str, bytes]:
    """The files as they would be if what was told is all that happened."""
    files = dict(before)
    for entry in written:
        if entry["kind"] == "renamed":
            files[entry["path"]] = files.pop(entry["from"])
        elif entry["kind"] == "deleted":
            del files[entry["path"]]
        else:
            files[entry["path"]] = after[entry["path"]]
    return files


def refill(root: Path) -> None:
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path, data in BEFORE.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(data)


def on_disk(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".devtools" not in path.parts
    }


STEPS = [pytest.param(6, id="some"), pytest.param(1, id="all", marks=pytest.mark.full)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
async def test_the_journalled_disk(tmp_path, failing, monkeypatch, for_good, step):
    """I6: one failure changes nothing and says so; a disk that stays dead is told as it is, and mended at the start."""
    failures = 0
    for fail_at in range(1, 2000, step):
        refill(tmp_path)
        policy = PathPolicy(root=str(tmp_path))
        entrance = Entrance(tmp_path, LocalFileSystem(str(tmp_path), policy=policy), policy)
        proxy = failing(fail_at, for_good=for_good)
        written, error = await outcome(entrance, PATCH)
        monkeypatch.undo()
        files = on_disk(tmp_path)
        if error is None:
            assert files == AFTER, fail_at
        else:
            failures += 1
            assert error.code in ("E_DEV_STEP_FAILED", "E_DEV_POLICY"), (fail_at, error.message)
            assert files == told(BEFORE, AFTER, written), (fail_at, error.message)
            assert for_good or not written
        entrance.close()
        again = LocalFileSystem(str(tmp_path), policy=policy)
        again.recover_now()
        again.close()
        settled = on_disk(tmp_path)
        if error is None:
            assert settled == AFTER, fail_at
        else:
            # Where even the commit marker could not be taken back, all of it had landed and was told: that may stay.
            assert settled == BEFORE or (files == settled == AFTER), fail_at
        if proxy.count < fail_at:
            break
    else:
        pytest.fail("the plan never ran to its end")
    assert failures > 100 // step


@pytest.mark.parametrize("step", STEPS)
async def test_the_disk_without_a_journal(tmp_path, failing, monkeypatch, step):
    """I6 without atomicity: what had landed before the failure is told, in order, and is all that landed."""
    partly = 0
    for fail_at in range(1, 2000, step):
        refill(tmp_path)
        policy = PathPolicy(root=str(tmp_path))
        entrance = Entrance(tmp_path, LocalFileSystem(str(tmp_path), policy=policy, journaled=False), policy)
        proxy = failing(fail_at, for_good=False)
        written, error = await outcome(entrance, PATCH)
        monkeypatch.undo()
        entrance.close()
        found = on_disk(tmp_path)
        files = {path: data for path, data in found.items() if not path.endswith(".tmp")}
        assert files == (AFTER if error is None else told(BEFORE, AFTER, written)), fail_at
        # A temporary that could not be removed is in nobody's way, and is told.
        assert found == files or (error is not None and ".devtools-lsp-*.tmp" in error.message), fail_at
        partly += error is not None and bool(written)
        if proxy.count < fail_at:
            break
    else:
        pytest.fail("the plan never ran to its end")
    assert partly > 10 // step


class FourMethods:
    def __init__(self, memory: MemoryFileSystem) -> None:
        self.stat, self.list, self.read, self.write = memory.stat, memory.list, memory.read, memory.write


@pytest.mark.parametrize("kind", ["atomic memory", "memory", "four methods"])
async def test_adapters(tmp_path, kind):
    """I6 for an embedder's file system, whatever of the optional methods it has."""
    flat = kind == "four methods"
    before, after, patch = (FLAT_BEFORE, FLAT_AFTER, FLAT_PATCH) if flat else (BEFORE, AFTER, PATCH)
    partly = 0
    for fail_at in range(1, 500):
        count = 0

        def on_call(method: str, path: str, fail_at: int = fail_at) -> None:
            nonlocal count
            count += 1
            if count == fail_at:
                raise OSError(errno.EIO, f"{path} is broken on /dev/example")

        memory = MemoryFileSystem(before, atomic=kind == "atomic memory", on_call=on_call)
        entrance = Entrance(tmp_path, FourMethods(memory) if flat else memory, PathPolicy())
        written, error = await outcome(entrance, patch)
        assert memory.contents == (after if error is None else told(before, after, written)), fail_at
        partly += error is not None and bool(written)
        if count < fail_at:
            assert error is None
            break
    else:
        pytest.fail("the plan never ran to its end")
    assert (partly > 0) == (kind != "atomic memory")
