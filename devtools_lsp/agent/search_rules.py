"""What a search looks at: glob patterns, ignore rules, and the places that are never entered.

Glob patterns of the search tools are richer than the path patterns of plans and policy (SPEC 3.2), because models
write what shells and ripgrep taught them: `?`, `[abc]`, `{ts,tsx}` work here, and wildcards match dot-names. A
segment in brackets also matches itself literally (`app/[id]/page.tsx`). Ignore rules are git's, read from
`.gitignore` files and `.git/info/exclude`. This module reads those files and nothing else.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pathspec

from devtools_lsp.errors import BadArgumentError

REPOSITORY_NAMES = frozenset({".git", ".hg", ".svn", ".jj"})
"""Never searched, not even when named."""

SKIPPED_DIRECTORIES = frozenset(
    {
        "node_modules",
        "bower_components",
        "target",
        "__pycache__",
        ".venv",
        "venv",
        ".tox",
        ".nox",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        ".gradle",
        ".terraform",
        ".next",
        ".turbo",
        ".devtools",
    }
)
"""Dependencies, build output and caches: entered only when the search names them."""

SNIFFED_BYTES = 64 * 1024
"""A file with a NUL in so many first bytes is binary, and none of its lines are shown."""

_WILD = re.compile(r"[*?\[{]")
_MOST_EXPANSIONS = 64
_MOST_STARS = 8


def nfc(text: str) -> str:
    """The composed form in which names are compared: macOS stores decomposed ones."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


