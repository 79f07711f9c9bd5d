"""Where a search starts: the path or the literal part of a pattern that was named, made real and kept inside the root.

Reads names, links and ignore rules; never contents. What it hands out is real and root-relative, so that a link
which stays inside is its target from here on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools_lsp.agent.search_rules import REPOSITORY_NAMES, IgnoreRules, nfc
from devtools_lsp.errors import BadArgumentError, PolicyError
from devtools_lsp.paths import relative_path

_LOOKS = 16

Deny = Callable[[str], bool]
"""Whether policy keeps a root-relative path from being read."""

SEARCH_STEP = "search"
"""What the gate and every error call a glob or a grep."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a search starts. `anchor` is what `path` named, `base` that and the pattern's literal directories."""

    root: str
    anchor: str
    base: str
    honour_ignores: bool = True
    parent_rules: bool = True
    missing: str = ""

    def below_anchor(self, name: str) -> str:
        """A root-relative name seen from `path`."""
        return name.removeprefix(self.anchor + "/") if self.anchor else name


def relative_pattern(root: str, pattern: str) -> str:
    """A glob pattern as seen from the root; raises PolicyError for an absolute one that leads elsewhere."""
    if not pattern.startswith("/"):
        return pattern
    for top in (root, os.path.realpath(root)):
        if pattern.startswith(top.rstrip("/") + "/"):
            return pattern[len(top.rstrip("/")) + 1 :]
    raise PolicyError("the pattern leads out of the workspace root", reason="outsideRoot", step=SEARCH_STEP)


def locate(root: str, path: str | None, prefix: Sequence[str], deny: Deny | None) -> Place:
    """Where to search for a `path` argument and the literal directories that a pattern starts with.

    Raises PolicyError for what lies outside, is repository data or is denied, BadArgumentError for a path that does
    not exist. A prefix that does not exist is no error: it makes `missing`.
    """
    real_root = os.path.realpath(root)
    try:
        asked = relative_path(path, root) if path else ""
    except PolicyError as error:
        if path is None or root == real_root:
            raise error.at(step=SEARCH_STEP, path=path) from None
        asked = relative_path(path, real_root)
    anchor = _resolve(real_root, asked, deny)
    if anchor is None:
        raise BadArgumentError(
            f"path {path!r} does not exist; give a file or directory relative to the workspace root",
            step=SEARCH_STEP,
            path=asked,
            reason="notFound",
        )
    base = anchor
    if prefix:
        wanted = "/".join((*([anchor] if anchor else []), *prefix))
        resolved = _resolve(real_root, wanted, deny)
        if resolved is None:
            return Place(real_root, anchor, anchor, missing=wanted)
        base = resolved
    if not base:
        rules = IgnoreRules(Path(real_root))
        return Place(real_root, anchor, base, parent_rules=rules.in_repository)
    rules = IgnoreRules(Path(real_root))
    directory = Path(real_root, base).is_dir()
    ignored = rules.ignores(base, directory=directory) or (directory and rules.ignores_everything_in(base))
    return Place(real_root, anchor, base, honour_ignores=not ignored, parent_rules=not rules.foreign_rules_above())


def _resolve(real_root: str, path: str, deny: Deny | None) -> str | None:
    """The real root-relative path of something that exists, links resolved; None when it does not."""
    found = _on_disk(real_root, path)
    if found is None:
        return None
    real = _real(os.path.join(real_root, found))
    if real != real_root and not real.startswith(real_root.rstrip("/") + "/"):
        raise PolicyError(
            "the path is a link that leaves the workspace root", step=SEARCH_STEP, path=path, reason="symlink"
        )
    resolved = os.path.relpath(real, real_root) if real != real_root else ""
    names = resolved.split("/")
    if not REPOSITORY_NAMES.isdisjoint(names):
        raise PolicyError(
            f"{resolved!r} is repository data and is never searched; use git itself",
            step=SEARCH_STEP,
            path=path,
            reason="protected",
        )
    if deny is not None and resolved and deny(resolved):
        raise PolicyError(f"policy denies reading {resolved!r}", step=SEARCH_STEP, path=path, reason="protected")
    return resolved


def _real(path: str) -> str:
    """The path with its links resolved; raises PolicyError when it does not hold still long enough to be read."""
    for _ in range(_LOOKS):
        # A link that became a directory between two looks at it is a plain error to Python.
        with contextlib.suppress(OSError):
            return os.path.realpath(path)
    raise PolicyError("the path keeps turning into a symbolic link", step=SEARCH_STEP, reason="symlink")


def _on_disk(real_root: str, path: str) -> str | None:
    """The path as the disk spells it: a name that differs only by Unicode composition is the same name."""
    if not path or os.path.lexists(os.path.join(real_root, path)):
        return path
    current = ""
    for name in path.split("/"):
        here = os.path.join(real_root, current)
        if not os.path.lexists(os.path.join(here, name)):
            try:
                names = [entry.name for entry in Path(here).iterdir()]
            except OSError:
                return None
            same = next((entry for entry in names if nfc(entry) == nfc(name)), None)
            if same is None:
                return None
            name = same
        current = f"{current}/{name}" if current else name
    return current
