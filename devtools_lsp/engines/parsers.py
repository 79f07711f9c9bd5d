"""What commands print, as findings: SARIF, JSON with a field map, line patterns. Pure.

Owns formats only. Which exit code means what, and where a command runs, belongs to `command`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import msgspec

from devtools_lsp.core.diagnostics import Finding, Severity
from devtools_lsp.engines.spec import JsonMap, Output

SARIF_LEVELS: dict[str, Severity] = {"error": "error", "warning": "warning", "note": "info", "none": "info"}
COMMON_SEVERITIES: dict[str, Severity] = {
    **dict.fromkeys(("error", "err", "e", "fatal", "failure", "critical", "blocker", "major", "high"), "error"),
    **dict.fromkeys(("warning", "warn", "w", "minor", "medium"), "warning"),
    **dict.fromkeys(
        ("info", "information", "note", "hint", "style", "help", "i", "low", "convention", "refactor"), "info"
    ),
}


class OutputError(ValueError):
    """The output is not of the form that the engine's table says; the message shows where."""


Resolve = Callable[[str], str | None]
"""The root-relative path of a path as printed, None for what lies elsewhere."""
ReadText = Callable[[str], str | None]
"""The text that a file's findings describe, for counting columns."""


def parse_output(output: Output, data: str, resolve: Resolve, text_of: ReadText) -> list[Finding]:
    """The findings in an output; raises OutputError. Findings about files elsewhere are left out."""
    if not data.strip():
        return []
    match output.form:
        case "sarif":
            raw = _from_sarif(data)
        case "json":
            raw = _from_json(output.json, data)
        case "lines":
            raw = _from_lines(output, data)
        case "text" | "none":
            return []
    places = _Places(output, text_of)
    found: list[Finding] = []
    for entry in raw:
        path = resolve(entry.get("path") or "")
        if path is not None:
            found.append(places.finding(path, entry))
    return found


class _Places:
    """Positions as printed, in our coordinates."""

    def __init__(self, output: Output, text_of: ReadText) -> None:
        self._output = output
        self._text_of = text_of
        self._lines: dict[str, list[str]] = {}

    def finding(self, path: str, entry: Mapping[str, Any]) -> Finding:
        line = self._line(entry.get("line"))
        end_line = self._line(entry.get("end_line"))
        if line is not None and end_line is None and entry.get("end_column"):
            end_line = line
        column = self._column(path, line, entry.get("column"), 0)
        end_column = self._column(path, end_line, entry.get("end_column"), 0 if self._output.end_exclusive else 1)
        return Finding(
            path=path,
            severity=self._severity(entry.get("severity")),
            message=str(entry.get("message", "")).strip(),
            rule=str(entry["rule"]) if entry.get("rule") else None,
            line=line,
            column=column,
            end_line=end_line if column is not None and end_column is not None else None,
            end_column=end_column if column is not None else None,
        )

    def _severity(self, printed: Any) -> Severity:
        if printed is None:
            return self._output.severity
        word = str(printed)
        return self._output.severities.get(word) or COMMON_SEVERITIES.get(word.strip().lower()) or self._output.severity

    def _line(self, printed: Any) -> int | None:
        number = _number(printed)
        return max(number - self._output.line_base + 1, 1) if number is not None else None

    def _column(self, path: str, line: int | None, printed: Any, inclusive: int) -> int | None:
        number = _number(printed)
        if number is None or line is None:
            return None
        units = number - self._output.column_base + inclusive
        if units < 0:
            return None
        text = self._line_text(path, line)
        if self._output.columns == "code-points" or text.isascii():
            return units + 1
        if self._output.columns == "ascii":
            return None
        encoding = "utf-8" if self._output.columns == "utf-8" else "utf-16-le"
        width = 1 if self._output.columns == "utf-8" else 2
        return len(text.encode(encoding, "surrogatepass")[: units * width].decode(encoding, "ignore")) + 1

    def _line_text(self, path: str, line: int) -> str:
        if path not in self._lines:
            self._lines[path] = (self._text_of(path) or "").split("\n")
        lines = self._lines[path]
        return lines[line - 1] if line <= len(lines) else ""


