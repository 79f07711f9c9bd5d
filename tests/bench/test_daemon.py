"""The daemon against the bare thing, as ratios of one run: `pytest -m bench -s tests/bench`."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.client import Client, connect, stop_daemon

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

ENGINES = '[engines.ruff]\npreset = "ruff"\n[engines.basedpyright]\npreset = "basedpyright"\n'
LEAF = "rich/diagnose.py"
"""A module that nothing imports: the checker has one file to judge, as the cold command has."""


@pytest.fixture
def package() -> Iterator[Path]:
    """A copy of an installed package's source with the gate set to allow."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory).resolve()
        spec = find_spec("rich")
        assert spec is not None
        assert spec.origin is not None
        shutil.copytree(Path(spec.origin).parent, root / "rich", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "devtools.toml").write_text(f'[gate]\nmode = "allow"\n{ENGINES}')
        yield root
        asyncio.run(stop_daemon(root))


async def timed(work: Callable[[], Awaitable[object]], rounds: int) -> list[float]:
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        await work()
        taken.append((time.perf_counter() - begun) * 1000)
    return taken


def show(title: str, **numbers: float) -> None:
    print(f"\n{title}: " + "  ".join(f"{name} {value:.2f}" for name, value in numbers.items()))


async def test_warm_edit_and_check_against_a_cold_checker(package: Path, tool: Callable[[str], str]):
    """Floor: ten times."""
    checker = tool("basedpyright")
    text = (package / LEAF).read_text()
    rounds = itertools.count()

    def ops() -> list[dict[str, Any]]:
        # Another text each time, so that nothing can be answered from memory.
        edit = {"find": text[:200], "replace": f"import nothing_of_the_sort_{next(rounds)}\n" + text[:200]}
        return [{"step": "edit", "args": {"path": LEAF, "edits": [edit]}}, {"step": "check"}]

    cold = []
    for _ in range(3):
        begun = time.perf_counter()
        subprocess.run([checker, LEAF], cwd=package, capture_output=True, check=False)
        cold.append((time.perf_counter() - begun) * 1000)

    async with await connect(package, name="bench", surface="composite") as client:
        result = await client.ops([LEAF], ops())
        assert any("nothing_of_the_sort" in item["message"] for item in result["delta"]["introduced"])
        assert not result["delta"]["pending"]
        warm = await timed(lambda: client.ops([LEAF], ops()), 12)
    ratio = min(cold) / min(warm)
    show("edit → check, ms", cold=min(cold), warm=min(warm), warm_median=statistics.median(warm), ratio=ratio)
    assert ratio >= 10


def bare_write(path: Path, data: bytes) -> None:
    """What any careful program does: temporary, fsync, rename, fsync of the directory."""
    handle = os.open(path.with_suffix(".tmp"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(handle, data)
    os.fsync(handle)
    os.close(handle)
    path.with_suffix(".tmp").replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


async def round_trip(client: Client) -> None:
    await client.request("devtools/approvals", {})


async def test_a_granular_edit_against_a_bare_write_and_a_bare_round_trip(package: Path):
    """Floor: three times their sum, gate `allow`, journal on, 10 KB."""
    (package / "devtools.toml").write_text('[gate]\nmode = "allow"\n')
    target = package / "ten.txt"
    target.write_text("".join(f"line {number:05d}\n" for number in range(900)))
    data = target.read_bytes()
    flip = 0

    async with await connect(package, name="bench") as client:

        async def edit() -> None:
            nonlocal flip
            old, new = ("line 00500", "LINE 00500") if flip % 2 == 0 else ("LINE 00500", "line 00500")
            flip += 1
            await client.call("edit", {"path": "ten.txt", "edits": [{"find": old, "replace": new}]})

        async def write() -> None:
            bare_write(package / "bare.txt", data)

        edits, writes, trips = [], [], []
        for _ in range(60):
            # Alternating, so that the machine's noise falls on all alike.
            edits += await timed(edit, 1)
            writes += await timed(write, 1)
            trips += await timed(lambda: round_trip(client), 1)
    bare = statistics.median(writes) + statistics.median(trips)
    ratio = statistics.median(edits) / bare
    show(
        "granular edit, ms",
        edit=statistics.median(edits),
        write=statistics.median(writes),
        trip=statistics.median(trips),
        ratio=ratio,
    )
    assert ratio <= 3
