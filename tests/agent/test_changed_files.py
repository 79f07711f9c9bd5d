"""What a command changed, from two looks at the tree."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from devtools_lsp.agent.changed_files import SnapshotLimits, changed_files, take_snapshot


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("true", []),
        ("echo new > b.txt", ["added b.txt"]),
        ("mkdir -p x/y && echo new > x/y/b.txt", ["added x/y/b.txt"]),
        ("echo more >> a.txt", ["modified a.txt"]),
        ("printf 'SAME SIZE\\n' > a.txt; touch -d @1 a.txt", ["modified a.txt"]),
        ("chmod +x a.txt", ["modified a.txt"]),
        ("cat a.txt; ls -l", []),
        ("ln a.txt hard.txt", ["added hard.txt"]),
        ("rm a.txt", ["deleted a.txt"]),
        ("mv a.txt z.txt", ["renamed z.txt from a.txt"]),
        ("mkdir d && mv sub/c.txt d/", ["renamed d/c.txt from sub/c.txt"]),
        ("mv sub moved", ["renamed moved/c.txt from sub/c.txt"]),
        ("mv a.txt z.txt; echo more >> z.txt", ["deleted a.txt", "added z.txt"]),
        ("cp a.txt t; mv t a.txt", ["modified a.txt"]),
        ("ln -s a.txt link", ["added link"]),
        ("mkdir -p .git node_modules/x; echo > .git/x; echo > node_modules/x/i.js", []),
        ("ln -s / everything", ["added everything"]),
        ("rm a.txt sub/c.txt; echo 1 > 1; echo 2 > 2", ["added 1", "added 2", "deleted a.txt", "deleted sub/c.txt"]),
    ],
)
async def test_changes(root: Path, plant, command: str, expected: list[str]):
    plant({"a.txt": "same size\n", "sub/c.txt": "c\n"})
    os.utime(root / "a.txt", (1, 1))
    before = await take_snapshot(str(root))
    subprocess.run(["sh", "-c", command], cwd=root, check=True, stdout=subprocess.DEVNULL)
    found = changed_files(before, await take_snapshot(str(root)))
    shown = [
        f"{change.kind} {change.path}" + (f" from {change.from_}" if change.from_ else "") for change in found.changes
    ]
    assert shown == expected
    assert found.unknown is None


async def test_words_and_wire(root: Path, plant):
    plant({"a.txt": "a\n"})
    before = await take_snapshot(str(root))
    plant({"b.txt": "b\n", "c.txt": "c\n"})
    (root / "a.txt").rename(root / "z.txt")
    limits = SnapshotLimits(max_changes=2)
    found = changed_files(before, await take_snapshot(str(root)), limits)
    assert found.content == "changed files:\nA  b.txt\nA  c.txt\n[1 more files changed]\n"
    assert found.to_wire() == {
        "changes": [{"path": "b.txt", "kind": "added"}, {"path": "c.txt", "kind": "added"}],
        "omitted": 1,
    }


@pytest.mark.parametrize(
    ("limits", "words"), [(SnapshotLimits(max_files=3), "more than 3 files"), (SnapshotLimits(max_s=0), "longer than")]
)
async def test_too_large_is_unknown_and_never_nothing(root: Path, plant, limits: SnapshotLimits, words: str):
    plant({f"{number}/{number}.txt": "x" for number in range(10)})
    before = await take_snapshot(str(root), limits)
    found = changed_files(before, await take_snapshot(str(root)), limits)
    assert found.changes == ()
    assert found.unknown is not None
    assert words in found.unknown
    assert "not known" in found.content
    assert "unknown" in found.to_wire()


async def test_a_root_that_cannot_be_read_is_unknown(root: Path, plant):
    plant({"a.txt": "a"})
    before = await take_snapshot(str(root / "a.txt"))
    assert before.unknown is not None
    assert "could not be read" in before.unknown
