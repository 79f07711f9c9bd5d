"""What a command costs beside a bare spawn, as ratios of one run: `pytest -m bench -s tests/bench/test_shell.py`.

A command runs under a keeper that finds all its descendants, with its output cleaned, capped and streamed; through
the tool the gate is asked and the tree is looked at before and after.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.agent import shell_processes
from devtools_lsp.agent.changed_files import take_snapshot
from devtools_lsp.agent.shell import ShellSettings, confinement, run_command
from devtools_lsp.client import Client, connect, stop_daemon

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

UNSANDBOXED = ShellSettings(sandbox="none")


@pytest.fixture
def root() -> Iterator[Path]:
    """A root with one file, whose commands are not sandboxed."""
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory).resolve()
        (made / "devtools.toml").write_text('[gate]\nmode = "allow"\n[shell]\nsandbox = "none"\n')
        yield made
    shell_processes.close()


@pytest.fixture
async def daemon(root: Path) -> AsyncIterator[Client]:
    """A connection to the root's daemon."""
    async with await connect(root, name="bench", surface="workspace") as client:
        yield client
    await stop_daemon(root)


async def alternating(rounds: int, **candidates: Callable[[], Awaitable[Any]]) -> dict[str, float]:
    """Median milliseconds of each, one after the other in every round; the order turns with the rounds."""
    spent: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 5):
        turn = list(candidates.items())
        for name, run in turn if number % 2 else reversed(turn):
            began = time.perf_counter()
            await run()
            if number >= 5:
                spent[name].append((time.perf_counter() - began) * 1000)
    medians = {name: statistics.median(times) for name, times in spent.items()}
    first = next(iter(medians.values()))
    print("\n" + "  ".join(f"{name} {value:.2f} ms ({value / first:.2f})" for name, value in medians.items()))
    return medians


def spawner(root: Path, *, in_loop: bool) -> Callable[[], Awaitable[None]]:
    """The bare thing: a shell in a session of its own, its output read to the end."""

    async def by_loop() -> None:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", "true"),
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        await process.communicate()

    async def by_itself() -> None:
        subprocess.run(
            ["sh", "-c", "true"], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True
        )

    return by_loop if in_loop else by_itself


async def test_a_command_against_a_bare_spawn(root: Path, daemon: Client):
    """Floor: three times, beside the cheapest spawn that Python has."""

    async def over_socket() -> None:
        reply = await daemon.call("bash", {"command": "true"})
        assert reply["data"]["exitCode"] == 0
        assert reply["data"]["confinement"] != "bwrap"

    candidates = {
        "bare": spawner(root, in_loop=False),
        "bare_in_a_loop": spawner(root, in_loop=True),
        "unsandboxed": lambda: run_command(str(root), "true", settings=UNSANDBOXED),
        "socket": over_socket,
    }
    if (await confinement(str(root), ShellSettings())).level == "bwrap":
        candidates["bwrap"] = lambda: run_command(str(root), "true", settings=ShellSettings())
    medians = await alternating(100, **candidates)
    assert medians["unsandboxed"] <= 3 * medians["bare"]
    assert medians["socket"] <= 3 * medians["bare_in_a_loop"]


async def test_looking_for_changes_in_a_large_tree(root: Path):
    """What every command pays twice for the list of the files it changed: 5,000 files in at most 200 ms."""
    for number in range(5_000):
        home = root / f"d{number % 100}"
        home.mkdir(exist_ok=True)
        (home / f"f{number}.py").write_text("x = 1\n")
    medians = await alternating(15, snapshot=lambda: take_snapshot(str(root)))
    assert medians["snapshot"] < 200


async def test_draining_a_flood(root: Path):
    """A command that prints far more than is kept is not held up for long: at least 10 MB a second."""
    (root / "lines.txt").write_bytes((b"x" * 63 + b"\n") * 500_000)
    (root / "one-line.txt").write_bytes(b"x" * 32_000_000)
    medians = await alternating(
        3,
        lines=lambda: run_command(str(root), "cat lines.txt", settings=UNSANDBOXED),
        one_line=lambda: run_command(str(root), "cat one-line.txt", settings=UNSANDBOXED),
    )
    assert max(medians.values()) < 3_200
