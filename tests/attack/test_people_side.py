"""What the people's side reads for itself while the ground moves: nothing from outside, and never an exception."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from devtools_lsp.daemon.disk import Disk
from tests.attack.outside import EXCHANGER, SECRET, Outside, running


@pytest.mark.parametrize("seconds", [pytest.param(0.5, id="short"), pytest.param(10.0, marks=pytest.mark.full)])
def test_a_file_below_a_directory_that_turns_into_a_link(tmp_path: Path, seconds: float):
    """Ranges, approvals and unsaved buffers are compared with it; whatever cannot be read counts as absent."""
    outside = Outside(tmp_path / "outside", ("f.txt",))
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub/f.txt").write_text("inside\n")
    os.symlink("../outside", root / "other")
    disk = Disk(root)
    found: dict[str | None, int] = {}
    deadline = time.monotonic() + seconds
    with running(EXCHANGER, root, "sub", "other"):
        while time.monotonic() < deadline:
            text = disk.text("sub/f.txt")
            found[text] = found.get(text, 0) + 1
            disk.is_file("sub/f.txt")
            disk.sha256("sub/f.txt")
    assert not [text for text in found if text is not None and SECRET in text], found
    assert found["inside\n"] > 10
    assert outside.escapes() == []
