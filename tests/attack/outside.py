"""What lies outside the root: a directory whose every change is an escape and whose every byte that comes in a leak."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SECRET = "SECRET_OF_OUTSIDE"
EXCHANGER = Path(__file__).parents[1] / "fs" / "attacker.py"
RENAMER = Path(__file__).with_name("renamer.py")


class Outside:
    """A directory beside the root, with files of the same names as the attacked directory."""

    def __init__(self, place: Path, names: tuple[str, ...]) -> None:
        self.place = place
        place.mkdir()
        for name in names:
            (place / name).write_text(f"import {SECRET}\n")
        self.remember()

    def remember(self) -> None:
        """Take it as it is now for what it has to stay."""
        self._known = self._look()

    @property
    def marks(self) -> tuple[bytes, ...]:
        """What no client may ever be told."""
        return (SECRET.encode(), str(self.place).encode())

    def _look(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for path in [self.place, *self.place.rglob("*")]:
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else None
            found[str(path)] = (status.st_ino, status.st_mode, status.st_mtime_ns, status.st_nlink, content)
        return found

    def escapes(self) -> list[str]:
        """Whatever is not as it was."""
        found = self._look()
        return sorted(path for path in found.keys() | self._known.keys() if found.get(path) != self._known.get(path))


@contextlib.contextmanager
def running(program: Path, *arguments: str | os.PathLike[str]) -> Iterator[None]:
    """Run an attacker for the length of the block; it must have been busy."""
    process = subprocess.Popen(
        [sys.executable, program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        count, _ = process.communicate(timeout=20)
    assert int(count) >= 256, count
