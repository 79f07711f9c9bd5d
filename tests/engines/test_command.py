"""Commands as engines: standard input, files, the whole project, in place; exits, limits, directories."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.engines.spec import EngineSpec, spec_from_table
from devtools_lsp.errors import CallCancelledError, StepFailedError, WaitTimeoutError
from devtools_lsp.ports import Cancellation

LINES = {"form": "lines", "patterns": [r"^(?P<path>[^:]+):(?P<line>\d+): (?P<message>.+)$"]}


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def spec(ability: str, command: list[str], **over: Any) -> EngineSpec:
    table = {"kind": "command", "capabilities": [ability], "extensions": ["py"], "command": command, **over}
    if ability == "fix":
        table["capabilities"] = ["lint", "fix"]
    return spec_from_table("own", table)


UPPER = python("import sys; sys.stdout.write(sys.stdin.read().upper())")
GREP = python(
    "import sys\n"
    "for name in sys.argv[1:]:\n"
    "    for number, line in enumerate(open(name), 1):\n"
    "        if 'bad' in line: print(f'{name}:{number}: bad here')\n"
    "sys.exit(1)"
)


async def test_standard_input_to_standard_output(make_scene: Any) -> None:
    scene = make_scene(spec("format", UPPER), files={"a.py": "x é\n", "b.txt": "y\n"})
    delta = await scene.run("format", "a.py", "b.txt")
    assert delta.changed == {"a.py": "X É\n"}
    assert (await scene.run("format", "a.py", changes={"a.py": "X\n"})).changed == {}


async def test_the_plans_text_is_formatted_and_not_the_disks(make_scene: Any) -> None:
    scene = make_scene(spec("format", UPPER), files={"a.py": "on disk\n"})
    assert (await scene.run("format", "a.py", changes={"a.py": "in the plan\n"})).changed == {"a.py": "IN THE PLAN\n"}
    assert scene.read("a.py") == "on disk\n"


@pytest.mark.parametrize(("code", "over"), [(2, {}), (1, {}), (0, {"ok_exits": [7]})])
async def test_an_unknown_exit_code_is_a_breakdown(make_scene: Any, code: int, over: dict[str, Any]) -> None:
    command = python(f"import sys; print('boom', file=sys.stderr); sys.exit({code})")
    scene = make_scene(spec("format", command, **over), files={"a.py": "x\n"})
    with pytest.raises(StepFailedError, match=f"exit code {code}: boom"):
        await scene.run("format", "a.py")


async def test_a_refused_file_is_a_finding_and_keeps_its_text(make_scene: Any) -> None:
    command = python("import sys; print('line 1: syntax', file=sys.stderr); sys.exit(2)")
    scene = make_scene(spec("format", command, findings_exits=[2]), files={"a.py": "x\n"})
    delta = await scene.run("format", "a.py")
    assert delta.changed == {}
    assert [(f.path, f.severity, f.message) for f in delta.diagnostics] == [
        ("a.py", "warning", "not changed: line 1: syntax")
    ]


async def test_a_formatter_that_says_nothing_does_not_empty_the_file(make_scene: Any) -> None:
    scene = make_scene(spec("format", ["true"]), files={"a.py": "x\n"})
    delta = await scene.run("format", "a.py")
    assert delta.changed == {}
    assert "printed nothing" in delta.diagnostics[0].message


async def test_a_formatter_at_its_time_limit(make_scene: Any) -> None:
    """P113: killed with its group, told as a time-out, the text stays."""
    scene = make_scene(spec("format", ["sh", "-c", "sleep 60"], timeout_s=0.5), files={"a.py": "x\n"})
    started = time.monotonic()
    with pytest.raises(WaitTimeoutError, match="not formatted: timeout"):
        await scene.run("format", "a.py")
    assert time.monotonic() - started < 3
    assert scene.read("a.py") == "x\n"


async def test_a_linter_at_its_time_limit_leaves_its_files_pending(make_scene: Any) -> None:
    command = ["sh", "-c", "sleep 60"]
    scene = make_scene(spec("lint", command, timeout_s=0.5, output=LINES), files={"a.py": "x\n"})
    delta = await scene.run("lint", "a.py")
    assert [(p.path, "timeout" in p.reason) for p in delta.pending] == [("a.py", True)]


async def test_a_cancelled_call_ends_its_command(make_scene: Any) -> None:
    scene = make_scene(spec("lint", ["sh", "-c", "sleep 60"], output=LINES), files={"a.py": "x\n"})
    signal = Cancellation()
    signal.cancel("changed my mind")
    with pytest.raises(CallCancelledError, match="changed my mind"):
        await scene.run("lint", "a.py", signal=signal)


async def test_file_arguments_and_findings(make_scene: Any) -> None:
    lint = spec("lint", [*GREP, "{files}"], input="files", output=LINES, findings_exits=[1])
    scene = make_scene(lint, files={"a.py": "ok\nbad\n", "b.py": "bad\n", "-c.py": "bad\n"})
    delta = await scene.run("lint", "a.py", "b.py", "-c.py")
    assert sorted((f.path, f.line) for f in delta.diagnostics) == [("-c.py", 1), ("a.py", 2), ("b.py", 1)]


async def test_unwritten_text_is_pending_for_a_command_that_reads_files(make_scene: Any) -> None:
    lint = spec("lint", [*GREP, "{files}"], input="files", output=LINES, findings_exits=[1])
    scene = make_scene(lint, files={"a.py": "ok\n", "b.py": "bad\n"})
    delta = await scene.run("lint", "a.py", "b.py", changes={"a.py": "bad\n"})
    assert [(p.path, "not on disk yet" in p.reason) for p in delta.pending] == [("a.py", True)]
    assert [(f.path, f.line) for f in delta.diagnostics] == [("b.py", 1)]


async def test_with_a_shadow_unwritten_text_is_judged(make_scene: Any) -> None:
    lint = {"command": [*GREP, "{files}"], "input": "files", "output": LINES, "findings_exits": [1], "shadow": True}
    scene = make_scene(spec("lint", [sys.executable], lint=lint), files={"a.py": "ok\n", "b.py": "bad\n"})
    delta = await scene.run("lint", "a.py", "b.py", changes={"a.py": "one\nbad\n"})
    assert sorted((f.path, f.line) for f in delta.diagnostics) == [("a.py", 2), ("b.py", 1)]
    assert delta.pending == ()
    assert scene.read("a.py") == "ok\n"


async def test_a_fixer_of_files_works_in_the_shadow_and_each_fix_is_told(make_scene: Any) -> None:
    """The project itself is not touched: what the fixer wrote comes back as changed text."""
    fixer = python(
        "import sys\nfor name in sys.argv[1:]:\n    text = open(name).read()\n"
        "    open(name, 'w').write(text.replace('bad', 'good'))"
    )
    files = {"input": "files", "shadow": True}
    scene = make_scene(
        spec(
            "fix",
            [sys.executable],
            lint={**files, "command": [*GREP, "{files}"], "output": LINES, "findings_exits": [1]},
            fix={**files, "command": [*fixer, "{files}"]},
        ),
        files={"a.py": "bad\n", "b.py": "bad\n"},
    )
    delta = await scene.run("lint", "a.py", changes={"a.py": "one\nbad\n"}, fix=True)
    assert delta.changed == {"a.py": "one\ngood\n"}
    assert [(f.path, f.line, f.message) for f in delta.fixed] == [("a.py", 2, "bad here")]
    assert delta.diagnostics == ()
    assert (scene.read("a.py"), scene.read("b.py")) == ("bad\n", "bad\n")


async def test_in_place_is_declared_as_such_and_runs_on_the_disk(make_scene: Any) -> None:
    code = "import sys; [open(n, 'w').write('formatted\\n') for n in sys.argv[1:]]"
    own = spec("format", [*python(code), "{files}"], input="in-place")
    scene = make_scene(own, files={"a.py": "x\n"})
    capability = scene.capability("format")
    assert capability.in_place
    assert capability.scope == ("**/*.py",)
    delta = await scene.run("format", "a.py")
    assert delta.changed == {}
    assert scene.read("a.py") == "formatted\n"


async def test_a_project_check_finds_errors_in_other_files(make_scene: Any) -> None:
    check = spec(
        "check", ["sh", "-c", "echo 'other.py:3: broken'; exit 1"], input="project", output=LINES, findings_exits=[1]
    )
    scene = make_scene(check, files={"a.py": "x\n", "other.py": "y\n"})
    delta = await scene.run("check", "a.py")
    assert [(f.path, f.line) for f in delta.diagnostics] == [("other.py", 3)]


async def test_output_that_is_not_understood_is_a_breakdown(make_scene: Any) -> None:
    lint = spec("lint", ["echo", "Traceback"], output={"form": "json"})
    scene = make_scene(lint, files={"a.py": "x\n"})
    with pytest.raises(StepFailedError, match="not understood"):
        await scene.run("lint", "a.py")


async def test_the_projects_own_tool_comes_first(make_scene: Any) -> None:
    """SPEC 6: the root's virtual environment, node_modules, what the configuration lists, PATH."""
    own = spec("lint", ["true"], output=LINES, search=["tools"])
    scene = make_scene(own, files={"a.py": "x\n"})
    assert str(scene.registry.status()[0].path).startswith("/")
    for place in ("tools", "node_modules/.bin", ".venv/bin"):
        program = scene.root / place / "true"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'a.py:1: {place}'\n")
        program.chmod(0o755)
        delta = await scene.run("lint", "a.py")
        assert [f.message for f in delta.diagnostics] == [place]


