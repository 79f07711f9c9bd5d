"""What a language server says about one file: pulled from every provider it registered, or pushed for this version.

Owns the difference between an answer and none: a report is `Judged` or `Unjudged`, and "no answer" is never an
empty report. It asks through a `Session` and keeps nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from devtools_lsp.core.diagnostics import Finding, Severity
from devtools_lsp.engines.client import (
    CONTENT_MODIFIED,
    REQUEST_CANCELLED,
    SERVER_CANCELLED,
    ServerRefusedError,
    ServerTimeoutError,
)
from devtools_lsp.engines.messages import DocumentReport, LspDiagnostic
from devtools_lsp.engines.positions import TextPositions
from devtools_lsp.engines.session import Session
from devtools_lsp.engines.tsserver import NotCarriedOutError, ask_tsserver

PULL = "textDocument/diagnostic"
RETRY_FIRST_S = 0.01
RETRY_LAST_S = 0.25
OPEN_AFTER_S = 1.0
"""A closed file that is not analysed for this long is opened, which makes it the checker's business."""
SYNTAX_WAIT_S = 2.0

_REPORT: msgspec.json.Decoder[DocumentReport] = msgspec.json.Decoder(DocumentReport)
_SEVERITIES: dict[int, Severity] = {1: "error", 2: "warning", 3: "info"}
_HINT = 4


@dataclass(frozen=True, slots=True)
class Judged:
    """What the server says about one file. `result_ids` maps provider identifiers to ids for the next pull."""

    findings: tuple[Finding, ...]
    result_ids: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Unjudged:
    """The server did not judge the file, and why. `seen` are findings that it does not vouch for as a whole answer."""

    reason: str
    seen: tuple[Finding, ...] = ()


async def judge_file(
    session: Session, path: str, text: Callable[[], str | None], *, deadline: float, known: Judged | None = None
) -> Judged | Unjudged:
    """What the server says about one file until a monotonic time; `text` gives its text when there are findings.

    `known` is an earlier answer of this session: its result ids are offered, and an `unchanged` answer means
    its findings.
    """
    session.residue.asked()
    try:
        if session.spec.diagnostics == "push":
            return await _judge_by_push(session, path, text, deadline)
        if session.spec.diagnostics == "tsserver":
            return Judged(await ask_tsserver(session, path, text, deadline=deadline))
        answer = await _judge_by_pull(session, path, text, deadline, known)
        if isinstance(answer, Judged):
            session.residue.emptied(path)
        return answer
    except ServerTimeoutError:
        return Unjudged("the engine did not answer before the deadline")
    except ServerRefusedError as error:
        return Unjudged(f"the engine refused: {error}")
    except NotCarriedOutError as error:
        return Unjudged(f"the engine did not judge this file: {error}")


def _providers(session: Session, path: str) -> dict[str, str | None]:
    """Diagnostic providers for a file: a key for each, with its identifier."""
    found: dict[str, str | None] = {}
    static = session.capabilities.get("diagnosticProvider")
    if isinstance(static, dict):
        identifier = cast("dict[str, Any]", static).get("identifier")
        found[identifier or ""] = identifier
    for options in session.registered(PULL, path):
        identifier = options.get("identifier")
        found[identifier or ""] = identifier
    return found


async def _judge_by_pull(
    session: Session, path: str, text: Callable[[], str | None], deadline: float, known: Judged | None
) -> Judged | Unjudged:
    if not await session.wait_until(lambda: bool(_providers(session, path)), PULL, deadline):
        return Unjudged("the engine has not offered diagnostics for this file")
    providers = _providers(session, path)
    findings: list[Finding] = []
    ids: dict[str, str] = {}
    for key, identifier in providers.items():
        previous = known.result_ids.get(key) if known is not None and len(providers) == 1 else None
        report = await _pull(session, path, identifier, previous, deadline, text)
        if isinstance(report, Unjudged):
            return report
        if report.kind == "unchanged":
            assert known is not None
            return known
        if report.result_id is not None:
            ids[key] = report.result_id
        findings.extend(_findings(session, path, report.items, text))
    return Judged(tuple(dict.fromkeys(findings)), ids)


