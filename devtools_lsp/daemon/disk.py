"""What is on disk now, as the people's side needs it: to place a range, to notice that a file changed.

Reads only, synchronously; callers that may meet many or large files go through a thread. Agents' reads and every
write go through the pipeline's file system, never through here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from devtools_lsp.core.workspace import sha256
from devtools_lsp.errors import DevToolsError
from devtools_lsp.fs.walk import READ_FLAGS, RootWalk
from devtools_lsp.text import NotTextError, decode

MAX_BYTES = 64 * 1024 * 1024
"""A larger file counts as one that cannot be read: nobody is shown a range in it."""


class Disk:
    """Files under one root. Whatever cannot be read as asked is None: absent, a directory, outside, too large."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))

    def read(self, path: str) -> bytes | None:
        """A regular file's bytes."""
        try:
            descriptor = self._open(path)
        except (OSError, ValueError, DevToolsError):
            return None
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                return None
            try:
                return file.read(MAX_BYTES + 1)
            except OSError:
                return None

    def _open(self, path: str) -> int:
        """Open what a path is now, links inside the root resolved; raises when any name on the way turns into one."""
        real = os.path.relpath(os.path.realpath(self.root / path), self.root)
        walk = RootWalk(str(self.root))
        try:
            with walk.walk(real, follow=False) as trail:
                if trail.missing or not trail.name:
                    raise FileNotFoundError(path)
                return os.open(trail.name, READ_FLAGS, dir_fd=trail.descriptor)
        finally:
            walk.close()

    def text(self, path: str) -> str | None:
        """A file's LF text; None also when it is not text."""
        data = self.read(path)
        if data is None:
            return None
        try:
            return decode(data)[0]
        except NotTextError:
            return None

    def sha256(self, path: str) -> str | None:
        """The hash of a file's bytes."""
        data = self.read(path)
        return None if data is None else sha256(data)

    def aliases(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The root-relative paths to which links inside the root lead from these, where they are others, sorted."""
        root, found = str(self.root), set[str]()
        links: dict[str, bool] = {}
        for path in paths:
            if not _leads_through_a_link(root, path, links):
                continue
            real = os.path.realpath(os.path.join(root, path))
            if real.startswith(root + "/") and (relative := real[len(root) + 1 :]) != path:
                found.add(relative)
        return tuple(sorted(found))

    def is_file(self, path: str) -> bool:
        """Whether a regular file is there, links followed."""
        try:
            return stat.S_ISREG(os.stat(self.root / path).st_mode)
        except (OSError, ValueError):
            return False


def _leads_through_a_link(root: str, path: str, known: dict[str, bool]) -> bool:
    """Whether some name on the way is a link, each looked at once; most are none, and nothing is resolved for them."""
    place = root
    for name in path.split("/"):
        place = f"{place}/{name}"
        if place not in known:
            try:
                known[place] = stat.S_ISLNK(os.lstat(place).st_mode)
            except (OSError, ValueError):
                known[place] = False
        if known[place]:
            return True
    return False
