"""The local file system as the pipeline sees it: the asyncio face of `disk`, `transaction`, `recovery` and `undo`.

Owns the threads and the lock. Blocking work runs in threads of its own, one hop a call however many files it
concerns (`read_many` and `commit` exist for that reason); a few small looks at what is `nearby` need none. A cancelled
caller still gets the truth: a commit that has begun is waited for, since its thread cannot be stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from devtools_lsp.errors import InvalidConfigError, StepFailedError, StepUnavailableError
from devtools_lsp.fs.disk import LocalDisk, Symlinks
from devtools_lsp.fs.journal import Journal, Retention
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.recovery import RecoveryReport, adopt_settled, recover
from devtools_lsp.fs.refusals import refusal
from devtools_lsp.fs.threads import Workers
from devtools_lsp.fs.transaction import Transaction, Witness
from devtools_lsp.fs.undo import UndoPlan, mark_undone, plan_undo
from devtools_lsp.fs.walk import RootWalk
from devtools_lsp.ports import Access, Cancellation, DirectoryEntry, FileStat, Mutation

_T = TypeVar("_T")
_READERS = 3
_IN_A_ROW = 8
"""How many questions are answered on the loop, without a turn for others in between, before a thread answers one."""


class LocalFileSystem:
    """The files below one root, reached by descriptor walk only.

    `symlinks="reject"`: mutations refuse links, reads follow those that stay inside; `"inside"`: both follow. With
    `journaled` (the default) `commit` is a transaction and `atomic` is True; without, only the plain methods exist
    and nothing can be undone. The policy is judged again on what each walk resolves, so that a name that is swapped
    after the gauntlet has looked at it gains nothing. Close it when done. Raises InvalidConfigError.
    """

    def __init__(
        self,
        root: str,
        *,
        symlinks: Symlinks = "reject",
        policy: PathPolicy | None = None,
        journaled: bool = True,
        retention: Retention | None = None,
    ) -> None:
        self._walk = RootWalk(root)
        try:
            self.journal = Journal.open(self._walk, retention=retention) if journaled else None
        except BaseException:
            self._walk.close()
            raise
        self.root = root
        self.disk = LocalDisk(self._walk, symlinks, policy)
        self._policy = policy
        self._lock = threading.Lock()
        self._in_a_row = 0
        self.atomic = journaled
        """Whether `commit` is there: all or nothing across files, also after a crash."""
        self._readers = Workers(_READERS, "devtools-lsp-read")
        self._changer = Workers(1, "devtools-lsp-write")

    def close(self) -> None:
        """Wait for what is running and give everything back. A second call does nothing."""
        self._readers.close()
        self._changer.close()
        with self._lock:
            if self.journal is not None:
                self.journal.close()
            self._walk.close()

    # -- reading -------------------------------------------------------------------------------------------------

    async def stat(self, path: str) -> FileStat:
        """What a path is, links followed; raises FileNotFoundError."""
        return await self._hop(lambda: self.disk.stat(path))

    async def list(self, path: str) -> list[DirectoryEntry]:
        """The names in a directory, unsorted; raises FileNotFoundError."""
        return await self._hop(lambda: self.disk.list(path))

    async def read(self, path: str) -> bytes:
        """A regular file's bytes; raises FileNotFoundError, PolicyError for secrets, links out and devices."""
        if self._here(path) and (small := self.disk.read_small(path)) is not None:
            return small
        return await self._hop(lambda: self.disk.read(path))

    async def read_window(self, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from byte `offset`."""
        return await self._hop(lambda: self.disk.read_window(path, offset, limit))

    async def read_many(self, paths: Sequence[str]) -> dict[str, bytes | Exception]:
        """Many files in one hop; what `read` would have raised for one stands in its place."""
        return await self._hop(lambda: self.disk.read_many(paths))

    async def stat_many(self, paths: Sequence[str]) -> dict[str, FileStat | Exception]:
        """Many paths in one hop; what `stat` would have raised for one stands in its place."""
        return await self._hop(lambda: self.disk.stat_many(paths))

    async def examine_many(self, paths: Sequence[tuple[str, Access]]) -> list[FileStat | None]:
        """Judge links and policy on the disk for many paths in one hop; the first refusal is raised.

        Returns what each path is, None for an absence.
        """
        if self._here(*[path for path, _ in paths]):
            return self.disk.examine_many(paths)
        return await self._hop(lambda: self.disk.examine_many(paths))

    # -- changing ------------------------------------------------------------------------------------------------

    async def write(self, path: str, data: bytes) -> None:
        """Replace or create one file whose parent exists."""
        await self._change(lambda: self.disk.write(path, data))

    async def delete(self, path: str, signal: Cancellation | None = None) -> None:
        """Delete one regular file."""
        _check(signal)
        await self._change(lambda: self.disk.delete(path))

    async def rename(self, source: str, target: str, signal: Cancellation | None = None) -> None:
        """Move one regular file to where nothing is."""
        _check(signal)
        await self._change(lambda: self.disk.rename(source, target))

    async def mkdir(self, path: str, signal: Cancellation | None = None) -> None:
        """Make one directory."""
        _check(signal)
        await self._change(lambda: self.disk.mkdir(path))

    async def commit(self, plan: str, mutations: Sequence[Mutation]) -> None:
        """Land all mutations or none, journalled; see `TransactionalFileSystem`.

        Raises ConflictError, PolicyError or StepFailedError with nothing changed. The one exception is
        `transaction.PartlyLandedError`, when taking back fails too: its `landed` says what stayed.
        """
        await self.commit_witnessed(plan, mutations, make_parents=False)

    async def commit_witnessed(
        self, plan: str, mutations: Sequence[Mutation], *, make_parents: bool, witness: Witness | None = None
    ) -> None:
        """`commit` for the gauntlet: makes missing parents if asked, and tells `witness`, from the thread, how far
        it is.
        """
        await self._change(partial(self.commit_now, plan, mutations, make_parents=make_parents, witness=witness))
        if self.journal is not None and self.journal.crowded():
            # Nobody waits for the sweeping: what it removes is out of reach already.
            self._changer.post(self._prune)

    def commit_now(
        self,
        plan: str,
        mutations: Sequence[Mutation],
        *,
        make_parents: bool = False,
        witness: Witness | None = None,
    ) -> None:
        """`commit`, blocking: for callers that own the thread."""
        if self.journal is None:
            raise StepUnavailableError("this file system was opened without a journal, so it has no commit")
        with self._lock:
            self._walk.require_in_place()
            if self.journal.is_gone():
                self.journal = self._another_journal(self.journal)
            transaction = Transaction(
                self._walk,
                self.journal,
                self._policy,
                follow=self.disk.follow,
                make_parents=make_parents,
                witness=witness,
            )
            with self.journal.alone():
                transaction.commit(plan, mutations)

    def _another_journal(self, lost: Journal) -> Journal:
        """Begin anew after somebody cleaned the tree, as `git clean -fdx` does: the undo is all that is lost."""
        try:
            journal = Journal.open(self._walk, retention=lost.retention)
        except InvalidConfigError as error:
            raise StepFailedError(f"nothing was written: {error.message}", retry="no") from error
        lost.close()
        return journal

    # -- recovery and undo ---------------------------------------------------------------------------------------

    def recover_now(self) -> RecoveryReport:
        """Settle what dead processes left; call it once, before anything is written. Blocks."""
        if self.journal is None:
            return RecoveryReport()
        with self._lock, self.journal.alone():
            return recover(self._walk, self.journal, self._policy)

    async def undo_plan(self, plan: str | None = None) -> UndoPlan:
        """How to take a plan (default: the last one) back; send its mutations through gate and gauntlet.

        Before that call `mark_undone`. Raises BadArgumentError (`notFound`) when it is not kept.
        """
        self._require_journal()

        def work() -> UndoPlan:
            with contextlib.suppress(OSError):
                # What cannot be adopted now cannot be undone now either, which is what the caller is told then.
                adopt_settled(self._require_journal())
            return plan_undo(self._require_journal(), plan, self._look, self.disk.directory_ino)

        return await self._change(work)

    async def mark_undone(self, plan: str, by: str) -> None:
        """Remember that the mutations of `undo_plan(plan)` land under the plan id `by`; it counts once they have.

        Raises StepFailedError when that cannot be written down.
        """
        self._require_journal()

        def work() -> None:
            try:
                mark_undone(self._require_journal(), plan, by)
            except OSError as error:
                raise refusal(error, "write down the undo of", plan) from error

        await self._change(work)

    def _prune(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            # What cannot be removed now is tried again with the next sweep.
            if self.journal is not None:
                self.journal.prune()

    def _require_journal(self) -> Journal:
        if self.journal is None:
            raise StepUnavailableError("this file system was opened without a journal, so nothing can be undone")
        return self.journal

    def _look(self, path: str) -> str | None:
        try:
            return self.disk.hash(path)
        except FileNotFoundError:
            return None

    # -- threads -------------------------------------------------------------------------------------------------

    def _here(self, *paths: str) -> bool:
        """Whether to answer on the loop; now and then no, so that it gets its turn among many questions."""
        if self._in_a_row >= _IN_A_ROW or not self.disk.nearby.has(*paths):
            self._in_a_row = 0
            return False
        self._in_a_row += 1
        return True

    async def _hop(self, work: Callable[[], _T]) -> _T:
        return await self._readers.submit(work)

    async def _change(self, work: Callable[[], _T]) -> _T:
        """Run one change after the other, and wait for its end even if the caller is cancelled meanwhile."""
        result, cancelled = await self._changer.finish(work)
        self._in_a_row = 0
        if cancelled is not None:
            raise LandedThenCancelled from cancelled
        return result


class LandedThenCancelled(asyncio.CancelledError):
    """The caller was cancelled while a change was running, and the change landed."""


def _check(signal: Cancellation | None) -> None:
    if signal is not None and signal.cancelled:
        raise asyncio.CancelledError(signal.reason)
