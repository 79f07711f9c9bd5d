"""What tsserver says about one file, asked through typescript-language-server.

That server publishes without saying which text it means. It documents a command that hands a request to tsserver
itself, which takes requests and changes in the order in which they come: such an answer describes the texts of now.
Owns that request and its answer. It asks through a `Session` and keeps nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from devtools_lsp.core.diagnostics import Finding, Severity
from devtools_lsp.engines.client import ServerRefusedError, ServerTimeoutError
from devtools_lsp.engines.messages import Position, Range
from devtools_lsp.engines.positions import TextPositions
from devtools_lsp.engines.session import Session

REQUESTS = ("syntacticDiagnosticsSync", "semanticDiagnosticsSync")

_SEVERITIES: dict[str, Severity] = {"error": "error", "warning": "warning", "message": "info"}


class Place(msgspec.Struct, frozen=True):
    """1-based line; `offset` is 1-based too and counts UTF-16 code units."""

    line: int
    offset: int


class TsDiagnostic(msgspec.Struct, frozen=True):
    """A diagnostic in tsserver's own form; `suggestion` is a category, too, and decoration for an editor."""

    start: Place
    end: Place
    text: str
    category: str = "error"
    code: int | None = None


class TsAnswer(msgspec.Struct, frozen=True):
    """The answer to a forwarded request; one that was not carried out has another `type` or no body."""

    type: str = ""
    success: bool = False
    message: str = ""
    body: list[TsDiagnostic] | None = None


_ANSWER: msgspec.json.Decoder[TsAnswer | None] = msgspec.json.Decoder(TsAnswer | None)


class NotCarriedOutError(Exception):
    """tsserver did not judge the file; the message is its own."""


async def ask_tsserver(
    session: Session, path: str, text: Callable[[], str | None], *, deadline: float
) -> tuple[Finding, ...]:
    """The findings in one file, whose project is loaded once some file of it is open.

    Raises NotCarriedOutError, ServerTimeoutError, ServerRefusedError.
    """
    try:
        return await _ask(session, path, text, deadline)
    except (ServerRefusedError, NotCarriedOutError):
        own = text()
        if path in session.documents or own is None:
            raise
        # No open file's project has it: opening it loads its own.
        session.sync(path, own)
        return await _ask(session, path, text, deadline)


async def _ask(session: Session, path: str, text: Callable[[], str | None], deadline: float) -> tuple[Finding, ...]:
    found: list[TsDiagnostic] = []
    for request in REQUESTS:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise ServerTimeoutError(f"{request} was not asked before the deadline")
        answer = await session.connection.request(
            "workspace/executeCommand",
            {
                "command": "typescript.tsserverRequest",
                "arguments": [request, {"file": str(session.root / path)}, {"lowPriority": False}],
            },
            _ANSWER,
            timeout_s=remaining,
        )
        if answer is None or answer.type != "response" or not answer.success or answer.body is None:
            raise NotCarriedOutError(answer.message or answer.type if answer is not None else "no answer")
        found.extend(answer.body)
    return tuple(_findings(path, found, text() or "")) if found else ()


def _findings(path: str, found: Sequence[TsDiagnostic], text: str) -> list[Finding]:
    positions = TextPositions(text, "utf-16")
    findings: list[Finding] = []
    for item in found:
        severity = _SEVERITIES.get(item.category)
        if severity is None:
            continue
        start = Position(item.start.line - 1, item.start.offset - 1)
        end = Position(item.end.line - 1, item.end.offset - 1)
        line, column, end_line, end_column = positions.from_lsp_range(Range(start, end))
        findings.append(
            Finding(
                path=path,
                severity=severity,
                message=item.text,
                rule=str(item.code) if item.code is not None else None,
                line=line,
                column=column,
                end_line=end_line,
                end_column=end_column,
            )
        )
    return list(dict.fromkeys(findings))
