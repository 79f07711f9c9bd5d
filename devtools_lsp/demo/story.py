"""What the demo does and what it insists on: every act ends with checks, and one that fails makes the demo fail."""

from __future__ import annotations

import asyncio
import difflib
import importlib.util
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

from devtools_lsp.client import Client, connect, stop_daemon
from devtools_lsp.demo.editor import HeadlessEditor
from devtools_lsp.engines.locate import find_program
from devtools_lsp.errors import DevToolsError, StepUnavailableError

TARGET = "rich/filesize.py"
"""Ten files import it, so that a check of it looks at them, too."""
LEAF = "rich/diagnose.py"
"""Nobody imports it: what a check of one file costs by itself."""
LEAF_FIND = "    console = Console()\n"
CHECKER = "basedpyright"
PROGRAMS = {"ruff": "ruff", CHECKER: "basedpyright-langserver"}
"""What the demo cannot do without, by package."""
ROUNDS = 5
COLD_BOUND_S = 60.0
CONFIGURATION = """\
[gate]
mode = "editor"      # every write of an agent waits for a person

[engines.ruff]
preset = "ruff"

[engines.basedpyright]
preset = "basedpyright"
"""
LINTING = """\
[lint]
select = ["E", "F", "I"]
ignore = ["E501"]
"""
ANCHOR = '__all__ = ["decimal"]\n\nfrom typing import Iterable, List, Optional, Tuple\n'
WRONG = (
    '__all__ = ["binary", "decimal"]\n\nfrom typing import Iterable, List, Optional, Tuple\n\n\n'
    "def binary(size: int) -> str:\n"
    '    """Convert a file size to a string (powers of 1024, IEC prefixes)."""\n'
    '    return _to_str(size, ("KiB", "MiB", "GiB", "TiB"), "1024")\n'
)
RIGHT = (
    '__all__ = ["binary", "decimal"]\n\nimport os\nfrom typing import Iterable, List, Optional, Tuple\n\n\n'
    "def binary(size: int) -> str:\n"
    '    """Convert a file size to a string (powers of 1024, IEC prefixes)."""\n'
    '    return _to_str(size, ("KiB", "MiB", "GiB", "TiB"), 1024)\n'
)


@dataclass
class Stage:
    """Where the demo plays: prints a timeline with real times, and remembers what was not as it should be."""

    out: Console
    pause_s: float
    started: float = field(default_factory=time.perf_counter)
    faults: list[str] = field(default_factory=list[str])

    def say(self, who: str, text: str, style: str = "") -> None:
        """One line of the timeline."""
        at = (time.perf_counter() - self.started) * 1000
        colour = {"agent": "cyan", "editor": "magenta", "daemon": "yellow", "check": "green"}.get(who, "white")
        line = f"[dim]{at:8.1f} ms[/dim]  [{colour}]{who:7}[/{colour}] {escape(text)}"
        self.out.print(line, style=style, soft_wrap=True)

    def insist(self, holds: bool, text: str) -> None:
        """A claim of the demo: shown when it holds, and the demo fails when it does not."""
        if holds:
            self.say("check", f"✓ {text}")
            return
        self.faults.append(text)
        self.say("check", f"✗ {text}", style="bold red")

    async def act(self, title: str) -> None:
        """A heading, after a pause for the reader."""
        await asyncio.sleep(self.pause_s)
        self.out.rule(title, align="left")


async def run_demo(*, pause_s: float, out: Console | None = None) -> bool:
    """Play the demo in a temporary directory; returns whether everything was as it should be.

    Raises StepUnavailableError when what it plays with is not installed.
    """
    stage = Stage(out or Console(highlight=False), pause_s)
    with tempfile.TemporaryDirectory(prefix="devtools-lsp-demo-") as directory:
        root = Path(directory).resolve()
        _require_programs(root)
        _copy_package(root)
        (root / "devtools.toml").write_text(CONFIGURATION, encoding="utf-8")
        (root / "ruff.toml").write_text(LINTING, encoding="utf-8")
        try:
            async with asyncio.timeout(300):
                await _play(stage, root)
        except (DevToolsError, RuntimeError, TimeoutError) as error:
            stage.insist(False, f"the demo ran to its end ({type(error).__name__}: {error})")
        finally:
            ended = await stop_daemon(root)
            stage.say("daemon", f"stopped ({ended})")
    stage.out.rule(
        "[bold green]everything was as it should be[/]"
        if not stage.faults
        else f"[bold red]{len(stage.faults)} thing(s) were not as they should be[/]"
    )
    return not stage.faults


