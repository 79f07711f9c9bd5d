"""The path policy: ordered rules of the operator over mandatory denies that no rule opens (SPEC 5.2.3, 5.2.4).

Owns the verdict on one path. It is asked with names (pure) and, where the caller has them, with the identities of
the directories that a walk opened, with contents, and with what stands beside the file. It opens nothing itself
except through `ProtectedPlaces`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, cast

from devtools_lsp.errors import BadArgumentError, InvalidConfigError, PolicyError
from devtools_lsp.fs.matching import PatternSet
from devtools_lsp.fs.names import (
    JOURNAL_DIRECTORY,
    JOURNAL_IN_GIT,
    always_ask,
    denied_component,
    fold_path,
    is_pyproject,
    is_repository_layout,
)
from devtools_lsp.fs.protected import Protected, ProtectedPlaces
from devtools_lsp.fs.walk import Identity
from devtools_lsp.paths import PathPattern
from devtools_lsp.ports import Access

DEFAULT_DENY_READ = ("**/.env", "**/.env.*", "**/*.pem", "**/id_rsa", "**/id_ecdsa", "**/id_ed25519")
"""Secrets that are not read unless the operator says otherwise."""


_JOURNALS = (JOURNAL_DIRECTORY, f".git/{JOURNAL_IN_GIT}")


class PathPolicy:
    """Which paths may be read and written. Deny wins; what no `allow_write` pattern covers is refused."""

    def __init__(
        self,
        allow_write: Sequence[str] = ("**",),
        deny_write: Sequence[str] = (),
        deny_read: Sequence[str] = DEFAULT_DENY_READ,
        *,
        root: str | None = None,
        own_paths: Sequence[str] = (),
    ) -> None:
        """Patterns are those of SPEC 3.2; wildcards match dot-names here, and denies match folded names too.

        `root` (absolute) turns on the discovery of git directories and identities; without it only names are
        judged, as for file systems that are not local. `own_paths` are the daemon's state, journal, socket, token
        and configuration: absolute, or relative to the root. Raises InvalidConfigError naming the key.
        """
        self._allowed = _patterns("allow_write", allow_write)
        self._allow_write = PatternSet(self._allowed)
        self._deny_write = PatternSet(_patterns("deny_write", deny_write), forgiving=True)
        self._deny_read = PatternSet(_patterns("deny_read", deny_read), forgiving=True)
        own = [_below_root(path, root) for path in own_paths]
        self._private = frozenset(fold_path(path) for path in (*_JOURNALS, *own) if path)
        self._private_tops = frozenset(path.partition("/")[0] for path in self._private)
        self._read_verdict = lru_cache(maxsize=4096)(self._judge_reading)
        self._name_verdict = lru_cache(maxsize=4096)(self._judge_name)
        self._own = frozenset(fold_path(path) for path in own_paths if not path.startswith("/"))
        self._places = ProtectedPlaces(root, own_paths) if root is not None else None

    def protected(self) -> Protected:
        """The protected places as they are now; blocks for a moment when git has to be asked."""
        return self._places.current() if self._places is not None else Protected()

    def judge(
        self,
        path: str,
        access: Access,
        identities: Iterable[Identity] = (),
        *,
        protected: Protected | None = None,
        directory: bool = False,
    ) -> None:
        """Refuse by raising PolicyError (`protected`); `path` is root-relative, lexical or resolved.

        `protected` saves looking the places up again when many paths are judged at once. A `directory` may be made
        where something below it may be written, since rules name files.
        """
        if access == "read":
            why = self._read_verdict(path)
            if why is not None:
                raise _refused(path, why)
            return
        why = self._name_verdict(path, directory)
        if why is not None:
            raise _refused(path, why)
        places = protected if protected is not None else self.protected()
        folded = fold_path(path)
        if folded in places.names or _below(folded, places.prefixes) or (self._own and _below(folded, self._own)):
            raise _refused(path, "it belongs to git's or the daemon's own files: no rule and no approval opens it")
        self.judge_identities(path, identities, places)

    def _judge_reading(self, path: str) -> str | None:
        folded = fold_path(path)
        if self._deny_read.matches(path, folded):
            return "reading it is denied by the policy (deny_read)"
        if folded.partition("/")[0] in self._private_tops and _below(folded, self._private):
            return "it is the daemon's own: its journal holds old contents of files that may be closed themselves"
        return None

    def judge_name(self, path: str, *, directory: bool = False) -> None:
        """The part of `judge` for writing that takes the name alone: mandatory names and the operator's rules."""
        why = self._name_verdict(path, directory)
        if why is not None:
            raise _refused(path, why)

    def _judge_name(self, path: str, directory: bool) -> str | None:
        """Why a name is closed, None when it is open. Depends on nothing else, so answers are remembered."""
        component = denied_component(path)
        if component is not None:
            return f"{component!r} is protected: no rule and no approval opens it"
        if self._deny_write.matches(path):
            return "writing it is denied by the policy (deny_write)"
        leads_there = directory and any(pattern.may_match_below(path, dot_names=True) for pattern in self._allowed)
        if not leads_there and not self._allow_write.matches(path):
            return "the policy allows no writing there (allow_write)"
        return None

    def judge_identities(self, path: str, identities: Iterable[Identity], protected: Protected) -> None:
        """The part of `judge` for writing that compares what was opened on the way with the protected places."""
        if not protected.identities.isdisjoint(identities):
            raise _refused(path, "it is another name of a protected directory: no rule and no approval opens it")

    def judge_alias(self, path: str, real: str) -> None:
        """Refuse to write a file that always asks by another name, which rules and people would not recognize."""
        if real != path and always_ask(real) and not always_ask(path):
            raise PolicyError(
                f"{path!r} is a link to {real!r}, which is asked about by that name; use the real path",
                reason="symlink",
                path=path,
            )

    def judge_content(self, path: str, contents: Iterable[bytes | None]) -> None:
        """Refuse a pyproject.toml where one of `contents` (before, after; None = absent) holds our configuration."""
        if is_pyproject(path) and any(carries_configuration(data) for data in contents if data is not None):
            raise _refused(path, "it carries [tool.devtools-lsp], the daemon's own configuration; a person edits it")

    def judge_layout(self, path: str, directory: str, present: Collection[str]) -> None:
        """Refuse a write that happens in, or would make, a directory that git takes for a repository.

        `present` are the names of interest (`names.REPOSITORY_MEMBERS`) that `directory` would hold afterwards.
        """
        if is_repository_layout(present):
            raise _refused(
                path, f"{directory or '.'!r} would be a git repository (HEAD, objects, refs), which can run commands"
            )

    def readable(self, path: str) -> bool:
        """Whether reading is allowed, by name."""
        # Not remembered: searches ask about every file of a tree, which would only push out what is asked again.
        return self._judge_reading(path) is None

    def always_ask(self, path: str) -> bool:
        """Whether a change is asked about whatever was remembered; see `names.always_ask`."""
        return always_ask(path)


