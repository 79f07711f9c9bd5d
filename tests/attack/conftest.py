"""Where the daemons of the attack tests come from, and that none of them is left."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attack.daemon import ALLOW, PLACE, Daemon, Nursery


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """As pytest's own, but at `PLACE`: these tests sync thousands of times."""
    with tempfile.TemporaryDirectory(prefix="atk-", dir=PLACE, ignore_cleanup_errors=True) as directory:
        yield Path(directory).resolve()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def new_daemon(nursery: Nursery) -> Iterator[Callable[..., Daemon]]:
    """Makes daemons that are not started yet; `own` gives one an interpreter of its own."""
    made: list[Daemon] = []

    def make(configuration: str = ALLOW, *, own: bool = False) -> Daemon:
        made.append(Daemon(None if own else nursery, configuration))
        return made[-1]

    yield make
    for daemon in made:
        daemon.close()


@pytest.fixture
def mounted() -> Iterator[Callable[..., Path]]:
    """Mount something for one test, or skip it where that is not allowed."""
    points: list[Path] = []

    def mount(*arguments: str, at: Path) -> Path:
        at.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["mount", *arguments, str(at)], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"mounting is not possible here: {done.stderr.strip()}")
        points.append(at)
        return at

    yield mount
    for point in reversed(points):
        subprocess.run(["umount", "-l", point], check=True, capture_output=True)
