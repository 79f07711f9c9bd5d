"""Changes as short lines in git's manner, and many names as a few, for people and models to skim."""

from __future__ import annotations

from collections.abc import Sequence

from devtools_lsp.core.quoting import quote_name
from devtools_lsp.core.result import Change

_LETTERS = {"modified": "M", "added": "A", "deleted": "D", "renamed": "R"}


def change_line(change: Change) -> str:
    """One change, as in `M  src/a.py +3 -1` or `R  a.py -> b.py`; unknown counts are left out (I12)."""
    name = quote_name(change.path)
    if change.from_ is not None:
        name = f"{quote_name(change.from_)} -> {name}"
    counts = ""
    if change.added is not None and change.removed is not None:
        counts = f" +{change.added} -{change.removed}"
    return f"{_LETTERS[change.kind]}  {name}{counts}"


def summary_lines(changes: Sequence[Change]) -> list[str]:
    """One line for each change, in the order given."""
    return [change_line(change) for change in changes]


def first_names(names: Sequence[str], shown: int = 5) -> str:
    """The first of many names in one line, with a mark where there are more."""
    return ", ".join(names[:shown]) + (" …" if len(names) > shown else "")
