"""grep and glob against a slow oracle that shares no code with them, over random trees (seeded).

The oracle asks git which files are ignored, reads every other one whole and matches line by line. Both programs must
find exactly what it finds, and agree with each other about what they passed over.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.agent import search_process
from devtools_lsp.agent.search import SearchLimits, glob, grep
from devtools_lsp.agent.search_process import Program

LIMITS = SearchLimits(max_matches=2_000, max_paths=400, max_line_bytes=120, max_file_bytes=3_000)
NEVER = {"node_modules", "target", "__pycache__", ".venv"}
NAMES = [
    "a",
    "b.py",
    "c.log",
    "d.txt",
    ".hidden",
    "gen",
    "x y",
    "\u00e9.py",
    "[z].py",
    "-r.txt",
    "new\nline",
    "m.min.js",
]
DIRECTORIES = ["sub", "gen", "deep", ".config", "node_modules", "target", "src", "-dash", "caf\u00e9"]
RULES = [
    "*.log",
    "gen/",
    "/a",
    "!c.log",
    "**/d.txt",
    "b.*",
    "x y",
    "sub/gen",
    ".hidden",
    "\\[z].py",
    "/deep/*",
    "!/deep/a",
]
LINES = [
    b"needle",
    b"Needle and more",
    b"two needle needle",
    b"",
    b"  indented 42",
    "caf\u00e9 needle \u20ac".encode(),
    b"bad \xff\xfe needle",
    b"-x --release",
    b"end needle",
    b"colon:3:needle\ttab",
    b"x" * 119 + b"|",
    b"x" * 120 + b"|needle",
    b"needle " + b"y" * 700,
]
PATTERNS = [
    "needle",
    "^needle",
    "needle$",
    "^$",
    "e{2}d",
    "caf\u00e9",
    r"\b42\b",
    "-x",
    "--release",
    "two|end",
    "(?i)NEEDLE",
    r"x\|$",
]
SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(3, 60))]


@dataclass
class Expected:
    """What a question must find, and which files it cannot look into."""

    matches: list[tuple[str, int, int, bytes]] = field(default_factory=list)
    binary: set[str] = field(default_factory=set)
    oversized: set[str] = field(default_factory=set)


class Forest:
    """One random tree on the disk, and the oracle's answers about it."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root = root
        self.chance = chance
        subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
        for _ in range(60):
            self._plant()
        homes = [root, *(path for path in root.rglob("*") if path.is_dir() and ".git" not in path.parts)]
        for home in chance.sample(homes, min(4, len(homes))):
            (home / ".gitignore").write_text("\n".join(chance.sample(RULES, 3)) + "\n")
        (root / "loop").symlink_to(".")
        (root / "dangling").symlink_to("nowhere")
        self.files = sorted(self._visible())

    def _plant(self) -> None:
        home = self.root.joinpath(*self.chance.choices(DIRECTORIES, k=self.chance.choice([0, 0, 1, 1, 2, 3])))
        path = home / self.chance.choice(NAMES)
        try:
            home.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._content())
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            # A name that is taken by the other kind of thing: one file fewer.
            return

    def _content(self) -> bytes:
        lines = self.chance.choices(LINES, k=self.chance.randint(0, 6))
        data = self.chance.choice([b"\n", b"\n", b"\r\n"]).join(lines) + self.chance.choice([b"", b"\n", b"\r\n"])
        kind = self.chance.random()
        if kind < 0.1:
            return data + b"\0\1" + data
        if kind < 0.15:
            return b"\xef\xbb\xbf" + data
        if kind < 0.2:
            return data.decode("utf-8", "replace").encode("utf-16")
        if kind < 0.25:
            return data + b"needle\n" * 500
        return data

    def _visible(self) -> Iterator[str]:
        listed = subprocess.run(
            ["git", "-c", "core.excludesFile=/dev/null", "ls-files", "-o", "--exclude-standard", "-z"],
            cwd=self.root,
            check=True,
            capture_output=True,
        ).stdout
        for name in listed.decode().split("\0"):
            path = self.root / name
            if name and not path.is_symlink() and NEVER.isdisjoint(name.split("/")[:-1]):
                yield name

    def answer(self, pattern: str, *, path: str = "", suffix: str = "") -> Expected:
        """Matching lines of the visible files at or below a path whose names end so."""
        regex = re.compile(pattern)
        named = path in self.files
        found = Expected()
        for name in self.files:
            if path and name != path and not name.startswith(path + "/"):
                continue
            if not name.endswith(suffix):
                continue
            data = (self.root / name).read_bytes()
            if len(data) > LIMITS.max_file_bytes and not named:
                found.oversized.add(name)
                continue
            if data.startswith((b"\xff\xfe", b"\xfe\xff")):
                data = data.decode("utf-16").encode()
            data = data.removeprefix(b"\xef\xbb\xbf")
            binary = b"\0" in data
            lines = re.split(rb"[\0\n]" if binary else rb"\n", data)
            for number, raw in enumerate(lines[:-1] if not lines[-1] else lines, 1):
                line = raw.removesuffix(b"\r")
                hit = regex.search(line.decode("utf-8", "surrogateescape"))
                if hit is not None and not binary:
                    found.matches.append((name, number, hit.start() + 1, line))
                elif hit is not None or (binary and not named and not suffix):
                    found.binary.add(name)
            if binary and not lines:
                found.binary.add(name)
        return found


