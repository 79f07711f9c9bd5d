"""Private directories for the time that this process lives: copies of projects, sockets, caches of tools.

Owns their names, so that those of a process that was killed can be told and removed. Blocks: call it in a thread.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil

_PREFIX = "devtools-lsp-engine-"


def scratch_directory(name: str) -> Path:
    """A new directory that only this user may enter; those of processes that are gone are removed on the way."""
    _remove_abandoned()
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-{name}-")).resolve()


def remove_scratch(directory: Path) -> None:
    """Remove a directory with everything in it; what is linked from it stays."""
    shutil.rmtree(directory, ignore_errors=True)


def _remove_abandoned() -> None:
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = directory.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            remove_scratch(directory)
