"""Fixtures that rooms share: trees to search and run commands in, and ways to see what became of processes."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from devtools_lsp.agent import shell_processes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty workspace root."""
    made = tmp_path / "root"
    made.mkdir()
    return made


@pytest.fixture
def plant(root: Path) -> Callable[[dict[str, str | bytes]], Path]:
    """Write files, by root-relative path; text as UTF-8."""

    def write(files: dict[str, str | bytes]) -> Path:
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return write


@pytest.fixture
def running() -> Callable[[str], list[int]]:
    """The pids of living processes whose command line is exactly these words."""

    def find(command: str) -> list[int]:
        return [
            process.pid
            for process in psutil.process_iter(["cmdline", "status"])
            if process.info["status"] != psutil.STATUS_ZOMBIE and process.info["cmdline"] == command.split()
        ]

    return find


_naps = itertools.count()


@pytest.fixture
def nap() -> Callable[[], str]:
    """A `sleep` of about a minute that no other test, and no other run of the tests, takes."""
    return lambda: f"sleep 60.{os.getpid()}{next(_naps):04}"


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """Wait until a condition holds, at most so many seconds."""

    async def wait(condition: Callable[[], bool], within_s: float = 5.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {within_s} s"
            await asyncio.sleep(0.01)

    return wait


@pytest.fixture(scope="session", autouse=True)
def end_the_fork_server() -> Iterator[None]:
    """No process outlives the tests."""
    yield
    shell_processes.close()
