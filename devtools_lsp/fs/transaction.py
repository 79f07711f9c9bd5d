"""From a list of mutations to one commit: resolved, compared, judged as a whole, then carried out or not at all.

Owns everything before the first byte; `fs.carrying` owns what follows. Blocks; a caller runs one at a time.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import msgspec

from devtools_lsp.errors import PolicyError
from devtools_lsp.fs.carrying import Carrier
from devtools_lsp.fs.effects import Effect, net_plan
from devtools_lsp.fs.journal import Journal
from devtools_lsp.fs.layout import created_below, judge_layouts
from devtools_lsp.fs.names import check_creatable, is_pyproject
from devtools_lsp.fs.parents import OpenParents
from devtools_lsp.fs.partly import PartlyLandedError
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.refusals import not_regular, refusal
from devtools_lsp.fs.stager import Stager
from devtools_lsp.fs.staging import Print, inode_at, print_of, read_all
from devtools_lsp.fs.walk import RootWalk
from devtools_lsp.ports import Access, Mutation


class Witness(Protocol):
    """Told how far a commit is, from the thread that runs it."""

    def examined(self, path: str, *, implied: bool) -> None:
        """A path's links and policy were judged on the disk; `implied` for a missing parent that will be made."""
        ...

    def begins(self) -> None:
        """Everything was judged and compared; the next call changes the disk."""
        ...

    def syncing(self) -> None:
        """The new content is written and is being made durable: whoever waits has time for other work.

        Once a commit, of several files with the first; never for one that brings no new content (moves, deletions).
        """
        ...


