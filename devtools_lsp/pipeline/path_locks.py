"""Short locks on paths, so that two plans that touch one file at the same moment queue instead of conflicting.

They are a courtesy, not the guarantee: nothing is lost without them, because every write compares the disk with
what was acquired. That is why they can be let go while a person decides, and why a wait for one is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

MAX_WAIT_S = 30.0


class PathLocks:
    """Locks by root-relative path, taken in sorted order so that two plans cannot wait for each other."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    def holder(self, paths: Iterable[str]) -> PathLockHolder:
        """A holder for these paths; nothing is taken yet."""
        return PathLockHolder(self, sorted(set(paths)))

    def are_free(self, paths: Iterable[str]) -> bool:
        """Whether nobody holds the lock of any of these paths, or waits for one, so that taking them is no wait."""
        return self._locks.keys().isdisjoint(paths)

    def borrow(self, path: str) -> asyncio.Lock:
        """The lock of a path, counted as in use."""
        self._users[path] = self._users.get(path, 0) + 1
        return self._locks.setdefault(path, asyncio.Lock())

    def give_back(self, path: str) -> None:
        """One use less; an unused lock is forgotten."""
        self._users[path] -= 1
        if not self._users[path]:
            del self._users[path]
            del self._locks[path]


class PathLockHolder:
    """One plan's hold on its paths. `release` may come early (a person decides) and is idempotent."""

    def __init__(self, locks: PathLocks, paths: list[str]) -> None:
        self._owner = locks
        self._paths = paths
        self._held: list[tuple[str, asyncio.Lock]] = []

    async def take(self) -> None:
        """Wait for the locks, at most MAX_WAIT_S in all; then go on without the rest."""
        if self._owner.are_free(self._paths):
            await self._take_each()
            return
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await self._take_each()
        except TimeoutError:
            # The comparison with the disk still protects the write; only the queueing is lost.
            return

    async def _take_each(self) -> None:
        for path in self._paths:
            lock = self._owner.borrow(path)
            try:
                await lock.acquire()
            except BaseException:
                self._owner.give_back(path)
                raise
            self._held.append((path, lock))

    def release(self) -> None:
        """Let go of what is held."""
        while self._held:
            path, lock = self._held.pop()
            lock.release()
            self._owner.give_back(path)
