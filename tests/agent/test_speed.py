"""What a command and a search cost beside the bare thing, as ratios of one run (`-m bench`)."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from devtools_lsp.agent import search_process
from devtools_lsp.agent.changed_files import take_snapshot
from devtools_lsp.agent.search import glob, grep
from devtools_lsp.agent.shell import ShellSettings, confinement, run_command

pytestmark = pytest.mark.bench


async def alternating(rounds: int, **candidates: Callable[[], Awaitable[object]]) -> dict[str, float]:
    """Median milliseconds of each, one after the other in every round, so that they share the machine's moods."""
    spent: dict[str, list[float]] = {name: [] for name in candidates}
    for warm_up in (True, *([False] * rounds)):
        for name, run in candidates.items():
            began = time.perf_counter()
            await run()
            if not warm_up:
                spent[name].append((time.perf_counter() - began) * 1000)
    medians = {name: statistics.median(times) for name, times in spent.items()}
    print("\n" + ", ".join(f"{name} {value:.2f} ms" for name, value in medians.items()))
    return medians


async def bare(*argv: str, cwd: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    await process.communicate()


async def test_a_command_against_a_bare_spawn(root: Path):
    unsandboxed, sandboxed = ShellSettings(sandbox="none"), ShellSettings()
    candidates = {
        "bare": lambda: bare("sh", "-c", "true", cwd=root),
        "unsandboxed": lambda: run_command(str(root), "true", settings=unsandboxed),
    }
    if (await confinement(str(root), sandboxed)).level == "bwrap":
        candidates["bwrap"] = lambda: run_command(str(root), "true", settings=sandboxed)
    medians = await alternating(100, **candidates)
    assert medians["unsandboxed"] <= 3 * medians["bare"]


@pytest.fixture
def tree(root: Path) -> Path:
    """5,000 files in 100 directories."""
    text = "import os\n" + "x = 1  # a line of filler text\n" * 60
    for directory in range(100):
        (root / f"d{directory}").mkdir()
        for number in range(50):
            needle = "needle\n" if number % 10 == 0 else ""
            (root / f"d{directory}" / f"f{number}.py").write_text(text + needle)
    (root / ".gitignore").write_text("*.log\n")
    return root


@pytest.mark.parametrize("pattern", ["needle", "nothing-like-it", "^import"])
async def test_grep_against_ripgrep(tree: Path, pattern: str):
    program = search_process.ripgrep()
    if program is None:
        pytest.skip("ripgrep is not installed")
    medians = await alternating(
        15,
        ripgrep=lambda: bare(program, "--line-number", "--hidden", "-e", pattern, "./", cwd=tree),
        grep=lambda: grep(str(tree), pattern),
        fallback=lambda: grep(str(tree), pattern, program="python"),
    )
    assert medians["grep"] <= 1.3 * medians["ripgrep"] + 10


async def test_listing_files(tree: Path):
    program = search_process.ripgrep()
    if program is None:
        pytest.skip("ripgrep is not installed")
    medians = await alternating(
        15,
        ripgrep=lambda: bare(program, "--files", "--hidden", "./", cwd=tree),
        glob=lambda: glob(str(tree), "**/*.py"),
        snapshot=lambda: take_snapshot(str(tree)),
    )
    assert medians["glob"] <= 1.3 * medians["ripgrep"] + 20


async def test_draining_a_flood(root: Path):
    """A command that prints far more than is kept is not held up for long: at least 10 MB a second."""
    settings = ShellSettings(sandbox="none")
    (root / "lines.txt").write_bytes((b"x" * 63 + b"\n") * 500_000)
    (root / "one-line.txt").write_bytes(b"x" * 32_000_000)
    medians = await alternating(
        3,
        lines=lambda: run_command(str(root), "cat lines.txt", settings=settings),
        one_line=lambda: run_command(str(root), "cat one-line.txt", settings=settings),
    )
    assert max(medians.values()) < 3_200
