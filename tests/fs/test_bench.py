"""What safety costs on the disk, as ratios in one run (`pytest -m bench -s tests/fs/test_bench.py`).

Both sides of a ratio are measured alternately, and their lower quartiles compared: what else the machine does
then counts for both and not for one.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from devtools_lsp.core.workspace import sha256
from devtools_lsp.fs.opening import open_local
from devtools_lsp.ports import Mutation, Permit

pytestmark = pytest.mark.bench

SIZE = 10 * 1024
BUDGET = 1.5


def bare_write(path: str, data: bytes) -> None:
    """The least that is atomic and durable: temporary, fsync, rename, fsync of the directory."""
    temporary = path + ".tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(temporary, path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.fsync(directory)
    os.close(directory)


class Stopwatch:
    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def add(self, name: str, started: float) -> None:
        self.times.setdefault(name, []).append(time.perf_counter() - started)

    def quartile(self, name: str) -> float:
        return statistics.quantiles(self.times[name], n=4)[0]

    def report(self, title: str, base: str) -> dict[str, float]:
        print(f"\n{title}")
        ratios = {}
        for name in self.times:
            ratios[name] = self.quartile(name) / self.quartile(base)
            print(f"  {name:44} {self.quartile(name) * 1e6:9.0f} us  {ratios[name]:5.2f}")
        return ratios


@pytest.fixture
def root():
    """A repository on a real disk, where fsync costs what it costs."""
    with tempfile.TemporaryDirectory(dir=Path.home()) as directory:
        subprocess.run(["git", "init", "-q", directory], check=True)
        yield Path(directory)


async def test_a_safe_write(root):
    """One edit of a 10 KB file at depth 4: everything from the permit to the record for undo."""
    path = root / "src" / "pkg" / "sub" / "file.py"
    path.parent.mkdir(parents=True)
    contents = [b"x" * SIZE, b"y" * SIZE]
    path.write_bytes(contents[0])
    relative = str(path.relative_to(root))
    handle = open_local(str(root))
    permit = Permit("p", 0, "edit", frozenset({relative}))
    watch = Stopwatch()
    current = 0

    def change() -> list[Mutation]:
        nonlocal current
        old, current = contents[current], 1 - current
        return [Mutation("write", relative, contents[current], expect=sha256(old))]

    for number in range(400):
        started = time.perf_counter()
        bare_write(str(path), contents[current])
        watch.add("bare atomic fsynced write", started)
        started = time.perf_counter()
        await asyncio.to_thread(bare_write, str(path), contents[current])
        watch.add("bare write, there and back", started)
        mutations = change()
        started = time.perf_counter()
        handle.file_system.commit_now(f"t{number}", mutations)
        watch.add("commit, in the calling thread", started)
        mutations = change()
        started = time.perf_counter()
        await handle.gauntlet.commit(permit, mutations, lambda _: None)
        watch.add("gauntlet, there and back", started)
        started = time.perf_counter()
        await handle.file_system.write(relative, contents[current])
        watch.add("plain write, there and back", started)
        started = time.perf_counter()
        await handle.file_system.read(relative)
        watch.add("read, there and back", started)
    handle.close()
    ratios = watch.report("one 10 KB file", "bare atomic fsynced write")
    assert ratios["commit, in the calling thread"] <= BUDGET
    # Any program with an event loop pays for the hop to a thread; that is in both sides of this one.
    assert ratios["gauntlet, there and back"] / ratios["bare write, there and back"] <= BUDGET


async def test_a_hundred_files(root):
    """100 files in one transaction against 100 separate bare writes."""
    names = [f"src/d{number % 10}/f{number}.py" for number in range(100)]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"0" * 4096)
    handle = open_local(str(root))
    permit = Permit("p", 0, "edit", frozenset(names))
    watch = Stopwatch()
    old = b"0" * 4096
    for number in range(16):
        new = bytes([65 + number % 26]) * 4096
        started = time.perf_counter()
        for name in names:
            bare_write(str(root / name), new)
        watch.add("100 bare atomic fsynced writes", started)
        old, new = new, new.lower()
        mutations = [Mutation("write", name, new, expect=sha256(old)) for name in names]
        started = time.perf_counter()
        await handle.gauntlet.commit(permit, mutations, lambda _: None)
        watch.add("100 files in one transaction", started)
        started = time.perf_counter()
        found = await handle.file_system.read_many(names)
        watch.add("100 files read in one go", started)
        assert set(found.values()) == {new}
    handle.close()
    ratios = watch.report("100 files", "100 bare atomic fsynced writes")
    assert ratios["100 files in one transaction"] <= BUDGET


async def test_acquiring_many_files(root):
    """500 files screened and read, against reading them with open()."""
    names = [f"src/d{number % 20}/f{number}.py" for number in range(500)]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"0" * 4096)
    handle = open_local(str(root))
    watch = Stopwatch()
    for _ in range(12):
        started = time.perf_counter()
        for name in names:
            (root / name).read_bytes()
        watch.add("500 x read_bytes", started)
        started = time.perf_counter()
        await handle.gauntlet.screen_many([(name, "read") for name in names])
        watch.add("500 files screened", started)
        started = time.perf_counter()
        await handle.file_system.read_many(names)
        watch.add("500 files read in one go", started)
    handle.close()
    watch.report("500 files of 4 KB", "500 x read_bytes")
