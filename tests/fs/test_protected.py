"""What counts as a protected place by its identity, and what by its path alone."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from devtools_lsp.fs.protected import ProtectedPlaces


def test_a_socket_is_protected_by_its_path_alone(tmp_path: Path):
    """A stale one is replaced when the daemon starts, and a file of the workspace may get its inode next."""
    root = tmp_path / "root"
    (root / "state").mkdir(parents=True)
    address = root / "state" / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        found = ProtectedPlaces(str(root), [str(address), str(root / "state")]).current()
    status, directory = os.stat(address), os.stat(root / "state")
    assert "state/s" in found.prefixes
    assert (status.st_dev, status.st_ino) not in found.identities
    assert (directory.st_dev, directory.st_ino) in found.identities
