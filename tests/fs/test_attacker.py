"""An attacker exchanges a directory with a link to outside as fast as it can: zero escapes (I8).

The long form runs for 20 seconds (`-m full`). What makes it hold is `O_NOFOLLOW` in `walk.STEP_FLAGS`: take it away,
and the walk follows whatever stands there at the moment of its open. `test_without_o_nofollow_it_is_red` takes it
away and waits for the first escape.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from devtools_lsp.errors import DevToolsError
from devtools_lsp.fs import walk
from devtools_lsp.ports import Mutation, Permit

ANYTHING = Permit("attacked", 0, "edit", frozenset(), ("**", "**/.*"))


class Outside:
    """The directory outside: a canary whose every change is an escape."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        self.restore()

    def restore(self) -> None:
        for path in self.place.iterdir():
            path.rmdir() if path.is_dir() else path.unlink()
        (self.place / "f.txt").write_bytes(b"OUTSIDE")
        (self.place / "g.txt").write_bytes(b"OUTSIDE")
        self.known = self._look()

    def _look(self):
        return {path.name: (path.lstat().st_ino, path.read_bytes()) for path in self.place.iterdir() if path.is_file()}

    def escapes(self) -> list[str]:
        names = {path.name for path in self.place.iterdir()}
        return sorted(names ^ self.known.keys()) or [
            name for name, found in self._look().items() if found != self.known[name]
        ]


@contextlib.contextmanager
def swapping(root: Path, first: str, second: str):
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "attacker.py"), str(root), first, second],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        swaps, _ = process.communicate(timeout=20)
    assert int(swaps) >= 256


@pytest.fixture
def scene(tree, tmp_path):
    outside = Outside(tmp_path / "outside")
    tree.fill({"sub/f.txt": b"0", "sub/g.txt": b"0", "plain.txt": b"0"})
    os.symlink("../outside", tree.root / "other")
    return tree, outside


async def attack(opened_root, tree, outside, seconds: float, sha) -> dict[str, int]:
    """Read and change below the swapped directory through every method until the time is over or something escaped."""
    fs, gauntlet = opened_root.file_system, opened_root.gauntlet
    count = {"changed": 0, "refused": 0, "rounds": 0}

    async def attempt(coroutine):
        try:
            await coroutine
        except (DevToolsError, FileNotFoundError):
            count["refused"] += 1
        else:
            count["changed"] += 1

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        number = count["rounds"] = count["rounds"] + 1
        data = str(number).encode()
        for path in ("sub/f.txt", "sub/g.txt"):
            with contextlib.suppress(DevToolsError, FileNotFoundError):
                known = await fs.read(path)
                assert known != b"OUTSIDE", "a secret was read through the link"
                change = Mutation("write", path, data, expect=sha(known))
                await attempt(gauntlet.commit(ANYTHING, [change], lambda _: None))
        plain = (tree.root / "plain.txt").read_bytes()
        several = [
            Mutation("write", "plain.txt", data, expect=sha(plain)),
            Mutation("write", f"sub/new{number}/x.txt", data, expect=None),
            Mutation("write", "sub/f.txt", data),
        ]
        await attempt(gauntlet.commit(ANYTHING, several, lambda _: None))
        await attempt(fs.write("sub/g.txt", data))
        await attempt(fs.write(f"sub/w{number}", data))
        await attempt(fs.mkdir(f"sub/d{number}"))
        await attempt(fs.rename(f"sub/w{number}", f"sub/r{number}"))
        await attempt(fs.delete(f"sub/r{number}"))
        await attempt(gauntlet.screen("sub/f.txt", "write"))
        if number % 16 == 0 and outside.escapes():
            break
    return count


@pytest.mark.parametrize("symlinks", ["reject", "inside"])
@pytest.mark.parametrize("seconds", [pytest.param(1.0, id="short"), pytest.param(20.0, marks=pytest.mark.full)])
async def test_no_write_and_no_read_escapes(scene, opened, sha, symlinks, seconds):
    """I8: whatever the attacker's timing, nothing outside changes and nothing outside is read."""
    tree, outside = scene
    handle = opened(symlinks=symlinks)
    with swapping(tree.root, "sub", "other"):
        count = await attack(handle, tree, outside, seconds, sha)
    assert outside.escapes() == []
    # The attack was one: some attempts met the directory, others the link.
    assert count["changed"] > 20
    assert count["refused"] > 20


async def test_without_o_nofollow_it_is_red(scene, opened, sha, monkeypatch):
    """The control: the same attack on a walk that follows links escapes within moments."""
    tree, outside = scene
    monkeypatch.setattr(walk, "STEP_FLAGS", walk.STEP_FLAGS & ~os.O_NOFOLLOW)
    handle = opened()
    with swapping(tree.root, "sub", "other"):
        try:
            await attack(handle, tree, outside, 20.0, sha)
        except AssertionError as error:
            assert "a secret was read" in str(error)
            return
    assert outside.escapes() != []