@dataclass(frozen=True, slots=True)
class Glob:
    """A compiled glob pattern. `expansions` are its brace-free alternatives, each split into segments."""

    text: str
    expansions: tuple[tuple[str, ...], ...]
    regex: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Compile a relative pattern; raises BadArgumentError (`malformed`)."""
        if not text or "\0" in text or text.startswith("!"):
            raise BadArgumentError(
                f"glob {text!r}: give a pattern relative to the workspace root, such as src/**/*.py; exclusions with "
                "! are not offered",
                reason="malformed",
            )
        expansions: list[tuple[str, ...]] = []
        for alternative in _expand_braces(text):
            segments = tuple(segment for segment in alternative.split("/") if segment not in ("", "."))
            if ".." in segments:
                raise BadArgumentError(f"glob {text!r}: '..' is not allowed", reason="malformed")
            if alternative.endswith("/"):
                segments = (*segments, "**")
            expansions.append(segments)
        return cls._of(text, tuple(expansions))

    @classmethod
    def _of(cls, text: str, expansions: tuple[tuple[str, ...], ...]) -> Self:
        return cls(text, expansions, re.compile("|".join(_regex_of(segments, text) for segments in expansions)))

    def below(self, names: int) -> Self:
        """What remains of the pattern under its first `names` literal segments; everything when nothing does."""
        return self._of(self.text, tuple(segments[names:] or ("**",) for segments in self.expansions))

    def matches(self, path: str) -> bool:
        """Whether a relative path matches, whatever Unicode form either is in."""
        return self.regex.fullmatch(nfc(path)) is not None

    @property
    def literal_prefix(self) -> tuple[str, ...]:
        """The names of the directory that every match lies in, as far as the pattern spells them."""
        prefixes: list[tuple[str, ...]] = []
        for segments in self.expansions:
            literal = segments
            for index, segment in enumerate(segments):
                if _WILD.search(segment):
                    literal = segments[:index]
                    break
            prefixes.append(literal)
        shared: list[str] = []
        for names in zip(*prefixes, strict=False):
            if len(set(names)) > 1:
                break
            shared.append(names[0])
        return tuple(shared)

    def file_names(self) -> list[str] | None:
        """Patterns of the last segment that no match fails, for a coarse filter; None when there is no such."""
        names: list[str] = []
        for segments in self.expansions:
            if not segments or segments[-1] == "**":
                return None
            coarse = re.sub(r"\[[^\]]*\]", "*", segments[-1])
            names.append("".join("*" if not c.isascii() else "?" if c in "[]{}\\:!" else c for c in coarse))
        return names


def anywhere(text: str) -> Glob:
    """A filter pattern: without a slash it matches names at any depth, as in ripgrep's and git's own."""
    return Glob.parse(text if "/" in text.rstrip("/") else f"**/{text}")


def _expand_braces(text: str) -> list[str]:
    pending = [text]
    done: list[str] = []
    while pending:
        current = pending.pop()
        found = _first_group(current)
        if found is None:
            done.append(current)
        else:
            start, end, parts = found
            pending += [current[:start] + part + current[end:] for part in reversed(parts)]
        if len(pending) + len(done) > _MOST_EXPANSIONS:
            raise BadArgumentError(
                f"glob {text!r}: the braces stand for more than {_MOST_EXPANSIONS} patterns", reason="malformed"
            )
    return done


def _first_group(text: str) -> tuple[int, int, list[str]] | None:
    """The first brace group that holds a comma: where it stands and its parts."""
    for start, character in enumerate(text):
        if character != "{":
            continue
        depth = 0
        parts: list[str] = []
        begin = start + 1
        for position in range(start, len(text)):
            if text[position] == "{":
                depth += 1
            elif text[position] == "," and depth == 1:
                parts.append(text[begin:position])
                begin = position + 1
            elif text[position] == "}":
                depth -= 1
                if depth == 0:
                    parts.append(text[begin:position])
                    if len(parts) > 1:
                        return start, position + 1, parts
                    break
    return None


def _regex_of(segments: Sequence[str], text: str) -> str:
    pieces: list[str] = []
    collapsed: list[str] = []
    for segment in segments:
        if segment == "**" and collapsed and collapsed[-1] == "**":
            continue
        collapsed.append(segment)
    if collapsed.count("**") > _MOST_STARS:
        raise BadArgumentError(f"glob {text!r}: more than {_MOST_STARS} ** segments", reason="malformed")
    for index, segment in enumerate(collapsed):
        last = index == len(collapsed) - 1
        if segment == "**":
            pieces.append(".+" if last else "(?:[^/]+/)*")
        else:
            pieces.append(_segment_regex(nfc(segment)) + ("" if last else "/"))
    return "(?s:" + "".join(pieces) + ")"


def _segment_regex(segment: str) -> str:
    """One segment. What stands between two stars matches at its first place and never again (atomic groups), so
    that no pattern makes matching slow."""
    parts = [_literal_regex(part) for part in re.sub(r"\*+", "*", segment).split("*")]
    if len(parts) == 1:
        return parts[0]
    middle = "".join(f"(?>[^/]*?{part})" for part in parts[1:-1])
    return f"{parts[0]}{middle}[^/]*{parts[-1]}"


def _literal_regex(part: str) -> str:
    pieces: list[str] = []
    position = 0
    while position < len(part):
        character = part[position]
        if character == "?":
            pieces.append("[^/]")
        elif character == "[" and (end := part.find("]", position + 2)) > 0:
            pieces.append(_class_regex(part[position + 1 : end]))
            position = end
        else:
            pieces.append(re.escape(character))
        position += 1
    return "".join(pieces)


def _class_regex(body: str) -> str:
    literal = re.escape(f"[{body}]")
    negated = body[0] in "!^" and len(body) > 1
    members = body[1:] if negated else body
    inner = members.replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^").replace("&", "\\&")
    inner = inner.replace("~", "\\~").replace("|", "\\|")
    source = f"[^/{inner}]" if negated else f"[{inner}]"
    try:
        re.compile(source)
    except re.error:
        return literal
    return f"(?:{source}|{literal})"


# -- ignore rules ------------------------------------------------------------------------------------------------


class IgnoreRules:
    """Git's ignore rules for the paths under one root; `.gitignore` files are read when first needed.

    Inside a git repository the rules between its top and the root count as well; without one only those at and
    below the root do. Rules hold whether or not there is a repository.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._top = next((d for d in (root, *root.parents) if (d / ".git").exists()), root)
        self._prefix = root.relative_to(self._top).parts
        self._specs: dict[tuple[str, ...], pathspec.GitIgnoreSpec | None] = {}
        self._excludes = _load(self._top / ".git" / "info" / "exclude")

    @property
    def in_repository(self) -> bool:
        """Whether the root lies in a git repository."""
        return (self._top / ".git").exists()

    def foreign_rules_above(self) -> bool:
        """Whether a directory above the root, with no repository in between, has rules that do not count here."""
        return not self.in_repository and any((parent / ".gitignore").exists() for parent in self._root.parents)

    def ignores(self, path: str, *, directory: bool) -> bool:
        """Whether a root-relative path, or a directory it lies in, is ignored."""
        parts = (*self._prefix, *path.split("/"))
        return any(
            self.ignores_entry(parts[:end], directory=directory or end < len(parts))
            for end in range(len(self._prefix) + 1, len(parts) + 1)
        )

    def ignores_everything_in(self, path: str) -> bool:
        """Whether a rule such as `gen/*` covers whatever may lie in a directory."""
        return self.ignores(f"{path}/\x01any", directory=False)

    def entry_ignored(self, path: str, *, directory: bool) -> bool:
        """Whether the rules name this very path; for a walk that has decided about the directories above."""
        return self.ignores_entry((*self._prefix, *path.split("/")), directory=directory)

    def ignores_entry(self, parts: tuple[str, ...], *, directory: bool) -> bool:
        """The same for a path split into names that start at the repository's top."""
        for depth in range(len(parts) - 1, -1, -1):
            spec = self._spec(parts[:depth])
            if spec is not None:
                verdict = spec.check_file("/".join(parts[depth:]) + ("/" if directory else "")).include
                if verdict is not None:
                    return verdict
        if self._excludes is not None:
            return bool(self._excludes.check_file("/".join(parts) + ("/" if directory else "")).include)
        return False

    def _spec(self, parts: tuple[str, ...]) -> pathspec.GitIgnoreSpec | None:
        if parts not in self._specs:
            self._specs[parts] = _load(self._top.joinpath(*parts, ".gitignore"))
        return self._specs[parts]


def _load(path: Path) -> pathspec.GitIgnoreSpec | None:
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    try:
        return pathspec.GitIgnoreSpec.from_lines(text.splitlines())
    except (ValueError, re.error):
        # One malformed line must not make the others ineffective.
        return pathspec.GitIgnoreSpec.from_lines(line for line in text.splitlines() if _parses(line))


def _parses(line: str) -> bool:
    try:
        pathspec.GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True


class ForeignTrees:
    """Working trees of other checkouts below the root: directories whose `.git` file points to a worktree."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, bool] = {"": False}

    def holds(self, directory: str) -> bool:
        """Whether a root-relative directory lies in one."""
        known = self._known.get(directory)
        if known is None:
            parent = directory.rpartition("/")[0]
            known = self.holds(parent) or self.is_one(directory)
            self._known[directory] = known
        return known

    def is_one(self, directory: str) -> bool:
        """Whether a root-relative directory is the top of one."""
        path = os.path.join(self._root, directory, ".git")
        # A search asks for every directory, and hardly any has such a file.
        if not os.access(path, os.F_OK):
            return False
        try:
            with Path(path).open("rb") as file:
                return b"/worktrees/" in file.read(4096)
        except OSError:
            return False
