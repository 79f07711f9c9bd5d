"""Which directories are so near that looking into them is no wait: those of the root's own mount, on a local disk.

A thread hop costs more than ten times what opening a file costs there, so a few small questions about such
directories are answered on the loop. Wherever a server, a device or a link may be in between, a thread asks. Knows no
policy; being near never decides what may be read.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from devtools_lsp.fs.walk import Trail, mount_of

MAX_SMALL_BYTES = 128 * 1024
"""Up to this size a file is read on the loop."""
MAX_QUESTIONS = 8
"""Up to this many paths are looked at on the loop together."""
_MAX_KNOWN = 4096
_LOCAL_TYPES = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "tmpfs", "overlay"))


class Nearby:
    """Learns from every walk. `root` is the root's open descriptor."""

    def __init__(self, root: int) -> None:
        self._device = os.fstat(root).st_dev
        self._local = _is_local(root)
        self._known: set[str] = set()

    def note(self, path: str, trail: Trail) -> None:
        """A walk to a root-relative path ended; it went through no link when the trail's path is the same."""
        if not self._local or trail.missing or trail.path != path:
            return
        directory = trail.parent
        if directory in self._known or any(device != self._device for device, _ in trail.identities):
            return
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known.add(directory)

    def has(self, *paths: str) -> bool:
        """Whether a few paths lie in directories that were near when somebody last looked."""
        return len(paths) <= MAX_QUESTIONS and self._known.issuperset([path.rpartition("/")[0] for path in paths])


def _is_local(descriptor: int) -> bool:
    """Whether a directory's mount is a local disk's. The mount table is Linux's; elsewhere nothing is near."""
    mount = mount_of(descriptor)
    try:
        with Path("/proc/self/mountinfo").open(encoding="utf-8", errors="replace") as table:
            for line in table:
                # id parent major:minor root mount-point options [optional …] - type source options (proc(5)).
                found = re.match(r"(\d+) .* - (\S+) ", line)
                if found is not None and int(found[1]) == mount:
                    return found[2] in _LOCAL_TYPES
    except OSError:
        pass  # No procfs.
    return False
