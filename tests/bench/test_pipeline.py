"""The pipeline as a library against the bare thing: `pytest -m bench -s tests/bench`. Each has a named floor."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest

from tests.contract.bench import Scene, op

pytestmark = pytest.mark.bench


def show(title: str, **numbers: float) -> None:
    print(f"\n{title}: " + "  ".join(f"{name} {value:.2f}" for name, value in numbers.items()))


def close(scene: Scene) -> None:
    if scene.file_system is not None:
        scene.file_system.close()


async def test_five_hundred_files_acquired(tmp_path: Path):
    """Floor: 20 times reading them bare (every one is resolved, screened, read, decoded and hashed)."""
    scene = Scene(tmp_path)
    scene.put({f"d{number % 20}/f{number}.py": f"x = {number}\n" * 200 for number in range(500)})
    paths = sorted(tmp_path.rglob("*.py"))
    ours, bare = [], []
    for _ in range(5):
        begun = time.perf_counter()
        await scene.plan(["**/*.py"], op("write"))
        ours.append((time.perf_counter() - begun) * 1000)
        begun = time.perf_counter()
        for path in paths:
            path.read_bytes()
        bare.append((time.perf_counter() - begun) * 1000)
    close(scene)
    ratio = statistics.median(ours) / statistics.median(bare)
    show("500 files acquired, ms", ours=statistics.median(ours), bare=statistics.median(bare), ratio=ratio)
    assert ratio <= 20


async def test_a_one_line_edit_in_two_mebibytes(tmp_path: Path):
    """Floor: 15 times reading and writing the file bare, its diff shown."""
    scene = Scene(tmp_path)
    line = "x = 'some words of a line in a large file'\n"
    count = 2 * 1024 * 1024 // len(line) - 1
    text = line * (count // 2) + "unique = 1\n" + line * (count // 2 - 1)
    scene.put({"big.py": text})

    async def look(context, call):
        from devtools_lsp.ports import Decision

        if call.step == "edit":
            assert len((await context.diff()).diff) < 2000
        return Decision(approved=True, by="bench")

    scene.gate.answer = look
    ours, bare = [], []
    for number in range(5):
        begun = time.perf_counter()
        await scene.call(
            "edit", path="big.py", edits=[{"find": f"unique = {number + 1}\n", "replace": f"unique = {number + 2}\n"}]
        )
        ours.append((time.perf_counter() - begun) * 1000)
        begun = time.perf_counter()
        data = (tmp_path / "big.py").read_bytes().replace(b"unique", b"unique")
        (tmp_path / "bare.py").write_bytes(data)
        bare.append((time.perf_counter() - begun) * 1000)
    close(scene)
    ratio = statistics.median(ours) / statistics.median(bare)
    show(
        "one-line edit of 2 MiB with its diff, ms",
        ours=statistics.median(ours),
        bare=statistics.median(bare),
        ratio=ratio,
    )
    assert ratio <= 15


async def test_a_hundred_hunks(tmp_path: Path):
    """Floor: 10 times a patch of one hunk on the same file."""
    scene = Scene(tmp_path)
    lines = [f"line {number}\n" for number in range(5000)]

    def patch(numbers: range) -> str:
        hunks = "".join(f"@@ -{n},3 +{n},3 @@\n line {n - 1}\n-line {n}\n+LINE {n}\n line {n + 1}\n" for n in numbers)
        return f"--- a/a.txt\n+++ b/a.txt\n{hunks}"

    many, one = [], []
    for _ in range(5):
        for numbers, taken in ((range(10, 5000, 50), many), (range(10, 11), one)):
            scene.put({"a.txt": "".join(lines)})
            begun = time.perf_counter()
            await scene.call("apply_patch", patch=patch(numbers))
            taken.append((time.perf_counter() - begun) * 1000)
            assert scene.text("a.txt").count("LINE") == len(numbers)
    close(scene)
    ratio = statistics.median(many) / statistics.median(one)
    show("a patch of 100 hunks, ms", hundred=statistics.median(many), one=statistics.median(one), ratio=ratio)
    assert ratio <= 10
