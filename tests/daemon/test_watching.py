"""Changes that others make on disk: real ones, seen by watchfiles, in batches (SPEC 8.0.12)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from watchfiles import watch

from devtools_lsp.daemon.watching import Watcher
from devtools_lsp.engines.tree import FileEvent


class Seen:
    def __init__(self) -> None:
        self.batches: list[list[FileEvent]] = []
        self.announced: list[str] = []

    def take(self, events: Sequence[FileEvent]) -> None:
        self.batches.append(list(events))

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(event.path, event.kind) for batch in self.batches for event in batch]

    @property
    def paths(self) -> set[str]:
        return {path for path, _ in self.events}


@pytest.fixture
async def watching(tmp_path: Path):
    watchers: list[Watcher] = []

    async def start(root: Path = tmp_path, **options: Any) -> Seen:
        seen = Seen()
        watcher = Watcher(root, seen.take, announce=seen.announced.append, **options)
        watchers.append(watcher)
        await watcher.start()
        seen.watcher = watcher  # type: ignore[attr-defined]
        return seen

    yield start
    for watcher in watchers:
        await watcher.close()


async def test_files_that_come_change_and_go(tmp_path: Path, watching: Callable[..., Any], eventually: Any):
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "top.py").write_text("1")
    (tmp_path / "src" / "deep" / "a.py").write_text("1")
    seen = await watching()
    (tmp_path / "top.py").write_text("2")
    (tmp_path / "src" / "deep" / "a.py").write_text("2")
    (tmp_path / "src" / "new.py").write_text("1")
    await eventually(lambda: {"top.py", "src/deep/a.py", "src/new.py"} <= seen.paths)
    assert ("top.py", "changed") in seen.events
    assert ("src/new.py", "created") in seen.events
    (tmp_path / "src" / "deep" / "a.py").unlink()
    (tmp_path / "top.py").unlink()
    await eventually(lambda: {("src/deep/a.py", "deleted"), ("top.py", "deleted")} <= set(seen.events))


async def test_an_atomic_replacement_is_a_change_of_the_target(
    tmp_path: Path, watching: Callable[..., Any], eventually: Any
):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("1")
    seen = await watching()
    (tmp_path / "src" / ".devtools-lsp-01.tmp").write_text("2")
    os.replace(tmp_path / "src" / ".devtools-lsp-01.tmp", tmp_path / "src" / "a.py")
    await eventually(lambda: "src/a.py" in seen.paths)
    assert seen.paths == {"src/a.py"}, "our own temporaries are nobody's business"


async def test_what_tools_make_is_ignored_at_every_depth(tmp_path: Path, watching: Callable[..., Any], eventually: Any):
    for name in (".git", "node_modules", "packages/x/node_modules", "src"):
        (tmp_path / name).mkdir(parents=True)
    seen = await watching()
    for name in (
        ".git/index",
        "node_modules/a.js",
        "packages/x/node_modules/b.js",
        "src/__pycache__/c.pyc",
        "src/z.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    await eventually(lambda: "src/z.py" in seen.paths)
    assert seen.paths == {"src/z.py"}


async def test_a_burst_becomes_few_batches(tmp_path: Path, watching: Callable[..., Any], eventually: Any):
    (tmp_path / "src").mkdir()
    seen = await watching()
    for number in range(500):
        (tmp_path / "src" / f"f{number}.py").write_text("1")
    await eventually(lambda: len(seen.paths) == 500)
    assert len(seen.batches) < 20


async def test_a_new_directory_is_watched_with_all_that_is_in_it(
    tmp_path: Path, watching: Callable[..., Any], eventually: Any
):
    outside = tmp_path / "outside"
    root = tmp_path / "root"
    root.mkdir()
    (outside / "pkg" / "deep").mkdir(parents=True)
    (outside / "pkg" / "deep" / "a.py").write_text("1")
    seen = await watching(root)
    (outside / "pkg").rename(root / "pkg")
    await eventually(lambda: "pkg/deep/a.py" in seen.paths, "what was moved in at once")
    (root / "pkg" / "deep" / "b.py").write_text("1")
    await eventually(lambda: "pkg/deep/b.py" in seen.paths, "what is made in it later")
    (root / "pkg").rename(outside / "pkg")
    await eventually(lambda: ("pkg", "deleted") in seen.events)
    (root / "again").mkdir()
    (root / "again" / "c.py").write_text("1")
    await eventually(lambda: "again/c.py" in seen.paths)


async def test_when_the_system_has_no_watches_left_it_polls_and_says_so(
    tmp_path: Path, watching: Callable[..., Any], eventually: Any
):
    (tmp_path / "src").mkdir()

    def refusing(*paths: str, **options: Any) -> Any:
        if not options["force_polling"]:
            raise OSError("OS file watch limit reached")
        return watch(*paths, **options)

    seen = await watching(watch=refusing, poll_ms=50)
    await eventually(lambda: seen.announced)
    assert seen.watcher.polling
    assert "polling" in seen.announced[0]
    assert "limit reached" in seen.announced[0]
    (tmp_path / "src" / "a.py").write_text("1")
    await eventually(lambda: "src/a.py" in seen.paths)
    assert len(seen.announced) == 1


async def test_nothing_is_told_after_closing_and_no_thread_stays(
    tmp_path: Path, watching: Callable[..., Any], eventually: Any
):
    (tmp_path / "src").mkdir()
    seen = await watching()
    (tmp_path / "src" / "a.py").write_text("1")
    await eventually(lambda: seen.paths)
    await seen.watcher.close()
    count = len(seen.batches)
    (tmp_path / "src" / "b.py").write_text("1")
    assert not seen.watcher._threads
    assert len(seen.batches) == count
