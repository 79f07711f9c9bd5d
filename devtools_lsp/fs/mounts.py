"""Which mount a directory is on, remembered for as long as the mount table stays as it is.

Asking costs a good part of what a small write costs. On Linux poll(2) on the table tells of every change (proc(5));
elsewhere each question is asked anew.
"""

from __future__ import annotations

import os
import select

from devtools_lsp.fs.walk import mount_of

_MAX_KNOWN = 4096


class Mounts:
    """Answers `mount_of` from memory. One thread at a time; close it when done."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], object] = {}
        self._changes: select.poll | None = None
        self._table = -1
        try:
            self._table = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # No procfs: macOS, or a container without it.
        self._changes = select.poll()
        self._changes.register(self._table, select.POLLPRI | select.POLLERR)

    def of(self, path: str, descriptor: int) -> object:
        """The mount of an open directory, which was reached under this root-relative path without links."""
        if self._changes is None:
            return mount_of(descriptor)
        if self._changes.poll(0) or len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        status = os.fstat(descriptor)
        # Another directory under the same path has another identity, and another mount over it changes the table.
        key = (path, status.st_dev, status.st_ino)
        if key not in self._known:
            self._known[key] = mount_of(descriptor)
        return self._known[key]

    def close(self) -> None:
        """Let go of the table. A second call does nothing."""
        table, self._table, self._changes = self._table, -1, None
        if table >= 0:
            os.close(table)
