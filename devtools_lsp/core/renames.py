"""In which order files are moved so that none overwrites another (SPEC 3.7). Plans only; steps move."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from devtools_lsp.errors import StepFailedError
from devtools_lsp.paths import MAX_COMPONENT_BYTES

TEMPORARY_ATTEMPTS = 8
"""How many sibling names are tried for the file that steps aside in a cycle."""


@dataclass(frozen=True, slots=True)
class RenameMove:
    """Move `source` to `target`. `temporary`: the target is a name made up to break a cycle, and is left later."""

    source: str
    target: str
    temporary: bool = False


def plan_renames(moves: Mapping[str, str], *, taken: Collection[str]) -> list[RenameMove]:
    """The moves in an order in which no target is a file still to move; ties go by the source's name.

    `moves` maps sources to targets, all meant at once (it may be a permutation); a file that stays is left out.
    `taken` are the names that are in use or will be, sources included. In a cycle the file with the smallest name
    steps aside, to a sibling of its destination. Raises StepFailedError (`exists`) when two files would get one
    name, a target is taken by a file that does not move, or no temporary name is free.
    """
    pending = {source: target for source, target in moves.items() if source != target}
    _refuse_collisions(moves, pending, taken)
    names = set(taken) | set(moves) | set(moves.values())
    waiting_for = {target: source for source, target in pending.items() if target in pending}
    ready = [source for source, target in pending.items() if target not in pending]
    heapify(ready)
    plan: list[RenameMove] = []
    for first in sorted(pending):
        _follow(ready, pending, waiting_for, plan)
        if first not in pending:
            continue
        # Nothing is ready and this file has not moved, so it and all that are left stand in cycles.
        temporary = _unused_sibling(pending[first], names)
        names.add(temporary)
        plan.append(RenameMove(first, temporary, temporary=True))
        target = pending.pop(first)
        ready.append(waiting_for.pop(first))
        _follow(ready, pending, waiting_for, plan)
        plan.append(RenameMove(temporary, target))
    return plan


def _follow(ready: list[str], pending: dict[str, str], waiting_for: dict[str, str], plan: list[RenameMove]) -> None:
    """Move all that can move, each time the smallest name, until only cycles are left."""
    while ready:
        source = heappop(ready)
        plan.append(RenameMove(source, pending.pop(source)))
        waiter = waiting_for.pop(source, None)
        if waiter is not None and waiter in pending:
            heappush(ready, waiter)


def _refuse_collisions(moves: Mapping[str, str], pending: Mapping[str, str], taken: Collection[str]) -> None:
    owners: dict[str, str] = {}
    for source, target in sorted(moves.items()):
        if target in owners:
            raise StepFailedError(
                f"{owners[target]} and {source} would both become {target}", reason="exists", path=target
            )
        owners[target] = source
    occupied = set(taken)
    for source, target in sorted(pending.items()):
        if target in occupied and target not in pending:
            raise StepFailedError(
                f"{source} cannot become {target}: a file is there already", reason="exists", path=target
            )


def _unused_sibling(destination: str, names: Collection[str]) -> str:
    """A free name in the destination's directory that keeps its extension, so that rules about types still hold."""
    directory, slash, name = destination.rpartition("/")
    stem, dot, extension = name.rpartition(".")
    if not stem:
        stem, dot, extension = name, "", ""
    for attempt in range(1, TEMPORARY_ATTEMPTS + 1):
        ending = f".moving-{attempt}{dot}{extension}"
        room = max(1, MAX_COMPONENT_BYTES - len(ending.encode("utf-8", "surrogatepass")))
        short = stem.encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore")
        candidate = f"{directory}{slash}{short}{ending}"
        if candidate not in names:
            return candidate
    raise StepFailedError(
        f"files exchange their names, and none of {TEMPORARY_ATTEMPTS} temporary names beside {destination} is free: "
        f"remove the files named like {stem}.moving-1{dot}{extension}",
        reason="exists",
        path=destination,
    )
