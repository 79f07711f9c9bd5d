"""One scene a test; clauses are named with the `clause` marker and listed in devtools_lsp/CONTRACT.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.bench import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    root = tmp_path / "root"
    root.mkdir()
    made = Scene(root)
    yield made
    close = getattr(made.file_system, "close", None)
    if close is not None:
        close()
