"""Carrying out one transaction: staged, recorded, swapped into place, and taken back when anything fails.

Owns the order of the disk's changes (directories, before-images, staging, intent, placing, sync, marker, emptied
directories) and the live rollback; what a crash leaves is `fs.recovery`'s. It is crash-atomic, not reader-atomic:
somebody who reads while it runs can see some files new and some old for a moment.

A list whose net effect is one file needs no durable record, since one rename is atomic by itself: its record is
written without fsync, for undo only. That keeps a single edit at the price of a bare atomic write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec

from devtools_lsp.errors import DevToolsError
from devtools_lsp.fs.effects import Effect, conflict
from devtools_lsp.fs.faults import point
from devtools_lsp.fs.journal import Journal
from devtools_lsp.fs.journal_names import Part, State, new_id, part_name, state_name, stray_name
from devtools_lsp.fs.parents import OpenParents
from devtools_lsp.fs.partly import PartlyLandedError, partly_landed
from devtools_lsp.fs.records import FORMAT, Entry, Record, Strays
from devtools_lsp.fs.refusals import refusal
from devtools_lsp.fs.revert import Reverter
from devtools_lsp.fs.stager import Stager
from devtools_lsp.fs.staging import (
    DisplacedError,
    Print,
    StuckError,
    inherits,
    inode_at,
    place_new,
    place_over,
    remove_empty,
    take_away,
)
from devtools_lsp.paths import parent_of

_IN_TREE: tuple[Part, ...] = ("new", "gone", "back")
"""What of a step that is staged in the tree may be there."""
_UNFINISHED: tuple[State, ...] = ("writing", "intent", "strays")


class _Step(msgspec.Struct):
    """One effect on its way.

    `in_tree`: staged beside the target · `placed`: its new state is on the disk, unless it was taken back since.
    """

    effect: Effect
    entry: Entry
    before: Print | None
    in_tree: bool = False
    placed: bool = False


class Carrier:
    """Carries out one transaction. `prints` are the fingerprints of the files that were looked at, by path."""

    def __init__(self, parents: OpenParents, journal: Journal, prints: Mapping[str, Print], stager: Stager) -> None:
        self._parents = parents
        self._journal = journal
        self._prints = prints
        self._stager = stager
        self._id = new_id()
        self._made: dict[str, int] = {}
        self._placed: list[_Step] = []
        self._strays: Strays | None = None
        self._failing = ""
        self._doing = "write"

    def carry_out(
        self, plan: str, effects: Sequence[Effect], directories: Sequence[str], emptied: Sequence[tuple[str, int]] = ()
    ) -> None:
        """Land everything. Raises the taxonomy's errors with nothing changed, or PartlyLandedError.

        `emptied` are directories, innermost first, that are removed in the end where they are empty.
        """
        steps = [self._begin(number, effect) for number, effect in enumerate(effects)]
        light = len(steps) <= 1
        prepared: Record | None = None
        try:
            self._choose_places(steps, light=light)
            self._note(steps, directories, emptied)
            self._make(directories)
            for step in steps:
                self._keep_before(step)
            for step in steps:
                self._stage(step)
            about = steps[0].effect.path if steps else directories[0] if directories else plan
            self._at(about, "record", "journal:intent")
            record = Record(
                FORMAT,
                self._id,
                plan,
                time.time(),
                light,
                tuple([step.entry for step in steps]),
                tuple(self._made),
                tuple(self._made.values()),
            )
            prepared = record
            self._journal.prepare(record)
            point("journal:prepared")
            if self._strays is not None and not (self._strays.temporaries or self._strays.emptied):
                # The record knows of the directories from here on.
                self._forget_strays()
            ordered = steps
            if not light:
                # Staging took a while: walk again, so that a directory moved away meanwhile is not written to.
                self._parents.forget()
                # New names first, so that what moves can be seen somewhere at every moment.
                ordered = sorted(steps, key=lambda step: step.effect.after is None)
            for step in ordered:
                self._place(step)
            self._sync(steps, directories)
            self._at(about, "confirm in the journal the change of", "journal:commit")
            self._journal.commit(record)
        except BaseException as error:
            self._roll_back(steps, error, prepared=prepared)
            if isinstance(error, OSError):
                raise refusal(error, self._doing, self._failing) from error
            raise
        point("journal:committed")
        if self._strays is not None:
            with contextlib.suppress(OSError):
                # It is committed, whatever becomes of the sweeping; the next start sweeps again.
                self._remove_emptied(emptied)
                self._forget_strays()

    def _at(self, path: str, doing: str, fault_point: str = "") -> None:
        """Begin with the next path: for the message of a failure, and because descriptors may be closed now."""
        self._failing, self._doing = path, doing
        if self._parents.crowded:
            self._parents.trim()
        if fault_point:
            point(fault_point)

    # -- before the intent ---------------------------------------------------------------------------------------

    def _begin(self, number: int, effect: Effect) -> _Step:
        before = self._prints[effect.path] if effect.before is not None else None
        after = effect.after
        moved_from = after.origin if after is not None and after.origin != effect.path else None
        entry = Entry(number, effect.path, before, None, moved_from)
        return _Step(effect, entry, before)

    def _keep_before(self, step: _Step) -> None:
        if step.before is None or step.entry.swapped:
            return
        path = step.effect.path
        self._at(path, "keep the old content of", "journal:before")
        self._stager.keep(path, step.before, part_name(self._id, "old", step.entry.n), self._journal.descriptor)

    def _choose_places(self, steps: Sequence[_Step], *, light: bool) -> None:
        """Stage in the journal, except where a rename from there fails or would lose what the directory passes on.

        A light one takes the shortest way: staged under the name of its before-image, which the swap then puts there.
        """
        elsewhere: dict[str, bool] = {}
        for step in steps:
            path = step.effect.path
            self._at(path, "write")
            trail = self._parents.of(path)
            directory = parent_of(path)
            if directory not in elsewhere:
                elsewhere[directory] = self._journal.mounts.of(directory, trail.descriptor) != self._journal.mount
            new = step.effect.after is not None and step.effect.after.origin is None
            step.in_tree = elsewhere[directory] or (new and inherits(trail.descriptor))
            if step.in_tree:
                step.entry = msgspec.structs.replace(step.entry, stage=directory)
            elif light and step.before is not None and self._journal.exchanges:
                step.entry = msgspec.structs.replace(step.entry, swapped=True)

    def _note(self, steps: Sequence[_Step], directories: Sequence[str], emptied: Sequence[tuple[str, int]]) -> None:
        """Write down what would be left in the tree if the process died before the intent, or after the commit."""
        temporaries = [
            (step.entry.stage, stray_name(self._id, part, step.entry.n))
            for step in steps
            if step.entry.stage is not None
            for part in _IN_TREE
        ]
        if not (temporaries or directories or emptied):
            return
        self._strays = Strays(tuple(temporaries), tuple(reversed(directories)), tuple(emptied))
        self._journal.note_strays(self._id, self._strays)

    def _staging(self, step: _Step, part: Part = "new") -> tuple[str, int]:
        if step.in_tree:
            return stray_name(self._id, part, step.entry.n), self._parents.of(step.effect.path).descriptor
        return part_name(self._id, "old" if step.entry.swapped else part, step.entry.n), self._journal.descriptor

    def _stage(self, step: _Step) -> None:
        after = step.effect.after
        if after is None:
            return
        self._at(step.effect.path, "write", "journal:stage")
        staged, directory = self._staging(step)
        step.entry = msgspec.structs.replace(step.entry, after=self._stager.stage(after, staged, directory))

    def _forget_strays(self) -> None:
        self._journal.discard(state_name(self._id, "strays"))
        self._strays = None

    # -- after the intent ----------------------------------------------------------------------------------------

    def _make(self, directories: Sequence[str]) -> None:
        for directory in directories:
            self._at(directory, "make the directory", "journal:mkdir")
            trail = self._parents.of(directory)
            if trail.missing:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
            name = directory.rpartition("/")[2]
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=trail.descriptor)
                self._made[directory] = 0
                self._made[directory] = inode_at(name, trail.descriptor) or 0
            self._parents.forget()

    def _remove_emptied(self, emptied: Sequence[tuple[str, int]]) -> None:
        """Remove directories that are empty by now; what somebody uses, or made anew, stays."""
        self._parents.forget()
        for directory, ino in emptied:
            with contextlib.suppress(OSError, DevToolsError):
                trail = self._parents.of(directory)
                if not trail.missing:
                    remove_empty(directory.rpartition("/")[2], trail.descriptor, ino)
            self._parents.forget()

    def _place(self, step: _Step) -> None:
        path = step.effect.path
        self._at(path, "delete" if step.effect.after is None else "write", "journal:place")
        trail = self._parents.of(path)
        if trail.missing:
            raise conflict({path: "its directory is gone"})
        name = path.rpartition("/")[2]
        self._placed.append(step)
        try:
            if step.before is None:
                staged, directory = self._staging(step)
                place_new(staged, directory, name, trail.descriptor)
            elif step.entry.after is None:
                aside, directory = self._staging(step, "gone")
                take_away(name, trail.descriptor, aside, directory, step.before)
                step.placed = True
                if not step.entry.swapped:
                    os.unlink(aside, dir_fd=directory)
            else:
                staged, directory = self._staging(step)
                if place_over(staged, directory, name, trail.descriptor, step.before, step.entry.after.ino):
                    step.placed = True
                    if not step.entry.swapped:
                        os.unlink(staged, dir_fd=directory)
        except StuckError:
            step.placed = True
            raise
        except (DisplacedError, FileExistsError, FileNotFoundError) as error:
            # Nothing of ours is there, so there is nothing to take back: what a person did stays.
            self._placed.pop()
            problem = "something is there now" if isinstance(error, FileExistsError) else "its content is another"
            raise conflict({path: problem}) from error
        step.placed = True
        point("journal:placed")

    def _sync(self, steps: Sequence[_Step], directories: Sequence[str]) -> None:
        point("journal:sync")
        touched: set[str] = set()
        for step in steps:
            touched.add(parent_of(step.effect.path))
        for path in directories:
            touched.add(parent_of(path))
        for directory in sorted(touched):
            self._at(directory, "write")
            self._parents.sync(directory)

    # -- taking back ---------------------------------------------------------------------------------------------

    def _roll_back(self, steps: Sequence[_Step], error: BaseException, *, prepared: Record | None) -> None:
        """Take everything back, so that the caller raises the cause; raises PartlyLandedError when that failed too."""
        stuck: list[_Step] = []
        reverter = Reverter(self._journal.descriptor, self._id, self._parents.of)
        self._parents.forget()
        for step in reversed(self._placed):
            self._parents.trim()
            try:
                reverter.revert(step.entry)
            except (OSError, DevToolsError):
                stuck.append(step)
        for directory in reversed(list(self._made)):
            with contextlib.suppress(OSError, DevToolsError):
                # A directory that somebody used meanwhile stays.
                name = directory.rpartition("/")[2]
                remove_empty(name, self._parents.of(directory).descriptor, self._made[directory])
            self._parents.forget()
        if stuck:
            # The record stays prepared: the next start takes the rest back.
            raise self._partly_landed(steps, stuck, reverter, error, prepared) from error
        for directory in sorted({parent_of(step.effect.path) for step in self._placed}):
            with contextlib.suppress(OSError, DevToolsError):
                # If it is not durable yet, neither is the removal of the record below.
                self._parents.sync(directory)
        self._clean(steps, prepared=prepared)

    def _partly_landed(
        self,
        steps: Sequence[_Step],
        stuck: Sequence[_Step],
        reverter: Reverter,
        error: BaseException,
        record: Record | None,
    ) -> PartlyLandedError:
        # Where the disk does not even say what it holds, what we did last is the best answer.
        found = {step.effect.path: reverter.landed(step.entry) for step in stuck}
        landed = frozenset(
            step.effect.path
            for step in stuck
            if found[step.effect.path] or (found[step.effect.path] is None and step.placed)
        )
        cause = refusal(error, self._doing, self._failing) if isinstance(error, OSError) else error
        return partly_landed(self._journal, record, str(cause), landed, of=len(steps), failing=self._failing)

    def _clean(self, steps: Sequence[_Step], *, prepared: Record | None) -> None:
        """Remove our files, the record first; what cannot be removed is litter that the next start sweeps."""
        if prepared is not None:
            with contextlib.suppress(OSError):
                self._journal.withdraw(prepared)
        for where, name in self._strays.temporaries if self._strays is not None else ():
            with contextlib.suppress(OSError, DevToolsError):
                directory = self._parents.directory(where)
                if directory is not None:
                    os.unlink(name, dir_fd=directory)
        for step in steps:
            for part in get_args(Part):
                self._sweep(part_name(self._id, part, step.entry.n), self._journal.descriptor)
        for state in _UNFINISHED:
            self._sweep(state_name(self._id, state), self._journal.descriptor)

    @staticmethod
    def _sweep(name: str, directory: int) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)
