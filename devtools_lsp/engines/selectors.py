"""Document selectors: for which files a server registered an ability, by LSP 3.17 and 3.18.

Owns the globs of the protocol (`*`, `?`, `**`, `{a,b}`, `[a-z]`, `[!a]`) and the filters that are made of them. They
are a server's own and differ from the patterns of our paths. Pure; a filter that cannot be read takes no file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from posixpath import basename
from typing import Any, cast
from urllib.parse import unquote, urlsplit

MAX_GLOB = 2000
MAX_DEPTH = 20


@dataclass(frozen=True, slots=True)
class Document:
    """What a selector sees of a file: its absolute path, its path from the workspace folder, its language id."""

    host: str
    relative: str
    language: str


def selects(selector: object, document: Document) -> bool:
    """Whether a document selector takes a file. None, as in a registration without one, takes every file."""
    if selector is None:
        return True
    if not isinstance(selector, list):
        return False
    return any(_filter_takes(entry, document) for entry in cast("list[object]", selector))


def _filter_takes(entry: object, document: Document) -> bool:
    if isinstance(entry, str):
        return entry in ("*", document.language)
    if not isinstance(entry, dict):
        return False
    wanted = cast("dict[str, Any]", entry)
    if "notebook" in wanted:
        return False  # It speaks of cells; every document here is a file.
    if wanted.get("scheme") not in (None, "", "*", "file"):
        return False
    if wanted.get("language") not in (None, "", "*", document.language):
        return False
    pattern = wanted.get("pattern")
    return pattern in (None, "") or _pattern_takes(pattern, document)


def _pattern_takes(pattern: object, document: Document) -> bool:
    """A glob is matched against the whole path, the path in the folder, or, where it has no slash, the name."""
    if isinstance(pattern, str):
        names = [document.host, document.relative]
        if "/" not in pattern:
            names.append(basename(document.host))
        return any(glob_matches(pattern, name) for name in names)
    if not isinstance(pattern, dict):
        return False
    relative = cast("dict[str, Any]", pattern)
    base, below = relative.get("baseUri"), relative.get("pattern")
    if isinstance(base, dict):
        base = cast("dict[str, Any]", base).get("uri")
    if not isinstance(base, str) or not isinstance(below, str):
        return False
    parts = urlsplit(base)
    folder = unquote(parts.path).rstrip("/") + "/"
    return (
        parts.scheme == "file"
        and document.host.startswith(folder)
        and glob_matches(below, document.host[len(folder) :])
    )


def glob_matches(glob: str, path: str) -> bool:
    """Whether a glob of the protocol matches the whole of a path; a malformed one matches nothing."""
    compiled = _compiled(glob)
    return compiled is not None and compiled.fullmatch(path) is not None


@lru_cache(maxsize=512)
def _compiled(glob: str) -> re.Pattern[str] | None:
    if len(glob) > MAX_GLOB:
        return None
    try:
        return re.compile(_Translation(glob).regex(), re.DOTALL)
    except (ValueError, re.error):
        return None


class _Translation:
    """One glob on its way to a regular expression."""

    def __init__(self, glob: str) -> None:
        self._glob = glob
        self._at = 0
        self._depth = 0

    def regex(self) -> str:
        """The whole glob; raises ValueError when a bracket or brace is not closed."""
        parts: list[str] = []
        while self._at < len(self._glob):
            parts.append(self._next())
        return "".join(parts)

    def _next(self) -> str:
        character = self._glob[self._at]
        self._at += 1
        match character:
            case "*":
                return self._stars()
            case "?":
                return "[^/]"
            case "[":
                return self._range()
            case "{":
                return self._group()
            case _:
                return re.escape(character)

    def _stars(self) -> str:
        start = self._at - 1
        while self._glob[self._at : self._at + 1] == "*":
            self._at += 1
        if self._at - start == 1:
            return "[^/]*"
        opens = start == 0 or self._glob[start - 1] in "/{,"
        if opens and self._glob[self._at : self._at + 1] == "/":
            self._at += 1
            return "(?:[^/]+/)*" if start else "/?(?:[^/]+/)*"
        return ".*"

    def _range(self) -> str:
        end = self._glob.find("]", self._at + 1)
        if end < 0:
            raise ValueError("a bracket is not closed")
        inside = self._glob[self._at : end]
        self._at = end + 1
        negated = inside[:1] in ("!", "^")
        body = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[1:] if negated else inside)
        return f"(?!/)[{'^' if negated else ''}{body}]"

    def _group(self) -> str:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError("braces are nested too deeply")
        alternatives: list[str] = [""]
        while self._at < len(self._glob):
            character = self._glob[self._at]
            if character == "}":
                self._at += 1
                self._depth -= 1
                return f"(?:{'|'.join(alternatives)})"
            if character == ",":
                self._at += 1
                alternatives.append("")
            else:
                alternatives[-1] += self._next()
        raise ValueError("a brace is not closed")
