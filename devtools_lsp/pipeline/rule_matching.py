"""How a rule's patterns meet what is asked: paths against paths and patterns, commands against commands. Pure.

`mayCreate` may hold patterns, so that a rule's pattern is compared with a pattern: an allow rule must cover it
whole, a deny or ask rule need only overlap it. Commands are compared as text, with the shell's own syntax in
mind: what an allow rule leaves open never lets a second command through.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from devtools_lsp.paths import PathPattern, is_pattern

_JOINTS = re.compile(r"\$\(|[;&|\n\r()`{}]")
_OPEN_ENDED = r"[^;&|<>$`()\n\r\\{}]*"


def any_overlap(patterns: Sequence[PathPattern], paths: Sequence[str]) -> bool:
    """Whether some pattern and some path (or pattern) can name the same file: how deny and ask match."""
    return any(overlaps(pattern, path) for path in paths for pattern in patterns)


def all_covered(patterns: Sequence[PathPattern], paths: Sequence[str]) -> bool:
    """Whether each path (or pattern) lies wholly inside some pattern: how allow matches."""
    return all(any(covers(pattern, path) for pattern in patterns) for path in paths)


def covers(pattern: PathPattern, path: str) -> bool:
    """Whether `pattern` matches the path, or everything that the pattern `path` stands for."""
    if not is_pattern(path):
        return pattern.matches(path, dot_names=True)
    return _covers(pattern.segments, tuple(path.split("/")))


def overlaps(pattern: PathPattern, path: str) -> bool:
    """Whether `pattern` matches the path, or anything that the pattern `path` stands for."""
    if not is_pattern(path):
        return pattern.matches(path, dot_names=True)
    return _overlaps(pattern.segments, tuple(path.split("/")))


@lru_cache(maxsize=4096)
def _covers(outer: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    if not inner:
        return all(segment == "**" for segment in outer)
    if not outer:
        return False
    if outer[0] == "**":
        return _covers(outer[1:], inner) or _covers(outer, inner[1:])
    if inner[0] == "**" or not _segment_covers(outer[0], inner[0]):
        return False
    return _covers(outer[1:], inner[1:])


@lru_cache(maxsize=4096)
def _overlaps(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    if not left:
        return all(segment == "**" for segment in right)
    if not right:
        return all(segment == "**" for segment in left)
    if left[0] == "**":
        return _overlaps(left[1:], right) or _overlaps(left, right[1:])
    if right[0] == "**":
        return _overlaps(left, right[1:]) or _overlaps(left[1:], right)
    return _segments_overlap(left[0], right[0]) and _overlaps(left[1:], right[1:])


@lru_cache(maxsize=4096)
def _segment_covers(outer: str, inner: str) -> bool:
    """A star of `inner` stands for anything, so only a star of `outer` may take it."""
    if not outer:
        return not inner
    if outer[0] == "*":
        return _segment_covers(outer[1:], inner) or (bool(inner) and _segment_covers(outer, inner[1:]))
    return bool(inner) and inner[0] == outer[0] and _segment_covers(outer[1:], inner[1:])


@lru_cache(maxsize=4096)
def _segments_overlap(left: str, right: str) -> bool:
    if not left:
        return not right.strip("*")
    if not right:
        return not left.strip("*")
    if left[0] == "*":
        return _segments_overlap(left[1:], right) or _segments_overlap(left, right[1:])
    if right[0] == "*":
        return _segments_overlap(left, right[1:]) or _segments_overlap(left[1:], right)
    return left[0] == right[0] and _segments_overlap(left[1:], right[1:])


def glob_matches(pattern: str, text: str) -> bool:
    """Whether a name matches, where `*` stands for any run of characters."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def command_allowed(pattern: str, command: str) -> bool:
    """Whether an allow rule's pattern covers a whole command.

    `*` stands for any run of characters that cannot start another command, redirect or expand: `git *` covers
    `git log -3` and not `git log; rm -rf .`, nor `git log > x`. What the pattern itself spells is taken as it is.
    """
    expression = _OPEN_ENDED.join(map(re.escape, pattern.strip().split("*")))
    return re.fullmatch(expression, command.strip()) is not None


def command_concerned(pattern: str, command: str) -> bool:
    """Whether a deny or ask rule's pattern matches the command, or any part of it that runs by itself.

    Text is compared, not what a shell would make of it: an aid for people who write rules, not a containment.
    """
    parts = [command, *_JOINTS.split(command)]
    return any(glob_matches(pattern.strip(), part.strip()) for part in parts)
