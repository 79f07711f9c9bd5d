"""Path translation: what an adapter calls a root-relative path, and host paths taken out of messages."""

from __future__ import annotations

import re
from urllib.parse import quote

OUTSIDE = "<path outside the workspace>"

# An absolute path inside a sentence: a slash that does not continue a word, a URL or another path; or a file's URL.
_ABSOLUTE = re.compile(r"(?:\bfile://|(?<![\w/:.~\-\]<>]))/(?!/)[^\s'\"`:;,()<>|\[\]{}]+")


class RootTranslator:
    """The identity translation for a file system whose paths are root-relative already.

    `redact` makes absolute paths under the root relative and replaces all others, so that a message never says
    what lies outside the root.
    """

    def __init__(self, *roots: str) -> None:
        """`roots` are the spellings of the root that may occur in messages, absolute (typically as given and real)."""
        plain = {root.rstrip("/") for root in roots if root.rstrip("/")}
        spellings = plain | {f"file://{name}" for root in plain for name in (root, quote(root))}
        alternatives = "|".join(re.escape(root) for root in sorted(spellings, key=len, reverse=True))
        self._under = re.compile(rf"(?:{alternatives})(?:/|(?=$|[\s'\"`:;,()<>|\[\]{{}}]))") if spellings else None

    def to_adapter(self, path: str) -> str:
        """The same path."""
        return path

    def redact(self, message: str) -> str:
        """The message without host paths."""
        if "/" not in message:
            return message
        if self._under is not None:
            message = self._under.sub(lambda found: "" if found.group().endswith("/") else ".", message)
        return _ABSOLUTE.sub(OUTSIDE, message)
