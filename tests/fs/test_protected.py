"""What counts as a protected place by its identity, and what by its path alone."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "own",
    [
        "state",
        "state/file",
        "state/missing/deep",
        "state/file/below",
        "linked/sub",
        "linked/missing",
        "chain/sub/file",
        "outward/file",
        "broken",
        "broken/below",
        "round",
        "round/below",
        "top{root}/state/file",
        "/".join(["missing"] * 400),
    ],
)
def test_a_place_is_protected_by_each_of_its_names_and_by_its_identity(tmp_path: Path, own: str):
    """Looking at all places in one go finds what the system says of each alone."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for directory in (root / "state", root / "real" / "sub", outside):
        directory.mkdir(parents=True)
    for file in (root / "state" / "file", root / "real" / "sub" / "file", outside / "file"):
        file.touch()
    for link, target in (
        ("linked", "real"),
        ("chain", "linked"),
        ("outward", str(outside)),
        ("broken", "nowhere"),
        ("round", "round"),
        ("top", "/"),
    ):
        (root / link).symlink_to(target)
    path = os.path.join(root, own.format(root=root))
    # Beside others, so that what they have in common was looked at already.
    found = ProtectedPlaces(str(root), [str(root / "linked"), str(root / "state" / "file"), path]).current()
    for spelling in (path, os.path.realpath(path)):
        if spelling.startswith(f"{root}/"):
            assert spelling.removeprefix(f"{root}/") in found.prefixes
    try:
        status = os.stat(path)
    except OSError:
        return
    assert (status.st_dev, status.st_ino) in found.identities


def test_what_holds_the_root_is_not_protected_by_identity(tmp_path: Path):
    """Else nothing could be written at all."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "same").symlink_to(".")
    found = ProtectedPlaces(str(root), [str(root), str(root / "same")]).current()
    status = os.stat(root)
    assert (status.st_dev, status.st_ino) not in found.identities
    assert found.prefixes == {".git", ".git/hooks", ".git/info", ".git/logs", ".git/modules", ".git/objects"} | {
        ".git/refs",
        ".git/worktrees",
        "same",
    }
