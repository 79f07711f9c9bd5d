"""From the text of a patch to operations, whichever dialect and wrapping it came in (SPEC 3.6.1, 3.6.2).

Owns the wrapping (a Markdown fence, a heredoc) and the choice of the dialect. Paths are the authored ones with
surrounding blanks, empty segments and `.` segments left out, and with the `a/` `b/` prefixes and the quotes of a
diff taken off; whether they stay inside a root is judged elsewhere (`ParsedPatch.resolved` puts the judged form in).
"""

from __future__ import annotations

import re

from devtools_lsp.core.differing import shown
from devtools_lsp.core.patch.envelope import BEGIN, parse_envelope
from devtools_lsp.core.patch.malformed import EXAMPLE, malformed
from devtools_lsp.core.patch.operations import ParsedPatch
from devtools_lsp.core.patch.unified import is_unified, parse_unified
from devtools_lsp.text import BYTE_ORDER_MARK, to_lf, unwritable

__all__ = ["ParsedPatch", "parse_patch"]

_FENCE = re.compile(r"\s*(`{3,}|~{3,})[\w+.-]*\s*")
_HEREDOC = re.compile(
    r"(?:(?:apply_?patch|git|patch|cat|bash|sh)\b.*)?<<-?\s*(?P<quote>['\"]?)(?P<word>[A-Za-z_]\w*)(?P=quote).*",
    re.ASCII,
)
_WRAPPINGS = 4


def parse_patch(patch: str) -> ParsedPatch:
    """Parse completely; raises BadArgumentError (`malformed`) with the 1-based line of the patch as given."""
    fault = unwritable(patch)
    if fault is not None:
        line = int(fault.rpartition("line ")[2].rstrip(")"))
        raise malformed(f"it holds {fault.partition(' (')[0]}, which no text file can; remove it", line)
    lines = to_lf(patch.removeprefix(BYTE_ORDER_MARK)).split("\n")
    first, last = _unwrapped(lines)
    if first == last:
        raise malformed("the patch is empty; write for example:\n" + EXAMPLE, 1)
    body = lines[first:last]
    if body[0].rstrip() == BEGIN:
        return parse_envelope(body, first + 1)
    if is_unified(body):
        return parse_unified(body, first + 1)
    raise malformed(
        f"{shown(body[0])} begins neither {BEGIN!r} nor a unified diff ('--- a/path', '+++ b/path', '@@ ... @@'); "
        f"write for example:\n{EXAMPLE}",
        first + 1,
    )


def _unwrapped(lines: list[str]) -> tuple[int, int]:
    """The part between the wrappings as [first, last), without empty lines before it.

    Those behind it stay unless a wrapping ends there: the last line of a hunk may be an empty one.
    """
    first, last = 0, len(lines)
    for _ in range(_WRAPPINGS):
        while first < last and not lines[first].strip():
            first += 1
        closing = _closing(lines[first]) if first < last else None
        if closing is None:
            return first, last
        while not lines[last - 1].strip():
            last -= 1
        if last - 1 == first or not closing.fullmatch(lines[last - 1]):
            raise malformed(
                f"the wrapping that {shown(lines[first].strip())} opens is not closed on the last line; was the patch "
                "cut off? Send it without ``` or close it",
                first + 1,
            )
        first, last = first + 1, last - 1
    return first, last


def _closing(line: str) -> re.Pattern[str] | None:
    """What the last line must look like when this first line opens a wrapping."""
    fence = _FENCE.fullmatch(line)
    if fence is not None:
        mark = fence.group(1)
        return re.compile(rf"\s*{re.escape(mark[0])}{{{len(mark)},}}\s*")
    heredoc = _HEREDOC.fullmatch(line.strip())
    if heredoc is not None:
        return re.compile(rf"\s*{heredoc.group('word')}\s*[\"')]*\s*")
    return None