@pytest.fixture
def ruff_as_a_command() -> EngineSpec:
    output = {
        "form": "json",
        "severity": "warning",
        "json": {"path": "filename", "line": "location.row", "column": "location.column", "rule": "code"},
    }
    return spec_from_table(
        "ruff-cli",
        {
            "kind": "command",
            "command": ["ruff", "check", "--output-format=json", "--stdin-filename", "{path}", "-"],
            "capabilities": ["lint"],
            "extensions": ["py"],
            "findings_exits": [1],
            "config_files": ["ruff.toml", "pyproject.toml#tool.ruff"],
            "project_files": ["pyproject.toml"],
            "output": output,
        },
    )


async def test_a_tool_runs_in_the_nearest_project_and_names_its_configuration(
    make_scene: Any, ruff_as_a_command: EngineSpec
) -> None:
    """P116: the same answer whoever asks, and the configuration file is told."""
    files = {
        "pyproject.toml": "[project]\nname='t'\nversion='0'\nrequires-python='>=3.13'\n[tool.ruff]\n",
        "sub/pyproject.toml": "[project]\nname='s'\nversion='0'\nrequires-python='>=3.10'\n",
        "sub/a.py": "import os\nx = 1\n",
        "b.py": "import os\n",
    }
    scene = make_scene(ruff_as_a_command, files=files)
    alone = await scene.run("lint", "sub/a.py")
    together = await scene.run("lint", "b.py", "sub/a.py")
    assert [f for f in together.diagnostics if f.path == "sub/a.py"] == list(alone.diagnostics)
    assert ("F401", 1, 8) in [(f.rule, f.line, f.column) for f in alone.diagnostics]
    assert scene.engine.describe is not None
    assert scene.engine.describe().config == "pyproject.toml"


async def test_an_interpreter_and_a_configuration_are_filled_in(make_scene: Any, tmp_path: Path) -> None:
    command = ["echo", "a.py:1:", "--python", "{interpreter}", "--config", "{config}", "{root}", "{relative}"]
    own = spec("lint", command, input="files", output=LINES, config_files=["own.toml"])
    scene = make_scene(own, files={"a.py": "x\n"})
    (bare,) = (await scene.run("lint", "a.py")).diagnostics
    assert bare.message == f"{scene.root} a.py"
    scene.write({"own.toml": "", ".venv/bin/python": ""})
    (full,) = (await scene.run("lint", "a.py")).diagnostics
    root = scene.root
    assert full.message == f"--python {root}/.venv/bin/python --config {root}/own.toml {root} a.py"
