"""A list of mutations reduced to what it does to each path, and checked against what each mutation expects.

Pure: looks at the tree through one function that the caller gives. Transactions, the in-memory file system and the
conflict check before one-by-one writing all use it, so that "before the first byte every target is compared"
(SPEC 3.8.4) means the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from devtools_lsp.core.workspace import sha256
from devtools_lsp.errors import BadArgumentError, ConflictError, StepFailedError
from devtools_lsp.ports import UNCHECKED, Mutation

Look = Callable[[str], str | None]
"""The SHA-256 of the file at a path, None for an absent one; raises for what is neither."""


class Content(msgspec.Struct, frozen=True):
    """What a path holds after the list: `data`, or unchanged the bytes that `origin` held before it.

    `origin` is also the path (before the list) of the file whose mode, owner and attributes go on; None for a file
    that is new altogether. `mode` are the permission bits asked for such a one, `restores` the before-image in the
    journal whose metadata it gets.
    """

    origin: str | None
    data: bytes | None = None
    mode: int | None = None
    sha256: str = ""
    restores: str = ""


class Effect(msgspec.Struct, frozen=True):
    """The net change of one path: `before` is the SHA-256 it had, `after` what it will hold; None = absent."""

    path: str
    before: str | None
    after: Content | None


class NetPlan(msgspec.Struct, frozen=True):
    """Directories to make, parents first, and one effect for every path that ends up different, in path order.

    `emptied` are directories with their inodes that go if they are empty then, innermost first.
    """

    directories: tuple[str, ...]
    effects: tuple[Effect, ...]
    emptied: tuple[tuple[str, int], ...] = ()


def net_plan(mutations: Sequence[Mutation], look: Look) -> NetPlan:
    """Reduce a list of mutations.

    Raises ConflictError naming every path where an `expect` does not hold (in the state that the earlier mutations
    of the list leave), and StepFailedError for deleting or moving what is not there.
    """
    before: dict[str, str | None] = {}
    state: dict[str, Content | None] = {}
    directories: dict[str, None] = {}
    emptied: dict[str, int] = {}
    conflicts: dict[str, str] = {}
    absent: list[Mutation] = []

    def current(path: str) -> Content | None:
        if path not in state:
            found = look(path)
            before[path] = found
            state[path] = Content(origin=path, sha256=found) if found is not None else None
        return state[path]

    for mutation in mutations:
        path = mutation.path
        if mutation.kind == "mkdir":
            directories[path] = None
            continue
        if mutation.kind == "rmdir":
            if mutation.expect is None or not mutation.expect.isdecimal():
                raise BadArgumentError(f"the removal of {path!r} does not say which directory it is", path=path)
            emptied[path] = int(mutation.expect)
            continue
        subject = path
        if mutation.kind == "rename":
            if mutation.source is None:
                raise BadArgumentError(f"a rename to {path!r} names no source", path=path)
            subject = mutation.source
        found = current(subject)
        problem = _disagreement(mutation.expect, found)
        if problem is not None:
            conflicts.setdefault(subject, problem)
            continue
        if mutation.kind == "write":
            origin = found.origin if found is not None else None
            state[path] = Content(origin, mutation.data, mutation.mode, sha256(mutation.data), mutation.restores)
            continue
        if found is None:
            absent.append(mutation)
            continue
        if mutation.kind == "rename" and subject != path:
            if current(path) is not None:
                conflicts.setdefault(path, "something is there now")
                continue
            state[path] = found
        if mutation.kind == "delete" or subject != path:
            state[subject] = None
    if conflicts:
        raise conflict(conflicts)
    if absent:
        subject = absent[0].source or absent[0].path
        raise StepFailedError(f"cannot {absent[0].kind} {subject!r}: it is not there", reason="notFound", path=subject)
    effects: list[Effect] = []
    for path in sorted(state):
        effect = Effect(path, before[path], state[path])
        if _changes(effect):
            effects.append(effect)
    innermost_first = sorted(emptied.items(), key=lambda item: (-item[0].count("/"), item[0]))
    return NetPlan(tuple(directories), tuple(effects), tuple(innermost_first))


def conflict(problems: dict[str, str]) -> ConflictError:
    """The error for paths (each with what is the matter) that are not as they were acquired or approved."""
    listed = "; ".join(f"{path!r}: {problem}" for path, problem in sorted(problems.items()))
    return ConflictError(
        f"changed by someone else since it was acquired, so nothing was written ({listed}); read it again and redo the "
        "change",
        paths=sorted(problems),
        path=min(problems) if len(problems) == 1 else None,
    )


def _disagreement(expect: str | None, found: Content | None) -> str | None:
    if expect == UNCHECKED:
        return None
    if expect is None:
        return None if found is None else "something is there now"
    if found is None:
        return "it is gone"
    return None if found.sha256 == expect else "its content is another"


def _changes(effect: Effect) -> bool:
    if effect.after is None or effect.before is None:
        return (effect.after is None) != (effect.before is None)
    moved = effect.after.data is None and effect.after.origin != effect.path
    return moved or effect.after.sha256 != effect.before
