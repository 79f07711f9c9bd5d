"""Whether a set of new names would turn a directory into a git repository, or lands in one.

The walk over the affected directories; what counts as a repository is `names.is_repository_layout`, and what
stands in the tree already is asked of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from devtools_lsp.fs.names import REPOSITORY_MEMBERS, fold
from devtools_lsp.fs.policy import PathPolicy

_FOLDED_MEMBERS = frozenset(fold(name) for name in REPOSITORY_MEMBERS)


def created_below(paths: Iterable[str]) -> dict[str, set[str]]:
    """For paths that come into being: each directory with the names of interest that appear directly in it."""
    created: dict[str, set[str]] = {}
    for path in paths:
        directory, _, name = path.rpartition("/")
        while name:
            if fold(name) in _FOLDED_MEMBERS:
                created.setdefault(directory, set()).add(name)
            directory, _, name = directory.rpartition("/")
    return created


def ancestors(path: str) -> list[str]:
    """Every directory above a path, innermost first, `""` for the root last."""
    found: list[str] = []
    while path:
        path = path.rpartition("/")[0]
        found.append(path)
    return found


def judge_layouts(
    policy: PathPolicy,
    paths: Sequence[str],
    created: Mapping[str, set[str]],
    present: Callable[[str, str], bool],
) -> None:
    """Judge every directory above the `paths` that will be written; `present(directory, name)` asks the tree."""
    judged: set[str] = set()
    for path in paths:
        for directory in ancestors(path):
            if directory in judged:
                break
            judged.add(directory)
            coming = created.get(directory)
            # Without a HEAD, present or coming, nothing else matters: one look a directory.
            if not (coming and "head" in map(fold, coming)) and not present(directory, "HEAD"):
                continue
            standing = {name for name in REPOSITORY_MEMBERS if present(directory, name)}
            policy.judge_layout(path, directory, standing | (coming or set()))