def _number(printed: Any) -> int | None:
    if isinstance(printed, bool) or printed is None or printed == "":
        return None
    try:
        return int(printed)
    except (TypeError, ValueError):
        return None


# -- SARIF 2.1.0


def _from_sarif(data: str) -> Iterator[dict[str, Any]]:
    log = _decoded(data)
    runs = log.get("runs") if isinstance(log, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] -- JSON
    if not isinstance(runs, list):
        raise OutputError("it is not a SARIF log: there is no list 'runs'")
    for run in cast("list[Any]", runs):
        rules = _rules(run)
        for result in _list(run, "results"):
            rule = _at(result, "ruleId") or _at(result, "rule.id")
            index = _at(result, "ruleIndex")
            if rule is None and isinstance(index, int) and 0 <= index < len(rules):
                rule = rules[index]
            level = str(_at(result, "level") or "warning")
            for location in _list(result, "locations") or [{}]:
                yield {
                    "path": _file_of(_at(location, "physicalLocation.artifactLocation.uri")),
                    "line": _at(location, "physicalLocation.region.startLine"),
                    "column": _at(location, "physicalLocation.region.startColumn"),
                    "end_line": _at(location, "physicalLocation.region.endLine"),
                    "end_column": _at(location, "physicalLocation.region.endColumn"),
                    "severity": SARIF_LEVELS.get(level, "warning"),
                    "rule": rule,
                    "message": _at(result, "message.text") or _at(result, "message.markdown") or "",
                }


def _rules(run: Any) -> list[Any]:
    return [_at(rule, "id") for rule in _list(run, "tool.driver.rules")]


def _file_of(uri: Any) -> str:
    text = str(uri or "")
    return unquote(urlsplit(text).path) if text.startswith("file:") else unquote(text)


# -- JSON


def _from_json(fields: JsonMap, data: str) -> Iterator[dict[str, Any]]:
    for item in _items(fields, data):
        outer = {"path": _at(item, fields.path)} if fields.nested else {}
        for entry in _list(item, fields.nested) if fields.nested else [item]:
            found = {
                "line": _at(entry, fields.line),
                "column": _at(entry, fields.column),
                "end_line": _at(entry, fields.end_line),
                "end_column": _at(entry, fields.end_column),
                "severity": _at(entry, fields.severity),
                "rule": _at(entry, fields.rule),
                "message": _at(entry, fields.message) or "",
                "path": _at(entry, fields.path),
                **outer,
            }
            yield {**found, "path": _file_of(found["path"])}


def _items(fields: JsonMap, data: str) -> list[Any]:
    if fields.lines:
        return [_decoded(line) for line in data.splitlines() if line.strip()]
    whole = _decoded(data)
    if not fields.items:
        if not isinstance(whole, list):
            raise OutputError("it is not a JSON list (name the list's place in 'items')")
        return cast("list[Any]", whole)
    found = _at(whole, fields.items)
    if not isinstance(found, list):
        raise OutputError(f"there is no list at {fields.items!r} in its JSON")
    return cast("list[Any]", found)


def _decoded(data: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        start = data.strip()[:80]
        raise OutputError(f"it is not JSON: {error}; it begins with {start!r}") from error


def _at(value: Any, dotted: str) -> Any:
    """The value at a dotted path; None where a part is missing, and for an empty path."""
    if not dotted:
        return None
    for part in dotted.split("."):
        if not isinstance(value, dict):
            return None
        value = cast("dict[str, Any]", value).get(part)
    return value


def _list(value: Any, dotted: str) -> list[Any]:
    found = _at(value, dotted)
    return cast("list[Any]", found) if isinstance(found, list) else []


# -- lines


def _from_lines(output: Output, data: str) -> Iterator[dict[str, Any]]:
    patterns = [re.compile(pattern) for pattern in output.patterns]
    ignored = [re.compile(pattern) for pattern in output.ignore]
    for line in _lines(data):
        if any(pattern.search(line) for pattern in ignored):
            continue
        match = next((match for pattern in patterns if (match := pattern.search(line))), None)
        if match is not None:
            yield match.groupdict()


def _lines(data: str) -> Iterable[str]:
    return (line.rstrip("\r") for line in data.split("\n"))