def carries_configuration(data: bytes) -> bool:
    """Whether the bytes of a pyproject.toml hold `[tool.devtools-lsp]`; what does not parse is judged by its text."""
    if b"devtools-lsp" not in data and b"\\" not in data and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    try:
        parsed: dict[str, Any] = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return b"devtools-lsp" in data or b"\0" in data
    tool = parsed.get("tool")
    return isinstance(tool, dict) and "devtools-lsp" in cast("dict[str, Any]", tool)


def _patterns(key: str, texts: Sequence[str]) -> tuple[PathPattern, ...]:
    try:
        return tuple(PathPattern.parse(text) for text in texts)
    except BadArgumentError as error:
        raise InvalidConfigError(f"policy.{key}: {error.message}") from error


def _below_root(path: str, root: str | None) -> str:
    """An own path, absolute or not, as a root-relative one; `""` when it is not below the root."""
    if not path.startswith("/"):
        return path
    prefix = (root or "").rstrip("/") + "/"
    return path[len(prefix) :] if root is not None and path.startswith(prefix) else ""


def _below(path: str, places: Collection[str]) -> bool:
    """Whether a path is one of the places or below one."""
    while path:
        if path in places:
            return True
        path = path.rpartition("/")[0]
    return False


def _refused(path: str, why: str) -> PolicyError:
    return PolicyError(f"{path!r} is refused: {why}", reason="protected", path=path)
