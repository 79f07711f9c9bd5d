"""Runs `devtools-lsp` with a watchdog on its event loop: `python watched.py REPORT serve --root DIR`.

Every callback that spends more than `NOTED_S` of the loop's CPU time is written to REPORT as a line of JSON. CPU time,
because a busy machine may stop any callback for any time. Beside `seconds` of it and `what` ran: `ends`, where its task
stands afterwards; `wall` and `gc`, the seconds that passed and those that the collector took; `faults`, the pages that
it touched first, which cost far more on some machines than on others.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

NOTED_S = 0.005


def watch(report: Path) -> None:
    """Measure each callback of every loop."""
    inner = asyncio.Handle._run
    sink = report.open("a", buffering=1)

    collector = Collector()

    def measured(self: asyncio.Handle) -> None:
        what = describe(self)
        faults, collected, wall = page_faults(), collector.seconds, time.monotonic()
        began = time.thread_time()
        try:
            inner(self)
        finally:
            spent = time.thread_time() - began
            if spent > NOTED_S:
                entry = {
                    "seconds": spent,
                    "wall": time.monotonic() - wall,
                    "gc": collector.seconds - collected,
                    "faults": page_faults() - faults,
                    "what": what,
                    "ends": describe(self),
                }
                sink.write(json.dumps(entry) + "\n")

    asyncio.Handle._run = measured  # type: ignore[method-assign]


class Collector:
    """How many seconds of the loop's thread the garbage collector has taken so far."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0
        self._thread = threading.get_ident()
        gc.callbacks.append(self._told)

    def _told(self, phase: str, _info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.seconds += time.thread_time() - self._began


def page_faults() -> int:
    """Pages that this thread touched for the first time."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def describe(handle: asyncio.Handle) -> str:
    """What a callback is: for a task, where its coroutines stand."""
    callback: Any = handle._callback
    task = getattr(callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return repr(callback)
    places: list[str] = []
    waiting: Any = task.get_coro()
    while waiting is not None and hasattr(waiting, "cr_frame") and waiting.cr_frame is not None:
        places.append(f"{waiting.__qualname__}:{waiting.cr_frame.f_lineno}")
        waiting = waiting.cr_await
    return f"{task.get_name()}: {' > '.join(places)}"


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
    sys.argv[:] = ["devtools-lsp", *sys.argv[2:]]
    from devtools_lsp.__main__ import main

    main()
