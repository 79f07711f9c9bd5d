"""A toolset over an empty root, with a gate that is looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devtools_lsp import DevToolset, Workspace
from tests.toolset.gates import RecordingGate
from tests.workspaces import end_the_fork_server, eventually, nap, plant, root, running

__all__ = ["end_the_fork_server", "eventually", "nap", "plant", "root", "running"]


@pytest.fixture
def gate() -> RecordingGate:
    return RecordingGate()


@pytest.fixture
async def toolset(root: Path, gate: RecordingGate) -> AsyncIterator[DevToolset]:
    async with DevToolset(Workspace(root), gate) as opened:
        yield opened
