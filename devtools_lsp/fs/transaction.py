"""All mutations of a list or none: staged, recorded, swapped into place, and taken back when anything fails.

Owns the order of a commit (before-images, staging, intent, directories, placing, sync, marker) and the live
rollback. What a crash leaves is `fs.recovery`'s. It is crash-atomic, not reader-atomic: somebody who reads while
it runs can see some files new and some old for a moment. Blocks; a caller runs one at a time.

A list whose net effect is one file needs no durable record, since one rename is atomic by itself: its record is
written without fsync, for undo only. That keeps a single edit at the price of a bare atomic write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from devtools_lsp.errors import DevToolsError, PolicyError, StepFailedError
from devtools_lsp.fs.effects import Effect, conflict, net_plan
from devtools_lsp.fs.faults import point
from devtools_lsp.fs.journal import Entry, Image, Journal, Record, stray_name
from devtools_lsp.fs.layout import created_below, judge_layouts
from devtools_lsp.fs.names import check_creatable, is_pyproject
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.refusals import refusal
from devtools_lsp.fs.revert import Reverter
from devtools_lsp.fs.staging import (
    DisplacedError,
    Print,
    copy_staged,
    inherits,
    inode_at,
    open_regular,
    place_new,
    place_over,
    print_of,
    read_all,
    take_away,
    write_staged,
)
from devtools_lsp.fs.walk import LIST_FLAGS, RootWalk, Trail, mount_of
from devtools_lsp.paths import parent_of
from devtools_lsp.ports import Access, Mutation

_NO_LINK = frozenset((errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP))
_MAX_OPEN_PARENTS = 64


class PartlyLandedError(StepFailedError):
    """A commit failed and could not be taken back entirely: `landed` are the resolved paths that stayed new."""

    landed: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Step:
    """One effect on its way: its record entry, and where its new content comes from."""

    effect: Effect
    entry: Entry
    before: Print | None
    in_tree: bool = False


class Transaction:
    """One commit."""

    def __init__(self, walk: RootWalk, journal: Journal, policy: PathPolicy | None, *, follow: bool) -> None:
        self._walk = walk
        self._journal = journal
        self._policy = policy
        self._follow = follow
        self._id = journal.new_id()
        self._protected = policy.protected() if policy is not None else None
        self._parents: dict[str, Trail] = {}
        self._prints: dict[str, Print] = {}
        self._contents: dict[str, bytes] = {}
        self._made: list[str] = []
        self._placed: list[_Step] = []
        self._strays: list[tuple[str, str]] = []
        self._failing = ""
        self._doing = "write"

    def commit(self, plan: str, mutations: Sequence[Mutation], *, undoes: str | None = None) -> dict[str, str]:
        """Land all or none; returns each authored path with its resolved one.

        Raises ConflictError, PolicyError and StepFailedError having changed nothing, or PartlyLandedError.
        """
        resolved: dict[str, str] = {}
        try:
            real = [self._resolve(mutation, resolved) for mutation in mutations]
            net = net_plan(real, self._look)
            directories = [path for path in net.directories if self._is_absent(path)]
            self._judge(net.effects, directories)
            if net.effects or directories:
                self._carry_out(plan, net.effects, directories, undoes)
            return resolved
        except OSError as error:
            raise refusal(error, self._doing, self._failing) from error
        finally:
            self._forget_parents()

    # -- looking and judging -------------------------------------------------------------------------------------

    def _resolve(self, mutation: Mutation, resolved: dict[str, str]) -> Mutation:
        access: Access = "delete" if mutation.kind == "delete" else "create" if mutation.expect is None else "write"
        target = self._resolve_path(mutation.path, access, resolved)
        if mutation.source is None:
            return replace(mutation, path=target)
        return replace(mutation, path=target, source=self._resolve_path(mutation.source, "delete", resolved))

    def _resolve_path(self, path: str, access: Access, resolved: dict[str, str]) -> str:
        if path in resolved:
            return resolved[path]
        self._failing, self._doing = path, "write"
        trail = self._walk.walk(path, follow=self._follow)
        try:
            if not trail.name:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            real = trail.path
            if self._policy is not None:
                identities = trail.identities
                if trail.status is not None:
                    identities = (*identities, (trail.status.st_dev, trail.status.st_ino))
                self._policy.judge(real, access, identities, protected=self._protected)
            if trail.status is None:
                check_creatable(real)
        except BaseException:
            trail.close()
            raise
        self._keep_parent(trail)
        resolved[path] = real
        return real

    def _look(self, path: str) -> str | None:
        self._failing, self._doing = path, "read"
        trail = self._parent(path)
        if trail.missing:
            return None
        name = path.rpartition("/")[2]
        try:
            descriptor = open_regular(name, trail.descriptor)
        except FileNotFoundError:
            return None
        except PolicyError as error:
            raise PolicyError(f"{path!r}: {error.message}", reason=error.reason, path=path) from error
        try:
            found = print_of(descriptor)
            if is_pyproject(path):
                self._contents[path] = read_all(descriptor, 0, found.size) if found.size else b""
        finally:
            os.close(descriptor)
        self._prints[path] = found
        return found.sha256

    def _is_absent(self, path: str) -> bool:
        self._failing, self._doing = path, "make the directory"
        trail = self._parent(path)
        if trail.missing:
            return True
        try:
            status = os.stat(path.rpartition("/")[2], dir_fd=trail.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return True
        if (status.st_mode & 0o170000) != 0o040000:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return False

    def _judge(self, effects: Sequence[Effect], directories: Sequence[str]) -> None:
        if self._policy is None:
            return
        for effect in effects:
            after = effect.after
            moved = self._contents.get(after.origin) if after is not None and after.origin is not None else None
            if after is not None and is_pyproject(effect.path) and after.data is None and moved is None:
                moved = self._read_origin(after.origin or effect.path)
            new = None if after is None else after.data if after.data is not None else moved
            self._policy.judge_content(effect.path, (self._contents.get(effect.path), new))
        arriving = [effect.path for effect in effects if effect.after is not None]
        created = created_below(
            [*directories, *(effect.path for effect in effects if effect.before is None and effect.after is not None)]
        )
        judge_layouts(self._policy, [*arriving, *directories], created, self._present)

    def _read_origin(self, path: str) -> bytes:
        descriptor = open_regular(path.rpartition("/")[2], self._parent(path).descriptor)
        try:
            return read_all(descriptor)
        finally:
            os.close(descriptor)

    def _present(self, directory: str, name: str) -> bool:
        for trail in self._parents.values():
            descriptor = trail.directory(directory)
            if descriptor is not None:
                return inode_at(name, descriptor) is not None
        trail = self._parent(f"{directory}/{name}" if directory else name)
        return not trail.missing and inode_at(name, trail.descriptor) is not None

    # -- carrying out --------------------------------------------------------------------------------------------

    def _carry_out(self, plan: str, effects: Sequence[Effect], directories: Sequence[str], undoes: str | None) -> None:
        light = len(effects) <= 1
        steps = [self._begin(number, effect) for number, effect in enumerate(effects)]
        prepared = False
        try:
            self._choose_places(steps, directories)
            for step in steps:
                self._keep_before(step)
            for step in steps:
                self._stage(step)
            record = Record(
                format=1,
                id=self._id,
                plan=plan,
                time=time.time(),
                light=light,
                entries=tuple(step.entry for step in steps),
                directories=tuple(directories),
                undoes=undoes,
            )
            self._failing, self._doing = effects[0].path if effects else directories[0], "record"
            point("journal:intent")
            self._journal.write_intent(record, durable=not light)
            prepared = True
            point("journal:prepared")
            if not light:
                # Staging took a while: walk again, so that a directory moved away meanwhile is not written to.
                self._forget_parents()
            self._make(directories)
            # New names first, so that what moves can be seen somewhere at every moment.
            for step in sorted(steps, key=lambda step: step.effect.after is None):
                self._place(step)
            self._sync(steps, directories)
            point("journal:commit")
            self._journal.commit(record, durable=not light)
        except BaseException as error:
            self._roll_back(steps, error, prepared=prepared)
            raise
        point("journal:committed")
        with contextlib.suppress(OSError):
            # It is committed, whatever becomes of the sweeping; the next start sweeps again.
            if self._strays:
                self._journal.discard(f"{self._id}.strays")
            self._journal.prune(slack=8)

    def _begin(self, number: int, effect: Effect) -> _Step:
        before = self._prints[effect.path] if effect.before is not None else None
        after = effect.after
        moved_from = after.origin if after is not None and after.origin != effect.path else None
        entry = Entry(number, effect.path, Image.of(before) if before else None, None, moved_from)
        return _Step(effect, entry, before)

    def _choose_places(self, steps: Sequence[_Step], directories: Sequence[str]) -> None:
        """Stage in the journal, except where a rename from there fails or would lose what the directory passes on."""
        for step in steps:
            trail = self._parent(step.effect.path)
            new = step.effect.after is not None and step.effect.after.origin is None
            step.in_tree = mount_of(trail.descriptor) != self._journal.mount or (new and inherits(trail.descriptor))
        in_tree = [step for step in steps if step.in_tree]
        if not in_tree:
            return
        for step in in_tree:
            where = parent_of(step.effect.path)
            step.entry = msgspec.structs.replace(step.entry, stage=where)
            self._strays += [(where, stray_name(self._id, f"{label}{step.entry.n}")) for label in "ngb"]
        self._strays += [(directory, "") for directory in reversed(directories)]
        self._journal.note_strays(self._id, self._strays)
        self._make(directories)

    def _staging(self, step: _Step, label: str = "new") -> tuple[str, int]:
        if step.in_tree:
            return stray_name(self._id, f"{label[0]}{step.entry.n}"), self._parent(step.effect.path).descriptor
        return f"{self._id}.{label}.{step.entry.n}", self._journal.descriptor

    def _keep_before(self, step: _Step) -> None:
        if step.before is None:
            return
        path = step.effect.path
        self._failing, self._doing = path, "keep the old content of"
        point("journal:before")
        name = path.rpartition("/")[2]
        trail = self._parent(path)
        old = f"{self._id}.old.{step.entry.n}"
        try:
            os.link(name, old, src_dir_fd=trail.descriptor, dst_dir_fd=self._journal.descriptor, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise _gone(error, path) from error
            self._copy(path, step.before, old, self._journal.descriptor)
        else:
            if inode_at(old, self._journal.descriptor) != step.before.ino:
                raise conflict({path: "its content is another"})

    def _stage(self, step: _Step) -> None:
        after = step.effect.after
        if after is None:
            return
        path = step.effect.path
        self._failing, self._doing = path, "write"
        point("journal:stage")
        staged, directory = self._staging(step)
        if after.data is None:
            assert after.origin is not None
            image = self._stage_move(after.origin, staged, directory)
        elif after.origin is None:
            mode = after.mode
            ino = write_staged(staged, directory, after.data, like=None, mode=mode)
            image = Image(ino, after.sha256, len(after.data), mode or 0)
        else:
            like = self._open_known(after.origin)
            try:
                ino = write_staged(staged, directory, after.data, like=like)
            finally:
                os.close(like)
            image = Image(ino, after.sha256, len(after.data), self._prints[after.origin].mode)
        step.entry = msgspec.structs.replace(step.entry, after=image)

    def _stage_move(self, origin: str, staged: str, directory: int) -> Image:
        known = self._prints[origin]
        trail = self._parent(origin)
        try:
            os.link(
                origin.rpartition("/")[2],
                staged,
                src_dir_fd=trail.descriptor,
                dst_dir_fd=directory,
                follow_symlinks=False,
            )
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise _gone(error, origin) from error
            return Image.of(replace(known, ino=self._copy(origin, known, staged, directory)))
        if inode_at(staged, directory) != known.ino:
            raise conflict({origin: "its content is another"})
        return Image.of(known)

    def _open_known(self, path: str) -> int:
        """Open a file that was looked at, and make sure that it still is that file."""
        try:
            descriptor = open_regular(path.rpartition("/")[2], self._parent(path).descriptor)
        except OSError as error:
            raise _gone(error, path) from error
        if os.fstat(descriptor).st_ino == self._prints[path].ino:
            return descriptor
        os.close(descriptor)
        raise conflict({path: "its content is another"})

    def _copy(self, path: str, known: Print, name: str, directory: int) -> int:
        source = self._open_known(path)
        try:
            ino = copy_staged(source, name, directory)
            if print_of(source).sha256 != known.sha256:
                raise conflict({path: "its content is another"})
            return ino
        finally:
            os.close(source)

    def _make(self, directories: Sequence[str]) -> None:
        for directory in directories:
            if directory in self._made:
                continue
            self._failing, self._doing = directory, "make the directory"
            point("journal:mkdir")
            trail = self._parent(directory)
            if trail.missing:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory.rpartition("/")[2], 0o777, dir_fd=trail.descriptor)
                self._made.append(directory)
            self._forget_parents()

    def _place(self, step: _Step) -> None:
        path = step.effect.path
        self._failing, self._doing = path, "delete" if step.effect.after is None else "write"
        point("journal:place")
        trail = self._parent(path)
        if trail.missing:
            raise conflict({path: "its directory is gone"})
        name = path.rpartition("/")[2]
        self._placed.append(step)
        try:
            if step.effect.after is None:
                assert step.before is not None
                aside, directory = self._staging(step, "gone")
                take_away(name, trail.descriptor, aside, directory, step.before)
                os.unlink(aside, dir_fd=directory)
            elif step.before is None:
                staged, directory = self._staging(step)
                place_new(staged, directory, name, trail.descriptor)
            else:
                staged, directory = self._staging(step)
                if place_over(staged, directory, name, trail.descriptor, step.before):
                    os.unlink(staged, dir_fd=directory)
        except FileExistsError as error:
            raise conflict({path: "something is there now"}) from error
        except (DisplacedError, FileNotFoundError) as error:
            raise conflict({path: "its content is another"}) from error
        point("journal:placed")

    def _sync(self, steps: Sequence[_Step], directories: Sequence[str]) -> None:
        self._doing = "write"
        point("journal:sync")
        touched = {parent_of(step.effect.path) for step in steps} | {parent_of(path) for path in directories}
        touched.update(parent_of(step.entry.moved_from) for step in steps if step.entry.moved_from is not None)
        for directory in sorted(touched):
            self._failing = directory
            self._sync_directory(directory)

    def _sync_directory(self, directory: str) -> None:
        trail = self._parent(f"{directory}/." if directory else ".")
        # A descriptor opened with O_PATH cannot be synced.
        descriptor = os.open(".", LIST_FLAGS, dir_fd=trail.descriptor)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # -- taking back ---------------------------------------------------------------------------------------------

    def _roll_back(self, steps: Sequence[_Step], error: BaseException, *, prepared: bool) -> None:
        """Take everything back. Raises PartlyLandedError when that is not possible; the caller raises the cause."""
        stuck: list[_Step] = []
        reverter = Reverter(self._journal.descriptor, self._id, self._parent)
        self._forget_parents()
        for step in reversed(self._placed):
            try:
                reverter.revert(step.entry)
            except (OSError, DevToolsError):
                stuck.append(step)
        touched = {parent_of(step.effect.path) for step in self._placed}
        for directory in reversed(self._made):
            with contextlib.suppress(OSError, DevToolsError):
                # A directory that somebody used meanwhile stays.
                os.rmdir(directory.rpartition("/")[2], dir_fd=self._parent(directory).descriptor)
                self._forget_parents()
        if stuck:
            # The record stays prepared: the next start takes the rest back.
            landed = frozenset(step.effect.path for step in stuck if reverter.landed(step.entry))
            cause = refusal(error, self._doing, self._failing) if isinstance(error, OSError) else error
            failure = PartlyLandedError(
                f"{cause}; taking the rest back failed too, so {len(landed)} of {len(steps)} files hold the new "
                "content until the daemon starts again, which takes them back",
                paths=sorted(landed),
                path=self._failing,
                retry="no",
            )
            failure.landed = landed
            raise failure from error
        with contextlib.suppress(OSError, DevToolsError):
            for directory in sorted(touched):
                self._sync_directory(directory)
        with contextlib.suppress(OSError, DevToolsError):
            # What cannot be cleaned up here is litter that the next start sweeps.
            self._clean(steps, prepared=prepared)

    def _clean(self, steps: Sequence[_Step], *, prepared: bool) -> None:
        if prepared:
            self._journal.discard(f"{self._id}.intent")
        for where, name in self._strays:
            if not name:
                continue
            trail = self._parent(f"{where}/{name}" if where else name)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=trail.descriptor)
        for step in steps:
            for label in ("new", "old", "gone", "back"):
                self._journal.discard(f"{self._id}.{label}.{step.entry.n}")
        for name in ("writing", "intent", "strays"):
            self._journal.discard(f"{self._id}.{name}")

    # -- open directories ----------------------------------------------------------------------------------------

    def _parent(self, path: str) -> Trail:
        """The trail to a resolved path's directory, judged by identity; opened once and kept for a while."""
        directory = parent_of(path)
        trail = self._parents.get(directory)
        if trail is None:
            trail = self._walk.walk(path, follow=False)
            if self._policy is not None and self._protected is not None:
                try:
                    if not self._protected.identities.isdisjoint(trail.identities):
                        self._policy.judge(path, "write", trail.identities, protected=self._protected)
                except BaseException:
                    trail.close()
                    raise
            self._keep_parent(trail, directory)
        return trail

    def _keep_parent(self, trail: Trail, directory: str | None = None) -> None:
        key = trail.parent if directory is None else directory
        if key in self._parents:
            trail.close()
            return
        if len(self._parents) >= _MAX_OPEN_PARENTS:
            self._parents.pop(next(iter(self._parents))).close()
        self._parents[key] = trail

    def _forget_parents(self) -> None:
        while self._parents:
            self._parents.popitem()[1].close()


def _gone(error: OSError, path: str) -> Exception:
    """A file that was there a moment ago and is not any more is a conflict; other errors stay what they are."""
    return conflict({path: "it is gone"}) if isinstance(error, FileNotFoundError) else error


def landed_of(error: BaseException) -> Iterable[str]:
    """The resolved paths that stayed new although a commit failed."""
    return error.landed if isinstance(error, PartlyLandedError) else ()