def _require_programs(root: Path) -> None:
    missing = [name for name in PROGRAMS if find_program(PROGRAMS[name], root) is None]
    if missing:
        raise StepUnavailableError(
            f"the demo plays with {' and '.join(PROGRAMS)}, and without {' and '.join(missing)} it does not begin; "
            f"`{sys.executable} -m pip install {' '.join(missing)}` installs what is missing"
        )


def _copy_package(root: Path) -> None:
    """The real source of an installed package: rich, which this project depends on."""
    spec = importlib.util.find_spec("rich")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, root / "rich", ignore=shutil.ignore_patterns("__pycache__"))


async def _play(stage: Stage, root: Path) -> None:
    target = root / TARGET
    original = target.read_text(encoding="utf-8")
    await stage.act(f"1  the daemon starts; an editor and an agent attach  ({root})")
    async with await connect(root, name="demo-agent", surface="composite") as agent:
        stage.say("daemon", f"up; tools offered: {', '.join(tool['name'] for tool in await agent.tools('granular'))}")
        editor = await HeadlessEditor.attach(root, lambda method, params: _told(stage, method, params))
        editor.open(target)
        stage.say("editor", "attached over LSP, watching")
        try:
            await _judge_in_memory(stage, agent, target, original)
            await _judge_a_leaf(stage, agent, root)
            await _write_with_approval(stage, agent, editor, target, original)
            await _take_back(stage, agent, editor, target, original)
        finally:
            await editor.close()
        stage.insist(not editor.failures, f"the editor met no trouble {editor.failures or ''}")


def _told(stage: Stage, method: str, params: Any) -> None:
    """What the editor is told, as it arrives."""
    if method == "devtools/approvalRequested":
        hunks = sum(len(file["hunks"]) for file in params["files"])
        stage.say("editor", f"approval {params['id']}: {params['agent']} asks to {params['step']} ({hunks} hunk(s))")
    elif method == "devtools/approvalUpdated":
        found = f"introduces {len(params['introduced'])}, resolves {len(params['resolved'])}"
        stage.say("editor", f"approval {params['id']}: {found}, not judged {len(params['pending'])}")
    elif method == "devtools/approvalResolved":
        stage.say("editor", f"approval {params['id']}: {params['status']} by {params['by']}")
    elif method == "devtools/landed":
        for file in params["files"]:
            lines = ", ".join(f"{entry['start']}-{entry['end']}" for entry in file["ranges"])
            stage.say("editor", f"landed: {file['kind']} {file['path']} lines {lines or 'none'} by {params['agent']}")


def _edit(replacement: str) -> dict[str, Any]:
    return {"step": "edit", "args": {"path": TARGET, "edits": [{"find": ANCHOR, "replace": replacement}]}}


async def _judge_in_memory(stage: Stage, agent: Client, target: Path, original: str) -> None:
    await stage.act("2  edit → check in one call, judged from memory: the disk is not touched")
    begun = time.perf_counter()
    result = await agent.ops([TARGET], [_edit(WRONG), {"step": "check"}])
    stage.say("agent", f"edit + check answered in {_ms(begun)} ms (checker just started)")
    begun = time.perf_counter()
    result = await agent.ops([TARGET], [_edit(WRONG), {"step": "check"}])
    stage.say("agent", f"edit + check answered in {_ms(begun)} ms (warm, and the files that import it judged, too)")
    introduced = result["delta"]["introduced"]
    _show_findings(stage, "introduced", introduced)
    stage.insist(
        any(item["severity"] == "error" and "1024" in item["message"] for item in introduced),
        "the type error that the edit would introduce is reported",
    )
    stage.insist(target.read_text(encoding="utf-8") == original, "the file on disk is what it was")
    stage.insist(result["unwritten"] == [TARGET], "the result says that nothing was written")


