"""What grep and glob cost beside a bare ripgrep, as ratios of one run: `pytest -m bench -s tests/bench/test_search.py`.

The tools are measured whole, through `WorkspaceTools` in this process and over a daemon's socket, so that the gate's
question, the policy's verdict on each path, the second look at what is shown and the reply are all in. The bare
command ends when its output was read to the end, and nobody looks at that output. It has fewer flags than ours, but
for a filter by name: to tell what is passed over takes `--debug`, which then costs more than the search, and a bare
command that does not tell is shown beside it.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.agent.forge import Invocation
from devtools_lsp.agent.search import grep
from devtools_lsp.agent.search_process import ripgrep
from devtools_lsp.agent.sessions import SessionMemory
from devtools_lsp.agent.workspace_tools import WorkspaceTools
from devtools_lsp.app import create_dev_pipeline
from devtools_lsp.client import connect, stop_daemon
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.ports import Cancellation, Decision, GateCall, GateContext

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

ROUNDS = 25
FILES = 5_000
GREP = ["--hidden", "--glob=!.git", "--no-heading", "--with-filename", "--line-number", "--column", "--color=never"]

Call = Callable[[str, Mapping[str, Any]], Awaitable[Any]]


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    """5,000 source files in 250 directories, from empty to 16 KB, with what is ignored beside them."""
    chance = random.Random(5_000)
    words = ["value", "other", "Result", "index", "total", "name", "self", "None", "return", "count", "path", "line"]
    filler = [f"    {' '.join(chance.choices(words, k=chance.randint(2, 9)))}  # {number}\n" for number in range(500)]
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory).resolve()
        for number in range(FILES):
            home = root / f"package_{number % 10}" / f"module_{number % 250}"
            home.mkdir(parents=True, exist_ok=True)
            lines = chance.choices(filler, k=int(chance.paretovariate(1.2) * 20) % 400)
            text = f"import os\n\ndef entry_{number}(value):\n" + "".join(lines)
            if number % 1_000 == 7:
                text += "    the_rare_needle(value)\n"
            suffix = ("py", "py", "ts", "md")[number % 4]
            (home / f"file_{number}.{suffix}").write_text(text)
        for number in range(200):
            home = root / f"package_{number % 10}" / "node_modules" / f"dependency_{number}"
            home.mkdir(parents=True)
            (home / "index.js").write_text("import os\nthe_rare_needle\n")
            (root / f"package_{number % 10}" / f"run_{number}.log").write_text("import os\n")
        (root / ".gitignore").write_text("*.log\n")
        (root / "devtools.toml").write_text('[gate]\nmode = "allow"\n')
        yield root


@pytest.fixture
def in_process(tree: Path) -> Iterator[Call]:
    """The tools as an embedder has them."""

    async def allow(_context: GateContext, _call: GateCall) -> Decision:
        return Decision(approved=True, by="bench")

    root = str(tree)
    files = LocalFileSystem(root)
    policy = PathPolicy(root=root)
    pipeline = create_dev_pipeline(root=root, file_system=files, policy=policy, gate=allow, engines=[], text="preserve")
    offered = WorkspaceTools(
        pipeline, memory=SessionMemory(), deny=lambda path: not policy.readable(path), shell=None
    ).tools()

    async def call(tool: str, arguments: Mapping[str, Any]) -> Any:
        answer = await offered.find(tool).call(arguments, Invocation("bench", "bench", Cancellation()), None)
        return answer.data

    yield call
    files.close()


@pytest.fixture
async def over_socket(tree: Path) -> AsyncIterator[Call]:
    """The tools as `devtools/call` of a daemon."""

    async with await connect(tree, name="bench", surface="workspace") as client:

        async def call(tool: str, arguments: Mapping[str, Any]) -> Any:
            return (await client.call(tool, dict(arguments)))["data"]

        yield call
    await stop_daemon(tree)


async def alternating(candidates: dict[str, Callable[[], Awaitable[Any]]]) -> dict[str, float]:
    """Median milliseconds of each, one after the other in every round; the order turns with the rounds."""
    spent: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(ROUNDS + 2):
        turn = list(candidates.items())
        for name, run in turn if number % 2 else reversed(turn):
            began = time.perf_counter()
            await run()
            if number >= 2:
                spent[name].append((time.perf_counter() - began) * 1000)
    return {name: statistics.median(times) for name, times in spent.items()}


def bare(tree: Path, *flags: str) -> Callable[[], Awaitable[bytes]]:
    """ripgrep by itself, its output read to the end by this process and thrown away."""
    program = ripgrep()
    if program is None:
        pytest.skip("ripgrep is not installed")

    async def run() -> bytes:
        ended = subprocess.run(
            [program, *flags, "./"],
            cwd=tree,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if "--debug" in flags else None,
        )
        assert ended.returncode in (0, 1)
        return ended.stdout

    return run


def judge(title: str, medians: dict[str, float]) -> None:
    """The floor: 1.3 times the bare command and 10 ms, in process and over the socket."""
    beside = {name: (medians[name] - 10) / medians["bare"] for name in ("in process", "socket")}
    print(f"\n{title}: " + "  ".join(f"{name} {value:.1f} ms" for name, value in medians.items()), end="")
    print("  (ours - 10 ms) / bare: " + "  ".join(f"{name} {ratio:.2f}" for name, ratio in beside.items()))
    assert max(beside.values()) <= 1.3


QUESTIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "rare literal": ({"pattern": "the_rare_needle"}, []),
    "absent word": ({"pattern": "nothing_like_it"}, []),
    "a match in every file": ({"pattern": "^import"}, []),
    "many matches, regex": ({"pattern": r"return\s+\w+\s+path"}, []),
    "a match in most lines": ({"pattern": "value|other|total"}, []),
    "case-insensitive": ({"pattern": "the_RARE_needle", "case_insensitive": True}, ["--ignore-case"]),
    "case-insensitive, every file": ({"pattern": "^IMPORT", "case_insensitive": True}, ["--ignore-case"]),
    "filtered by name": ({"pattern": "^import", "glob": "*.ts"}, ["--debug", "--type-add=x:*.ts", "--type=x"]),
    "filtered by directory": ({"pattern": "^def", "glob": "package_3/**/*.py"}, ["--glob=/package_3/**/*.py"]),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_grep_against_ripgrep(tree: Path, in_process: Call, over_socket: Call, question: str):
    arguments, flags = QUESTIONS[question]
    candidates = {
        "bare": bare(tree, *GREP, *flags, f"--regexp={arguments['pattern']}"),
        "in process": lambda: in_process("grep", arguments),
        "socket": lambda: over_socket("grep", arguments),
    }
    if "--debug" in flags:
        silent = [flag for flag in flags if flag != "--debug"]
        candidates["bare, telling nothing"] = bare(tree, *GREP, *silent, f"--regexp={arguments['pattern']}")
    judge(question, await alternating(candidates))


@pytest.mark.parametrize("pattern", ["**/*.py", "**/*", "package_3/**/*.py", "*.nothing"])
async def test_glob_against_ripgrep(tree: Path, in_process: Call, over_socket: Call, pattern: str):
    medians = await alternating(
        {
            "bare": bare(tree, "--files", "--hidden", "--glob=!.git", f"--glob=/{pattern}"),
            "in process": lambda: in_process("glob", {"pattern": pattern}),
            "socket": lambda: over_socket("glob", {"pattern": pattern}),
        }
    )
    judge(f"glob {pattern}", medians)


async def test_the_stand_in(tree: Path):
    """Without ripgrep: no floor but the time-out, and the number is there to be seen."""
    medians = await alternating(
        {
            "bare": bare(tree, *GREP, "--regexp=^import"),
            "stand-in": lambda: grep(str(tree), "^import", program="python"),
        }
    )
    print(f"\nstand-in: {medians['stand-in']:.0f} ms beside {medians['bare']:.0f} ms")
    assert medians["stand-in"] < 5_000
