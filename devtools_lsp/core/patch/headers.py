"""What the header lines of a diff say about one file: its names before and after, through quotes and prefixes.

Names come from `rename from` and `rename to`, else from `---` and `+++`, else from the `diff --git` line, whose
two plain names can be told apart only when they are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from devtools_lsp.core.differing import shown
from devtools_lsp.core.patch.malformed import authored_path, malformed
from devtools_lsp.core.quoting import unquote_name

_PREFIX_PAIRS = {("a", "b"), ("i", "w"), ("c", "i"), ("c", "w"), ("o", "w"), ("1", "2")}
"""`a/` and `b/`, git's mnemonic prefixes, and those of `git diff --no-index`."""

_NULL = "/dev/null"


@dataclass(slots=True)
class HunkFrame:
    """The frame of one hunk: its header's numbers (None where it has none) and its body as in the patch."""

    line: int
    start: int | None
    anchors: tuple[str, ...]
    body: list[str] = field(default_factory=list[str])
    body_line: int = 0


@dataclass(slots=True)
class Section:
    """All that a patch says about one file, before names and kinds are judged."""

    line: int
    git_names: str | None = None
    old_name: str | None = None
    new_name: str | None = None
    rename_from: str | None = None
    rename_to: str | None = None
    added: bool = False
    deleted: bool = False
    refusal: tuple[int, str] | None = None
    hunks: list[HunkFrame] = field(default_factory=list[HunkFrame])

    def refuse(self, line: int, what: str) -> None:
        """Note the first thing for which the file, and so the patch, is refused."""
        if self.refusal is None:
            self.refusal = (line, what)


def names_of(section: Section) -> tuple[str | None, str | None]:
    """(path before, path after); None stands for /dev/null."""
    if section.rename_from is not None or section.rename_to is not None:
        if section.rename_from is None or section.rename_to is None:
            raise malformed("'rename from' and 'rename to' must stand together", section.line)
        return _bare(section.rename_from, section.line), _bare(section.rename_to, section.line)
    if section.old_name is not None and section.new_name is not None:
        old, new = _header_name(section.old_name, section.line), _header_name(section.new_name, section.line)
        if (section.added and old != _NULL) or (section.deleted and new != _NULL):
            raise malformed("a new or deleted file has /dev/null as its other name", section.line)
        _require_agreement(old, new, section)
        return _unprefixed(old, new, section)
    if section.git_names is None:
        raise malformed("the file has no name ('--- a/path' and '+++ b/path')", section.line)
    old, new = _split_git_names(section.git_names, section.line)
    old, new = _without_prefixes(old, new)
    if section.added:
        return None, authored_path(new, section.line)
    if section.deleted:
        return authored_path(old, section.line), None
    if old != new:
        raise malformed(
            f"{shown(old)} and {shown(new)} differ: say 'rename from' and 'rename to' below the 'diff --git' line",
            section.line,
        )
    return authored_path(old, section.line), authored_path(new, section.line)


def _bare(raw: str, line: int) -> str:
    """A name as `rename` lines have it: without prefix, perhaps quoted."""
    return authored_path(_unquoted(raw, line)[0] if raw.startswith('"') else raw, line)


def _header_name(raw: str, line: int) -> str:
    """A name as `---` and `+++` lines have it: perhaps quoted, perhaps with a time stamp behind a tab."""
    if raw.startswith('"'):
        return _unquoted(raw, line)[0]
    name, tab, _ = raw.partition("\t")
    name = name if tab else name.rstrip()
    if not name:
        raise malformed("a file name is missing", line)
    return name


def _unquoted(raw: str, line: int) -> tuple[str, int]:
    try:
        return unquote_name(raw)
    except ValueError as error:
        raise malformed(f"{error}: {shown(raw)}", line) from error


def _split_git_names(names: str, line: int) -> tuple[str, str]:
    """The two names of a `diff --git` line. Plain ones must be equal but for their prefixes to be told apart."""
    if names.startswith('"'):
        old, taken = _unquoted(names, line)
        rest = names[taken:].lstrip(" ")
        return old, _unquoted(rest, line)[0] if rest.startswith('"') else rest.rstrip("\t")
    if names.endswith('"') and ' "' in names:
        place = names.index(' "')
        return names[:place], _unquoted(names[place + 1 :], line)[0]
    # Names that are equal but for prefixes of one length have the blank between them in the middle.
    middle = len(names) // 2
    old, new = names[:middle], names[middle + 1 :]
    if names[middle : middle + 1] == " " and len(set(_without_prefixes(old, new))) == 1:
        return old, new
    old, blank, new = names.partition(" ")
    if not blank or " " in new:
        raise malformed("the names of the 'diff --git' line cannot be told apart; add '--- ' and '+++ ' lines", line)
    return old, new


def _without_prefixes(old: str, new: str) -> tuple[str, str]:
    """Both names without `a/` and `b/` (or another of git's pairs) where both have them, else as they are."""
    if (old[:1], new[:1]) in _PREFIX_PAIRS and old[1:2] == new[1:2] == "/":
        return old[2:], new[2:]
    return old, new


def _require_agreement(old: str, new: str, section: Section) -> None:
    """Refuse a file whose `diff --git` line names other files than its `---` and `+++` lines."""
    if section.git_names is None:
        return
    named = _split_git_names(section.git_names, section.line)
    for name, told, bare in zip((old, new), named, _without_prefixes(*named), strict=True):
        if name not in (_NULL, told, bare):
            raise malformed(
                f"the 'diff --git' line names {shown(told)}, the lines below it {shown(name)}", section.line
            )


def _unprefixed(old: str, new: str, section: Section) -> tuple[str | None, str | None]:
    if old == new == _NULL:
        raise malformed("both names are /dev/null", section.line)
    if old == _NULL:
        return None, authored_path(_one_sided(new, 1, section), section.line)
    if new == _NULL:
        return authored_path(_one_sided(old, 0, section), section.line), None
    bare_old, bare_new = _without_prefixes(old, new)
    if bare_old == bare_new:
        return authored_path(bare_old, section.line), authored_path(bare_new, section.line)
    if section.git_names is not None and _split_git_names(section.git_names, section.line) == (old, new):
        return authored_path(bare_old, section.line), authored_path(bare_new, section.line)
    raise malformed(
        f"{shown('--- ' + old)} and {shown('+++ ' + new)} name two files: use one name, or move the file with a "
        "'diff --git' header, 'rename from' and 'rename to'",
        section.line,
    )


def _one_sided(name: str, side: int, section: Section) -> str:
    """The name of a new (side 1) or deleted (side 0) file, whose other name cannot tell whether it has a prefix."""
    if section.git_names is not None:
        names = _split_git_names(section.git_names, section.line)
        if names[side] == name:
            return _without_prefixes(*names)[side]
    return name.removeprefix(("a/", "b/")[side])