async def _judge_a_leaf(stage: Stage, agent: Client, root: Path) -> None:
    """The same question about a file that nobody imports, against the checker's own command from a cold start."""
    before = (root / LEAF).read_text(encoding="utf-8")
    times: list[float] = []
    result: dict[str, Any] = {}
    for number in range(ROUNDS + 1):
        # Another text each time, so that every answer is a judgement of its own; the first one learns the file.
        edits = [{"find": LEAF_FIND, "replace": f"    console = Console(widht={80 + number})\n"}]
        begun = time.perf_counter()
        result = await agent.ops([LEAF], [{"step": "edit", "args": {"path": LEAF, "edits": edits}}, {"step": "check"}])
        times.append(time.perf_counter() - begun)
    warm = statistics.median(times[1:])
    stage.say("agent", f"edit + check of {LEAF}, which nobody imports: {warm * 1000:.0f} ms (warm, median of {ROUNDS})")
    cold = await _cold(root)
    if cold is None:
        stage.say("agent", f"the command {CHECKER!r} is not here to compare with")
    else:
        stage.say("agent", f"`{CHECKER} {LEAF}` from a cold start: {cold * 1000:.0f} ms ({cold / warm:.0f} times that)")
        stage.insist(warm < cold, "a warm answer comes sooner than a cold one")
    _show_findings(stage, "introduced", result["delta"]["introduced"])
    stage.insist(
        any("widht" in item["message"] for item in result["delta"]["introduced"]),
        "the misspelt argument is reported",
    )
    stage.insist((root / LEAF).read_text(encoding="utf-8") == before, "this file is what it was, too")


async def _cold(root: Path) -> float | None:
    """Seconds that the checker's command takes for the leaf; None when there is no such command."""
    beside = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    command = shutil.which(CHECKER, path=beside)
    if command is None:
        return None
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        command, LEAF, cwd=root, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(COLD_BOUND_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return time.perf_counter() - begun


def _ms(begun: float) -> str:
    return f"{(time.perf_counter() - begun) * 1000:.0f}"


async def _write_with_approval(
    stage: Stage, agent: Client, editor: HeadlessEditor, target: Path, original: str
) -> None:
    await stage.act("3  edit → lint --fix → write → check: the editor approves by code action")
    before = await agent.ops([TARGET], [{"step": "lint"}, {"step": "check"}])
    stage.say("agent", f"findings before: {_counted(before)}")
    begun = time.perf_counter()
    ops = [_edit(RIGHT), {"step": "lint", "args": {"fix": True}}, {"step": "write"}, {"step": "check"}]
    result = await agent.ops([TARGET], ops)
    stage.say("agent", f"the plan of four steps took {(time.perf_counter() - begun) * 1000:.0f} ms, approval included")
    delta = result["delta"]
    stage.say(
        "agent",
        f"findings after, those of dependents included: {_counted(result)}; introduced {len(delta['introduced'])}, "
        f"resolved {len(delta['resolved'])}, not judged in time {len(delta['pending'])}",
    )
    _show_findings(stage, "introduced", delta["introduced"])
    written = target.read_text(encoding="utf-8")
    diff = "".join(
        difflib.unified_diff(original.splitlines(True), written.splitlines(True), f"a/{TARGET}", f"b/{TARGET}")
    )
    stage.out.print(Syntax(diff, "diff", background_color="default", word_wrap=True))
    stage.insist(len(editor.answered) == 1, "the editor was asked once and answered by code action")
    decision: dict[str, Any] = result.get("decision", {})
    stage.insist(decision.get("by") == "editor", "the agent is told that an editor approved")
    stage.insist("def binary(size: int)" in written, "the new function is on disk")
    stage.insist("import os" not in written, "lint --fix removed the unused import before anything was written")
    errors = [item for item in result["delta"]["introduced"] if item["severity"] == "error"]
    stage.insist(not errors, "the checker finds no new error in what was written")
    stage.insist(result["written"] == [{"path": TARGET, "kind": "modified"}], "exactly one file was written")


async def _take_back(stage: Stage, agent: Client, editor: HeadlessEditor, target: Path, original: str) -> None:
    await stage.act("4  undo: approved like any other write")
    result = await agent.undo()
    stage.say("agent", f"undo wrote {', '.join(entry['path'] for entry in result['written'])}")
    stage.insist(len(editor.answered) == 2, "the undo was asked about, too")
    stage.insist(target.read_text(encoding="utf-8") == original, "every byte is back")


def _counted(result: dict[str, Any]) -> str:
    counts = result["counts"]
    return f"{counts['error']} errors, {counts['warning']} warnings, {counts['info']} notes"


def _show_findings(stage: Stage, title: str, items: list[dict[str, Any]]) -> None:
    for item in items[:5]:
        first = item["message"].split("\n")[0]
        stage.say(
            "daemon", f"{title}: {item['path']}:{item.get('line', '')} {item['severity']} {first} [{item['engineId']}]"
        )
