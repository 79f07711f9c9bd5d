"""Root-relative paths and path patterns: lexical rules only, nothing here touches a file system.

Owns SPEC 3.2 (patterns) and the lexical half of 5.2.1. A path is root-relative, POSIX, case-sensitive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from devtools_lsp.errors import BadArgumentError, PolicyError

MAX_PATH_BYTES = 4095
MAX_COMPONENT_BYTES = 255

_DRIVE = re.compile(r"^[A-Za-z]:([/\\]|$)")
_PLAIN = re.compile(r"(?:(?!\.{1,2}/)[A-Za-z0-9_.+-]+/)*(?!\.{1,2}\Z)[A-Za-z0-9_.+-]+")
"""What nearly all paths look like: nothing in them has to be looked at any closer."""
_DEVICE = re.compile(r"^[/\\]{2}[.?]([/\\]|$)")
_REFUSED_IN_PATTERNS = re.compile(r"[?\[\]{}!]")


def relative_path(raw: str, root: str) -> str:
    """The root-relative form of a path that somebody wrote, by text alone.

    Raises PolicyError: `malformed` for NUL, drives, devices, UNC and over-long names; `outsideRoot` for `~`,
    for `..` beyond the root and for absolute paths that are not under `root`. The root itself is `""`.
    """
    if len(raw) <= MAX_COMPONENT_BYTES and _PLAIN.fullmatch(raw):
        return raw
    return _spelled_out(raw, root)


def _spelled_out(raw: str, root: str) -> str:
    if "\0" in raw:
        raise PolicyError("a path cannot contain a NUL character; remove it", reason="malformed")
    shown = raw if len(raw) <= 200 else raw[:200] + "…"
    if _DEVICE.match(raw) or raw.startswith("\\\\") or _DRIVE.match(raw):
        raise PolicyError(
            f"{shown!r} is a drive, device or UNC path; give a path relative to the workspace root", reason="malformed"
        )
    if raw == "~" or raw.startswith("~/"):
        raise PolicyError("~ is not expanded; give a path relative to the workspace root", reason="outsideRoot")
    if raw.startswith("//") and not raw.startswith("///"):
        raise PolicyError(f"{shown!r} is a UNC path; give a path relative to the workspace root", reason="malformed")
    try:
        encoded = raw.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PolicyError("a path must be valid Unicode (it contains a lone surrogate)", reason="malformed") from error
    if raw.startswith("/"):
        prefix = root.rstrip("/") + "/"
        if raw.rstrip("/") == root.rstrip("/"):
            return ""
        if not raw.startswith(prefix):
            raise PolicyError("the path is outside the workspace root", reason="outsideRoot")
        raw = raw[len(prefix) :]
    parts: list[str] = []
    for part in raw.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            if not parts:
                raise PolicyError("the path leads out of the workspace root", reason="outsideRoot")
            parts.pop()
            continue
        if len(part.encode("utf-8")) > MAX_COMPONENT_BYTES:
            raise PolicyError(
                f"a path component is longer than {MAX_COMPONENT_BYTES} bytes; shorten it", reason="malformed"
            )
        parts.append(part)
    if len(encoded) > MAX_PATH_BYTES:
        raise PolicyError(f"a path is longer than {MAX_PATH_BYTES} bytes; shorten it", reason="malformed")
    return "/".join(parts)


def is_pattern(text: str) -> bool:
    """Whether a `paths` entry holds wildcards, so that it is a pattern and not a literal path."""
    return "*" in text


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A parsed pattern: `*` matches within a segment, `**` is a whole segment and matches zero or more."""

    text: str
    segments: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse; raises BadArgumentError (`malformed`) for syntax that this project refuses to guess at."""
        refused = _REFUSED_IN_PATTERNS.search(text)
        if refused:
            raise _malformed(
                text,
                f"{refused.group()!r} has no meaning in a pattern here; use * (within a segment) and ** (a whole "
                "segment), or list the files",
            )
        if not text or text.startswith("/") or "\0" in text:
            raise _malformed(text, "patterns are relative to the workspace root and not empty")
        if len(text.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
            raise _malformed(text, f"it is longer than {MAX_PATH_BYTES} bytes; shorten it")
        segments = tuple(segment for segment in text.split("/") if segment not in ("", "."))
        for segment in segments:
            if segment == "..":
                raise _malformed(text, "'..' is not allowed")
            if "**" in segment and segment != "**":
                raise _malformed(text, "** must be a whole segment, as in src/**/x.py")
        return cls(text, segments)

    def matches(self, path: str, *, dot_names: bool) -> bool:
        """Whether a root-relative path matches; `dot_names` lets wildcards match names that start with a dot.

        Acquiring and selecting pass False, policy and rules pass True (SPEC 3.2.2).
        """
        return len(self.segments) in self._reached(path.split("/"), dot_names=dot_names)

    def may_match_below(self, directory: str, *, dot_names: bool) -> bool:
        """Whether some path below `directory` (`""` = root) could match: prunes a walk."""
        reached = self._reached(directory.split("/") if directory else (), dot_names=dot_names)
        return any(index < len(self.segments) for index in reached)

    def _reached(self, names: Iterable[str], *, dot_names: bool) -> set[int]:
        """Which positions among the segments can follow once all names are consumed; empty when they do not fit."""
        reach = self._closure({0})
        for name in names:
            following: set[int] = set()
            for index in reach:
                if index == len(self.segments):
                    continue
                segment = self.segments[index]
                if segment == "**":
                    if dot_names or not name.startswith("."):
                        following.add(index)
                elif segment_matches(segment, name, dot_names=dot_names):
                    following.add(index + 1)
            reach = self._closure(following)
        return reach

    def _closure(self, reach: set[int]) -> set[int]:
        closed = set(reach)
        stack = list(reach)
        while stack:
            index = stack.pop()
            if index < len(self.segments) and self.segments[index] == "**" and index + 1 not in closed:
                closed.add(index + 1)
                stack.append(index + 1)
        return closed


def _malformed(pattern: str, why: str) -> BadArgumentError:
    """The refusal of a pattern, which repeats no more of it than a file's path could have."""
    shown = pattern if len(pattern) <= 200 else pattern[:200] + "…"
    return BadArgumentError(f"pattern {shown!r}: {why}", reason="malformed", path=pattern[:MAX_PATH_BYTES])


def segment_matches(segment: str, name: str, *, dot_names: bool) -> bool:
    """Whether one pattern segment matches one file name."""
    if "*" not in segment:
        return segment == name
    if name.startswith(".") and not dot_names and not segment.startswith("."):
        return False
    pieces = segment.split("*")
    if not name.startswith(pieces[0]) or not name.endswith(pieces[-1]):
        return False
    position = len(pieces[0])
    limit = len(name) - len(pieces[-1])
    if limit < position:
        return False
    for piece in pieces[1:-1]:
        found = name.find(piece, position, limit)
        if found < 0:
            return False
        position = found + len(piece)
    return True


def parent_of(path: str) -> str:
    """The directory part of a root-relative path; `""` for the root."""
    return path.rpartition("/")[0]


def extension_of(path: str) -> str:
    """Lower-case extension without the dot, `""` for none (`.gitignore` has none)."""
    name = path.rpartition("/")[2]
    stem, dot, extension = name.rpartition(".")
    return extension.lower() if dot and stem else ""