class Transaction:
    """One commit of a list of mutations."""

    def __init__(
        self,
        walk: RootWalk,
        journal: Journal,
        policy: PathPolicy | None,
        *,
        follow: bool,
        make_parents: bool = False,
        witness: Witness | None = None,
    ) -> None:
        """`make_parents` adds the directories that are missing above targets to the transaction."""
        self._walk = walk
        self._journal = journal
        self._policy = policy
        self._follow = follow
        self._make_parents = make_parents
        self._witness = witness
        self._prints: dict[str, Print] = {}
        self._contents: dict[str, bytes] = {}
        self._resolved: dict[str, str] = {}
        self._missing: dict[str, None] = {}
        self._failing = ""
        self._doing = "write"

    def commit(self, plan: str, mutations: Sequence[Mutation]) -> None:
        """Land all or none.

        Raises ConflictError, PolicyError and StepFailedError having changed nothing, or PartlyLandedError whose
        `landed` are paths as the mutations name them.
        """
        with OpenParents(self._walk, self._policy) as parents:
            try:
                real = [self._resolve(mutation, parents) for mutation in mutations]
                net = net_plan(real, partial(self._look, parents))
                wanted = dict.fromkeys((*sorted(self._missing, key=lambda path: path.count("/")), *net.directories))
                directories = [path for path in wanted if self._is_absent(path, parents)]
                self._judge(net.effects, directories, parents)
                if self._witness is not None:
                    self._witness.begins()
                if net.effects or directories or net.emptied:
                    syncing = self._witness.syncing if self._witness is not None else None
                    stager = Stager(parents, self._journal, self._prints, syncing)
                    carrier = Carrier(parents, self._journal, self._prints, stager)
                    carrier.carry_out(plan, net.effects, directories, net.emptied)
            except OSError as error:
                raise refusal(error, self._doing, self._failing) from error
            except PartlyLandedError as error:
                names = {path for path, real_path in self._resolved.items() if real_path in error.landed}
                error.landed = frozenset(names)
                raise

    def _resolve(self, mutation: Mutation, parents: OpenParents) -> Mutation:
        access: Access = "create" if mutation.expect is None else "write"
        if mutation.kind in ("delete", "rmdir"):
            access = "delete"
        elif mutation.restores:
            access = "restore"
        target = self._resolve_path(mutation.path, access, parents, directory=mutation.kind in ("mkdir", "rmdir"))
        if mutation.source is None:
            return mutation if target == mutation.path else msgspec.structs.replace(mutation, path=target)
        return msgspec.structs.replace(
            mutation, path=target, source=self._resolve_path(mutation.source, "delete", parents)
        )

    def _resolve_path(self, path: str, access: Access, parents: OpenParents, *, directory: bool = False) -> str:
        if path in self._resolved:
            return self._resolved[path]
        self._failing, self._doing = path, "write"
        if parents.crowded:
            parents.trim()
        trail = self._walk.walk(path, follow=self._follow)
        try:
            if not trail.name:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            real = trail.path
            if self._policy is not None:
                identities = trail.identities
                if trail.status is not None:
                    identities = (*identities, (trail.status.st_dev, trail.status.st_ino))
                self._policy.judge(real, access, identities, protected=parents.protected, directory=directory)
                if real != path:
                    self._policy.judge_alias(path, real)
            if trail.status is None:
                if access != "restore":
                    check_creatable((*trail.missing, trail.name), path)
            elif not stat.S_ISREG(trail.status.st_mode) and not stat.S_ISDIR(trail.status.st_mode):
                # Before anything opens it: opening a device can be an act of its own.
                raise not_regular("change", path)
            made = list(trail.parents)
            for name in trail.missing if self._make_parents and access != "delete" and not directory else ():
                made.append(name)
                self._imply("/".join(made))
        except BaseException:
            trail.close()
            raise
        parents.keep(trail.parent, trail)
        self._resolved[path] = real
        if self._witness is not None:
            self._witness.examined(path, implied=False)
        return real

    def _imply(self, directory: str) -> None:
        if directory in self._missing:
            return
        self._missing[directory] = None
        if self._witness is not None:
            self._witness.examined(directory, implied=True)

    def _look(self, parents: OpenParents, path: str) -> str | None:
        self._failing, self._doing = path, "read"
        if parents.crowded:
            parents.trim()
        try:
            found = parents.look_at(path)
        except PolicyError as error:
            raise PolicyError(f"{path!r}: {error.message}", reason=error.reason, path=path) from error
        if found is None:
            return None
        descriptor, status = found
        known = print_of(descriptor, status)
        if is_pyproject(path):
            self._contents[path] = read_all(descriptor, status.st_size)
        self._prints[path] = known
        return known.sha256

    def _is_absent(self, path: str, parents: OpenParents) -> bool:
        self._failing, self._doing = path, "make the directory"
        if parents.crowded:
            parents.trim()
        trail = parents.of(path)
        if trail.missing:
            return True
        try:
            status = os.stat(path.rpartition("/")[2], dir_fd=trail.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return True
        if not stat.S_ISDIR(status.st_mode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return False

    def _judge(self, effects: Sequence[Effect], directories: Sequence[str], parents: OpenParents) -> None:
        """What only the whole list shows: configuration in a pyproject.toml, and repository layouts."""
        if self._policy is None:
            return
        arriving: list[str] = []
        created = [*directories]
        for effect in effects:
            if is_pyproject(effect.path):
                self._policy.judge_content(effect.path, (self._contents.get(effect.path), self._after(effect, parents)))
            if effect.after is not None:
                arriving.append(effect.path)
                if effect.before is None:
                    created.append(effect.path)
        judge_layouts(self._policy, [*arriving, *directories], created_below(created), partial(_stands, parents))

    def _after(self, effect: Effect, parents: OpenParents) -> bytes | None:
        if effect.after is None or effect.after.data is not None:
            return effect.after.data if effect.after is not None else None
        origin = effect.after.origin or effect.path
        known = self._prints[origin]
        return read_all(parents.known(origin, known.ino), known.size)


def _stands(parents: OpenParents, directory: str, name: str) -> bool:
    if parents.crowded:
        parents.trim()
    descriptor = parents.directory(directory)
    return descriptor is not None and inode_at(name, descriptor) is not None