async def _pull(
    session: Session,
    path: str,
    identifier: str | None,
    previous: str | None,
    deadline: float,
    text: Callable[[], str | None],
) -> DocumentReport | Unjudged:
    params: dict[str, Any] = {"textDocument": {"uri": session.uri(path)}}
    if identifier is not None:
        params["identifier"] = identifier
    if previous is not None:
        params["previousResultId"] = previous
    pause = RETRY_FIRST_S
    open_from = time.monotonic() + OPEN_AFTER_S
    reason = "the engine did not answer before the deadline"
    while (remaining := deadline - time.monotonic()) > 0:
        try:
            report = await session.connection.request(PULL, params, _REPORT, timeout_s=remaining)
        except ServerRefusedError as error:
            if error.code not in (SERVER_CANCELLED, CONTENT_MODIFIED, REQUEST_CANCELLED):
                raise
            reason = "the engine was busy with changes until the deadline"
        else:
            if report.kind == "unchanged" and previous is not None:
                return report
            if report.kind == "full" and (report.result_id is not None or not session.spec.needs_result_id):
                return report
            reason = "the engine has not analysed this file (it may still be indexing)"
            if path not in session.documents and time.monotonic() >= open_from and (own := text()) is not None:
                # Of one file under two names, as behind a linked directory, a checker takes only one into its project.
                session.sync(path, own)
        await asyncio.sleep(min(pause, max(deadline - time.monotonic(), 0)))
        pause = min(pause * 2, RETRY_LAST_S)
    return Unjudged(reason)


async def _judge_by_push(
    session: Session, path: str, text: Callable[[], str | None], deadline: float
) -> Judged | Unjudged:
    document = session.documents.get(path)
    if document is None:
        return Unjudged("the engine judges open documents only")
    if session.spec.dependents != "none" and session.behind(path):
        # What it published for this very version may describe another state of the files that this one depends on.
        session.reopen(path)
        document = session.documents[path]
    uri = session.uri(path)
    while True:
        pushed = session.connection.pushed.get(uri)
        done = not session.spec.preambles or uri in session.connection.idle
        if pushed is not None and pushed.version == document.version and done:
            return Judged(tuple(_findings(session, path, pushed.diagnostics, text)))
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            break
        with suppress(TimeoutError):
            async with asyncio.timeout(remaining):
                await session.connection.changed()
    if pushed is not None and pushed.version is None:
        seen = tuple(_findings(session, path, pushed.diagnostics, text))
        return Unjudged("the engine does not say which text its diagnostics describe", seen)
    if pushed is not None and pushed.version == document.version:
        return Unjudged("the engine was not done with this file before the deadline")
    return Unjudged("the engine published nothing for this text before the deadline")


async def syntax_problems(session: Session, path: str, text: str, *, deadline: float) -> list[Finding]:
    """Why the server may have left a text alone: findings of the rules that the preset lists as syntax errors."""
    rules = session.spec.syntax_rules
    if not rules:
        return []
    answer = await judge_file(session, path, lambda: text, deadline=min(deadline, time.monotonic() + SYNTAX_WAIT_S))
    found = answer.findings if isinstance(answer, Judged) else answer.seen
    return [finding for finding in found if finding.rule in rules]


def _findings(
    session: Session, path: str, items: Sequence[LspDiagnostic], text: Callable[[], str | None]
) -> list[Finding]:
    """Findings of one file. Hints are left out: they are decoration for an editor ("unused", greyed out)."""
    sources = session.spec.sources
    wanted = [item for item in items if item.severity != _HINT and (not sources or item.source in sources)]
    if not wanted:
        return []
    positions = TextPositions(text() or "", session.encoding)
    return [from_lsp_diagnostic(path, item, positions) for item in wanted]


def from_lsp_diagnostic(path: str, item: LspDiagnostic, positions: TextPositions) -> Finding:
    """A finding in our coordinates."""
    line, column, end_line, end_column = positions.from_lsp_range(item.range)
    return Finding(
        path=path,
        severity=_SEVERITIES.get(item.severity or 1, "error"),
        message=item.text.replace("\u00a0", " "),
        rule=str(item.code) if item.code is not None else None,
        line=line,
        column=column,
        end_line=end_line,
        end_column=end_column,
    )
