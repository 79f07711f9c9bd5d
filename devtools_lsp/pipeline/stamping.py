"""From findings to diagnostics: who said it, whether it is in scope, and coordinates that can be trusted.

Owns SPEC 3.11. An engine's own `engineId` never survives; positions that cannot be are trimmed, the message kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from devtools_lsp.core.diagnostics import SEVERITY_ORDER, Diagnostic, Finding, notice
from devtools_lsp.errors import PolicyError
from devtools_lsp.paths import relative_path
from devtools_lsp.text import split_lines


@dataclass(slots=True)
class Stamper:
    """Stamps one engine's findings against the texts they were made on; counts what had to be mended.

    `redact` takes host paths out of a message, as the pipeline's path translator does.
    """

    root: str
    engine_id: str
    texts: Mapping[str, str]
    redact: Callable[[str], str]
    pathless: int = 0
    trimmed: int = 0
    outside: int = 0
    _lines: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def stamp(self, findings: Iterable[Finding], scope: Collection[str]) -> list[Diagnostic]:
        """Diagnostics with `engineId` and `outOfScope`; findings without a usable path are dropped and counted."""
        stamped: list[Diagnostic] = []
        for finding in findings:
            try:
                path = relative_path(finding.path or "", self.root)
            except PolicyError:
                self.outside += 1
                continue
            if not path:
                # The root itself is no file either.
                self.pathless += 1
                continue
            stamped.append(self._one(finding, path, path not in scope))
        return stamped

    def warnings(self) -> list[Diagnostic]:
        """One warning for each kind of mending that happened."""
        found: list[Diagnostic] = []
        for count, what in (
            (self.pathless, "finding(s) without a path were dropped"),
            (self.outside, "finding(s) outside the workspace root were dropped"),
            (self.trimmed, "finding(s) had impossible coordinates, which were removed"),
        ):
            if count:
                found.append(notice(f"engine {self.engine_id}: {count} {what}", severity="warning", rule="engine"))
        return found

    def _one(self, finding: Finding, path: str, out_of_scope: bool) -> Diagnostic:
        line, column, end_line, end_column = self._position(finding, path)
        return Diagnostic(
            path=path,
            severity=finding.severity if finding.severity in SEVERITY_ORDER else "error",
            message=self.redact(str(finding.message)),
            engine_id=self.engine_id,
            out_of_scope=out_of_scope,
            rule=finding.rule,
            line=line,
            column=column,
            end_line=end_line,
            end_column=end_column,
        )

    def _position(self, finding: Finding, path: str) -> tuple[int | None, int | None, int | None, int | None]:
        given = (finding.line, finding.column, finding.end_line, finding.end_column)
        lines = self._lines_of(path)
        line = finding.line if _valid_line(finding.line, lines) else None
        column = finding.column if line is not None and _valid_column(finding.column, line, lines) else None
        end_line = finding.end_line if line is not None and _valid_line(finding.end_line, lines) else None
        end_column = (
            finding.end_column if end_line is not None and _valid_column(finding.end_column, end_line, lines) else None
        )
        if end_line is not None and line is not None and _ends_before(line, column, end_line, end_column):
            end_line = end_column = None
        kept = (line, column, end_line, end_column)
        if kept != given:
            self.trimmed += 1
        return kept

    def _lines_of(self, path: str) -> list[str] | None:
        if path not in self.texts:
            return None
        if path not in self._lines:
            self._lines[path] = split_lines(self.texts[path])
        return self._lines[path]


def rescope(diagnostics: Iterable[Diagnostic], scope: Collection[str]) -> list[Diagnostic]:
    """`outOfScope` as the workspace is now: a file that a step created counts, a null path is in scope."""
    result: list[Diagnostic] = []
    for diagnostic in diagnostics:
        outside = diagnostic.path is not None and diagnostic.path not in scope
        if outside != diagnostic.out_of_scope:
            diagnostic = msgspec.structs.replace(diagnostic, out_of_scope=outside)
        result.append(diagnostic)
    return result


def _ends_before(line: int, column: int | None, end_line: int, end_column: int | None) -> bool:
    """Whether a range ends before it begins; columns compare only where both are known."""
    if line != end_line or column is None or end_column is None:
        return end_line < line
    return end_column < column


def _valid_line(line: object, lines: list[str] | None) -> bool:
    if type(line) is not int or line < 1:
        return False
    # One past the last line is where a finding at the end of the file stands.
    return lines is None or line <= len(lines) + 1


def _valid_column(column: object, line: int, lines: list[str] | None) -> bool:
    if type(column) is not int or column < 1:
        return False
    if lines is None:
        return True
    return column <= (len(lines[line - 1]) if line <= len(lines) else 0) + 1
