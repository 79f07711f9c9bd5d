"""Recorded bytes of every command preset and of the general formats, and the exact findings in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from devtools_lsp.engines.parsers import OutputError, parse_output
from devtools_lsp.engines.presets import preset_names
from devtools_lsp.engines.spec import JsonMap, Output, spec_from_table

RECORDED = Path(__file__).parent / "recorded"
SCRIPT = 'var a = 1;;\nconst x = "😀"; debugger; if (x == 1) { }\n'
PYTHON = 'import os\ns="😀"; x: int = ""\nimport nope\n'
SHELL = '#!/bin/sh\necho "😀" $1\nif [ $2 == x ]; then\n\techo `date`\nfi\n'


def resolve(printed: str) -> str | None:
    if printed in ("-", "<stdin>"):
        return "p.sh"
    if printed.startswith("/"):
        return printed.removeprefix("/project/") if printed.startswith("/project/") else None
    return printed or None


def parsed(output: Output, data: str, text: str) -> list[tuple[Any, ...]]:
    found = parse_output(output, data, resolve, lambda path: text)
    return [(f.path, f.severity, f.rule, f.line, f.column, f.end_line, f.end_column) for f in found]


def output_of(preset: str, ability: str) -> Output:
    spec = spec_from_table(preset, {"preset": preset})
    if spec.warm:
        assert spec.output is not None
        return spec.output
    command = spec.command_for(ability)  # type: ignore[arg-type]
    assert command is not None
    return command.output


def test_biome_json() -> None:
    found = parsed(output_of("biome", "lint"), (RECORDED / "biome-lint.json").read_text(), SCRIPT)
    assert found == [
        ("a.js", "warning", "lint/correctness/noUnusedVariables", 1, 5, 1, 6),
        ("a.js", "error", "lint/suspicious/noDebugger", 2, 16, 2, 25),
        ("a.js", "error", "lint/suspicious/noDoubleEquals", 2, 32, 2, 34),
    ]


def test_shellcheck_json() -> None:
    found = parsed(output_of("shellcheck", "lint"), (RECORDED / "shellcheck.json").read_text(), SHELL)
    assert found == [
        ("p.sh", "info", "2086", 2, 10, 2, 12),
        ("p.sh", "info", "2086", 3, 6, 3, 8),
        ("p.sh", "warning", "3014", 3, 9, 3, 11),
        ("p.sh", "warning", "2046", 4, 7, 4, 13),
        ("p.sh", "info", "2005", 4, 7, 4, 13),
        ("p.sh", "info", "2006", 4, 7, 4, 13),
    ]


def test_mypy_json_lines_keep_no_column_where_it_is_known_to_be_wrong() -> None:
    found = parsed(output_of("mypy", "check"), (RECORDED / "mypy.jsonl").read_text(), PYTHON)
    assert found == [
        ("n.py", "error", "assignment", 2, None, None, None),
        ("n.py", "error", "import-not-found", 3, 1, 3, 2),
    ]


def test_prettier_prints_the_text_itself() -> None:
    assert output_of("prettier", "format").form == "text"
    assert parsed(output_of("prettier", "format"), "anything", "") == []


def test_every_command_preset_has_its_recording_here() -> None:
    by_command = {
        name
        for name in preset_names()
        if (spec := spec_from_table(name, {"preset": name})).warm
        or any(spec.command_for(ability) is not None for ability in spec.capabilities)
    }
    assert by_command == {"biome", "mypy", "prettier", "shellcheck"}


ESLINT = Output(
    form="json",
    columns="utf-16",
    severities={"2": "error", "1": "warning"},
    json=JsonMap(
        nested="messages",
        path="filePath",
        line="line",
        column="column",
        end_line="endLine",
        end_column="endColumn",
        rule="ruleId",
        severity="severity",
    ),
)
RUFF_LINES = Output(
    form="lines",
    severity="warning",
    patterns=(r"^(?P<path>[^:]+):(?P<line>\d+):(?P<column>\d+): (?P<rule>[A-Z]+\d+) (?P<message>.+)$",),
)
MYPY_LINES = Output(
    form="lines",
    end_exclusive=False,
    columns="ascii",
    ignore=(r"mypy\.readthedocs\.io",),
    patterns=(
        (
            r"^(?P<path>[^:]+):(?P<line>\d+):(?P<column>\d+):(?P<end_line>\d+):(?P<end_column>\d+): "
            r"(?P<severity>\w+): (?P<message>.*?)(?:  \[(?P<rule>[\w-]+)\])?$"
        ),
    ),
)

GENERAL = [
    pytest.param(
        ESLINT,
        "eslint.json",
        SCRIPT,
        [
            ("a.js", "error", "no-var", 1, 1, 1, 11),
            ("a.js", "error", "no-extra-semi", 1, 11, 1, 12),
            ("a.js", "error", "no-debugger", 2, 16, 2, 25),
            ("a.js", "warning", "eqeqeq", 2, 32, 2, 34),
        ],
        id="a nested list, UTF-16 columns, numbers for severities",
    ),
    pytest.param(
        Output(form="sarif"),
        "ruff.sarif",
        PYTHON,
        [
            ("n.py", "error", "I001", 1, 1, 1, 10),
            ("n.py", "error", "F401", 1, 8, 1, 10),
            ("n.py", "error", "F401", 3, 8, 3, 12),
        ],
        id="SARIF with file URIs",
    ),
    pytest.param(
        Output(form="sarif"),
        "biome-lint.sarif",
        SCRIPT,
        [
            ("a.js", "warning", "lint/correctness/noUnusedVariables", 1, 5, 1, 6),
            ("a.js", "error", "lint/suspicious/noDebugger", 2, 16, 2, 25),
            ("a.js", "error", "lint/suspicious/noDoubleEquals", 2, 32, 2, 34),
        ],
        id="SARIF with relative paths",
    ),
    pytest.param(
        RUFF_LINES,
        "ruff-concise.txt",
        PYTHON,
        [
            ("n.py", "warning", "I001", 1, 1, None, None),
            ("n.py", "warning", "F401", 1, 8, None, None),
            ("n.py", "warning", "F401", 3, 8, None, None),
        ],
        id="lines, others than findings among them",
    ),
    pytest.param(
        MYPY_LINES,
        "mypy.txt",
        PYTHON,
        [
            ("n.py", "error", "assignment", 2, None, None, None),
            ("n.py", "error", "import-not-found", 3, 1, 3, 2),
        ],
        id="lines with inclusive ends and ignored ones",
    ),
]


@pytest.mark.parametrize(("output", "recording", "text", "expected"), GENERAL)
def test_recorded_output(output: Output, recording: str, text: str, expected: list[tuple[Any, ...]]) -> None:
    assert parsed(output, (RECORDED / recording).read_text(), text) == expected


def sarif(**result: Any) -> str:
    return msgspec.json.encode({"runs": [{"results": [result]}]}).decode()


@pytest.mark.parametrize(
    ("output", "data", "expected"),
    [
        (Output(form="sarif"), sarif(message={"text": "m"}, level="note"), []),
        (
            Output(form="sarif"),
            sarif(
                message={"text": "m"},
                level="note",
                locations=[{"physicalLocation": {"artifactLocation": {"uri": "a%20b.py"}}}],
            ),
            [("a b.py", "info", None, None, None, None, None)],
        ),
        (
            Output(form="lines", patterns=(r"^(?P<path>\S+) (?P<message>.*)$",), severity="info"),
            "/elsewhere/x.py outside\r\nx.py inside\r\n",
            [("x.py", "info", None, None, None, None, None)],
        ),
        (
            Output(form="json", line_base=0, column_base=0, json=JsonMap(path="p", line="l", column="c")),
            '[{"p": "x.py", "l": 0, "c": 0, "message": "m"}, {"p": "x.py", "l": -1, "c": -3, "message": "n"}]',
            [("x.py", "error", None, 1, 1, None, None), ("x.py", "error", None, 1, None, None, None)],
        ),
        (Output(form="json", json=JsonMap(items="a.b", path="p")), '{"a": {"b": []}}', []),
        (Output(form="json"), "  \n", []),
        (Output(form="none"), "whatever", []),
    ],
)
def test_edges(output: Output, data: str, expected: list[tuple[Any, ...]]) -> None:
    assert parsed(output, data, "") == expected


@pytest.mark.parametrize(
    ("output", "data", "why"),
    [
        (Output(form="sarif"), "{}", "no list 'runs'"),
        (Output(form="sarif"), "Traceback", "begins with 'Traceback'"),
        (Output(form="json"), "{}", "not a JSON list"),
        (Output(form="json", json=JsonMap(items="a")), '{"b": []}', "no list at 'a'"),
        (Output(form="json", json=JsonMap(lines=True)), "{}\nnot json\n", "not JSON"),
        (Output(form="json"), "[" * 100_000, "not JSON"),
    ],
)
def test_an_output_of_another_form_is_an_error_and_not_clean(output: Output, data: str, why: str) -> None:
    with pytest.raises(OutputError, match=why):
        parsed(output, data, "")
