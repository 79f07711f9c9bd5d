"""The demo is a test: it exits non-zero when anything in it is not as it should be."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from devtools_lsp.demo import run_demo, story
from devtools_lsp.errors import StepUnavailableError


async def test_without_its_programs_it_does_not_begin(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(story, "find_program", lambda name, _root: None if "pyright" in name else "/bin/true")
    with pytest.raises(
        StepUnavailableError, match=r"without basedpyright it does not begin; .*pip install basedpyright"
    ):
        await run_demo(pause_s=0)


@pytest.mark.timeout(240)
def test_the_demo_is_as_it_should_be(tool: Callable[[str], str]):
    tool("ruff")
    tool("basedpyright-langserver")
    done = subprocess.run(
        [sys.executable, "-m", "devtools_lsp", "demo", "--fast"],
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "everything was as it should be" in done.stdout
    assert "approved by editor" in done.stdout
    # A file that ten others import and one that nobody does, each under its own name, and the cold start beside them.
    assert "the files that import it judged, too" in done.stdout
    assert re.search(r"rich/diagnose\.py, which nobody imports: \d+ ms", done.stdout)
    assert re.search(r"`basedpyright rich/diagnose\.py` from a cold start: \d+ ms", done.stdout)
