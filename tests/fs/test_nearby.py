"""What is answered on the loop: small looks into directories of the root's own mount, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools_lsp.fs import nearby
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.nearby import MAX_QUESTIONS, MAX_SMALL_BYTES, Nearby
from devtools_lsp.fs.walk import RootWalk

Opened = Callable[[], LocalFileSystem]


@pytest.fixture
def local(tmp_path: Path) -> Opened:
    """A file system over a root whose disk counts as local, whatever this machine's is."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("a\n")
    (tmp_path / "link").symlink_to("sub")

    def opened() -> LocalFileSystem:
        return LocalFileSystem(str(tmp_path), journaled=False)

    return opened


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In which thread each walk ran."""
    names: list[str] = []
    walk = RootWalk.walk

    def noting(self: RootWalk, path: str, *, follow: bool):
        names.append("loop" if threading.current_thread() is threading.main_thread() else "thread")
        return walk(self, path, follow=follow)

    monkeypatch.setattr(RootWalk, "walk", noting)
    monkeypatch.setattr(nearby, "_is_local", lambda _descriptor: True)
    return names


async def test_the_first_look_is_a_threads_and_teaches(local: Opened, threads: list[str]):
    files = local()
    await files.examine_many([("sub/a.txt", "read")])
    assert await files.read("sub/a.txt") == b"a\n"
    assert await files.examine_many([("sub/a.txt", "write"), ("sub/new", "create")])
    assert threads[0] == "thread"
    assert set(threads[1:]) == {"loop"}
    files.close()


async def test_what_lies_behind_a_link_is_a_threads(local: Opened, threads: list[str]):
    files = local()
    for _ in range(3):
        await files.examine_many([("link/a.txt", "read")])
    assert set(threads) == {"thread"}
    files.close()


async def test_a_large_file_is_read_by_a_thread(local: Opened, threads: list[str], tmp_path: Path):
    files = local()
    await files.examine_many([("sub/a.txt", "read")])
    large = b"x" * (MAX_SMALL_BYTES + 1)
    (tmp_path / "sub" / "large").write_bytes(large)
    assert await files.read("sub/large") == large
    assert threads[-1] == "thread"
    files.close()


async def test_many_questions_are_a_threads(local: Opened, threads: list[str]):
    files = local()
    await files.examine_many([("sub/a.txt", "read")])
    await files.examine_many([(f"sub/{number}", "create") for number in range(MAX_QUESTIONS + 1)])
    assert "loop" not in threads
    files.close()


async def test_another_disk_is_not_near(local: Opened, threads: list[str], monkeypatch: pytest.MonkeyPatch):
    files = local()
    monkeypatch.setattr(files.disk.nearby, "_device", -1)
    for _ in range(2):
        await files.examine_many([("sub/a.txt", "read")])
    assert set(threads) == {"thread"}
    files.close()


def test_what_is_known_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nearby, "_is_local", lambda _descriptor: True)
    monkeypatch.setattr(nearby, "_MAX_KNOWN", 3)
    walk = RootWalk(str(tmp_path))
    known = Nearby(walk.descriptor)
    for number in range(5):
        (tmp_path / f"d{number}").mkdir()
        with walk.walk(f"d{number}/f", follow=True) as trail:
            known.note(f"d{number}/f", trail)
    assert known.has("d4/anything")
    assert not known.has("d0/f")
    walk.close()


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="the mount table is Linux's")
def test_a_mount_that_is_no_disk_is_not_near():
    walk = RootWalk("/proc")
    known = Nearby(walk.descriptor)
    with walk.walk("version", follow=False) as trail:
        known.note("version", trail)
    assert not known.has("version")
    walk.close()


async def test_the_loop_gets_its_turn_among_many_questions(local: Opened, threads: list[str]):
    files = local()
    await files.examine_many([("sub/a.txt", "read")])
    for _ in range(100):
        await files.read("sub/a.txt")
    assert 8 <= threads.count("thread") <= 20
    files.close()


async def test_a_change_is_a_turn_for_others(local: Opened, threads: list[str]):
    """Whoever reads and writes by turns waits for every change, so that no question of theirs has to wait as well."""
    files = local()
    await files.examine_many([("sub/a.txt", "write")])
    threads.clear()
    for number in range(20):
        await files.examine_many([("sub/a.txt", "write")])
        await files.read("sub/a.txt")
        await files.write("sub/a.txt", f"{number}\n".encode())
    assert threads == ["loop", "loop", "thread"] * 20
    files.close()
