"""Threads of a file system: a queue, some workers, and answers back on the event loop.

Owns what `ThreadPoolExecutor` would do at three times the price: a hop there and back is a good part of the cost of
one small write. With one worker it also is the order of the changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")


class Workers:
    """Runs blocking functions in threads of its own, first come first served.

    The threads are daemons: a program that ends without `close` is not held up, and what it was writing is what the
    journal is for.
    """

    def __init__(self, count: int, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(count)
        ]
        self._closed = False
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Run `work`; its result or exception is the future's, on the running loop. Raises RuntimeError when closed."""
        if self._closed:
            raise RuntimeError("the file system was closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()

        def job() -> None:
            try:
                result = work()
            except BaseException as error:
                answer: Callable[[], None] = _failing(future, error)
            else:
                answer = _succeeding(future, result)
            with contextlib.suppress(RuntimeError):
                # The loop was closed meanwhile, so nobody waits for the answer.
                loop.call_soon_threadsafe(answer)

        self._queue.put(job)
        return future

    async def finish(self, work: Callable[[], _T]) -> tuple[_T, asyncio.CancelledError | None]:
        """Run `work` and wait for its end, also when the caller is cancelled meanwhile: that is returned beside it.

        What `work` had called on the loop by `call_soon_threadsafe` has been called then, unless the caller was
        cancelled. Raises what `work` raises, and RuntimeError when closed.
        """
        if self._closed:
            raise RuntimeError("the file system was closed")
        loop = asyncio.get_running_loop()
        # A future that is awaited directly costs a turn of the loop less than one behind a shield.
        waiter: asyncio.Future[None] = loop.create_future()
        results: list[_T] = []
        faults: list[BaseException] = []

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        def job() -> None:
            try:
                results.append(work())
            except BaseException as error:
                faults.append(error)
            try:
                loop.call_soon_threadsafe(wake)
            except RuntimeError:
                return  # The loop was closed meanwhile, so nobody waits for the answer.

        self._queue.put(job)
        cancelled: asyncio.CancelledError | None = None
        while True:
            try:
                await waiter
            except asyncio.CancelledError as error:
                cancelled = error
            if results or faults:
                break
            waiter = loop.create_future()
        if faults:
            raise faults[0]
        return results[0], cancelled

    def post(self, work: Callable[[], None]) -> None:
        """Run `work` some time; nobody waits for it, and it must not raise."""
        if not self._closed:
            self._queue.put(work)

    def close(self) -> None:
        """Finish what was submitted and end the threads. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                return
            job()
            # Nothing of the last job may be kept alive while waiting for the next one.
            del job


def _succeeding(future: asyncio.Future[Any], result: object) -> Callable[[], None]:
    def answer() -> None:
        if not future.done():
            future.set_result(result)

    return answer


def _failing(future: asyncio.Future[Any], error: BaseException) -> Callable[[], None]:
    def answer() -> None:
        if not future.done():
            future.set_exception(error)

    return answer
