"""What a lint with fixes did away with, told in few words.

A fix may remove code that the plan itself has just brought in, which no comparison with the acquired state shows.
Owns the words. An engine's claim counts only as far as the judgement that follows it bears it out (I10).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from devtools_lsp.core.diagnostics import Diagnostic, Finding, notice
from devtools_lsp.pipeline.judging import Judgement

Fixed = Mapping[str, Sequence[Finding]]
"""By engine id, findings as they stood before its fixes."""

NAMED = 4
"""So many fixes are told one by one; more are counted by rule."""
RULES_NAMED = 6
LONGEST_MESSAGE = 100


def fixed_notices(fixed: Fixed, judgements: Sequence[Judgement]) -> list[Diagnostic]:
    """One notice for each engine whose fixes hold: what it did away with and is not found any more.

    What a person left out of the fixes is found again by the judgement, and a file that was not judged is counted
    with neither side; `pending` tells of it.
    """
    notices: list[Diagnostic] = []
    for engine_id, findings in fixed.items():
        judgement = next((entry for entry in judgements if entry.engine_id == engine_id), None)
        if judgement is None:
            continue
        held = _held(findings, judgement)
        if held:
            paths = {finding.path for finding in held}
            path = next(iter(paths)) if len(paths) == 1 else None
            notices.append(notice(f"lint: {engine_id} {_words(held)}", path=path, rule="fixed"))
    return notices


def _held(findings: Sequence[Finding], judgement: Judgement) -> list[Finding]:
    left = Counter((item.path, item.rule, item.message) for item in judgement.after)
    held: list[Finding] = []
    for finding in findings:
        key = (finding.path, finding.rule, finding.message)
        if left[key] > 0:
            left[key] -= 1
        elif finding.path in judgement.judged:
            held.append(finding)
    return held


def _words(held: Sequence[Finding]) -> str:
    if len(held) <= NAMED:
        return f"fixed {'; '.join(_named(finding) for finding in held)}"
    files = len({finding.path for finding in held})
    counts = Counter(finding.rule or "without a rule" for finding in held).most_common()
    rules = ", ".join(f"{rule} x{number}" for rule, number in counts[:RULES_NAMED])
    more = f" and {len(counts) - RULES_NAMED} more rules" if len(counts) > RULES_NAMED else ""
    return f"fixed {len(held):,} findings in {files:,} {'file' if files == 1 else 'files'}: {rules}{more}"


def _named(finding: Finding) -> str:
    place = f"{finding.path}:{finding.line}" if finding.line is not None else f"{finding.path}"
    message = " ".join(finding.message.split())
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 1] + "\u2026"
    return f"{finding.rule or 'a finding'} at {place} ({message})"