@pytest.fixture(params=SEEDS)
def forest(request: pytest.FixtureRequest, root: Path) -> Forest:
    """A tree a seed."""
    return Forest(root, random.Random(request.param))


def check(found: dict[str, Any], expected: Expected, question: object) -> None:
    """The answer is the oracle's: every line, and every file that could not be looked into."""
    seen = found["matches"]
    assert [(match["path"], match["line"]) for match in seen] == [entry[:2] for entry in expected.matches], question
    for match, (_, _, column, line) in zip(seen, expected.matches, strict=True):
        text = line.decode("utf-8", "replace")
        if match.get("cut"):
            assert len(line) > LIMITS.max_line_bytes, question
            assert text.startswith(match["text"]), question
            assert len(match["text"]) >= LIMITS.max_line_bytes - 4, question
        else:
            assert match["text"] == text, question
            assert len(line) <= LIMITS.max_line_bytes, question
        if column - 1 <= len(match["text"]):
            assert match["column"] == column, question
    assert found["total"] == len(expected.matches), question
    assert found["files"] == len({entry[0] for entry in expected.matches}), question
    assert not found["truncated"], question
    assert found["skipped"]["binary"] == len(expected.binary), (question, expected.binary)
    assert found["skipped"]["oversized"] == len(expected.oversized), (question, expected.oversized)


async def test_grep_finds_what_the_oracle_finds(forest: Forest):
    if search_process.ripgrep() is None:
        pytest.skip("ripgrep is not installed")
    places = ["", *{name.split("/")[0] for name in forest.files if "/" in name}]
    for _ in range(8):
        pattern = forest.chance.choice(PATTERNS)
        narrow: dict[str, Any] = forest.chance.choice(
            [
                {},
                {"suffix": ".py"},
                {"path": forest.chance.choice(places)},
                {"path": forest.chance.choice(places), "suffix": ".txt"},
                {"path": forest.chance.choice(forest.files)},
            ]
        )
        expected = forest.answer(pattern, **narrow)
        options = {"path": narrow.get("path") or None, "glob": f"*{narrow['suffix']}" if "suffix" in narrow else None}
        skipped = []
        for program in ("ripgrep", "python"):
            found = await grep(str(forest.root), pattern, program=program, limits=LIMITS, **options)
            check(found.data, expected, (program, pattern, narrow))
            skipped.append(found.data["skipped"])
        assert skipped[0] == skipped[1], (pattern, narrow)


async def test_glob_finds_what_the_oracle_finds(forest: Forest):
    if search_process.ripgrep() is None:
        pytest.skip("ripgrep is not installed")
    for pattern in ("**/*", "*", "**/*.py", "sub/**", "*/*.txt", "**/.*", "**/[a-d]*", "caf\u00e9/**/*"):
        expected = [name for name in forest.files if matches(pattern, name)]
        programs: tuple[Program, ...] = ("ripgrep", "python")
        answers = [await glob(str(forest.root), pattern, program=program, limits=LIMITS) for program in programs]
        assert [answer.data["paths"] for answer in answers] == [expected, expected], pattern
        assert answers[0].data["total"] == len(expected)
        assert answers[0].data["skipped"] == answers[1].data["skipped"], pattern


def matches(pattern: str, name: str) -> bool:
    """Whether a path matches, segment by segment."""
    return _matches(pattern.split("/"), name.split("/"))


def _matches(pattern: list[str], names: list[str]) -> bool:
    if not pattern or not names:
        return not pattern and not names
    if pattern[0] == "**":
        if len(pattern) == 1:
            return True
        return any(_matches(pattern[1:], names[start:]) for start in range(len(names)))
    return fnmatchcase(names[0], pattern[0]) and _matches(pattern[1:], names[1:])
