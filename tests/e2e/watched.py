"""Runs `devtools-lsp` with a watchdog on its event loop: `python watched.py REPORT serve --root DIR`.

Every callback that spends more than `NOTED_S` of the loop's CPU time is written to REPORT as a line of JSON:
`{seconds, what}`. CPU time, because a busy machine may stop any callback for any time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

NOTED_S = 0.005


def watch(report: Path) -> None:
    """Measure each callback of every loop."""
    inner = asyncio.Handle._run
    sink = report.open("a", buffering=1)

    def measured(self: asyncio.Handle) -> None:
        what = describe(self)
        began = time.thread_time()
        try:
            inner(self)
        finally:
            spent = time.thread_time() - began
            if spent > NOTED_S:
                sink.write(json.dumps({"seconds": spent, "what": what}) + "\n")

    asyncio.Handle._run = measured  # type: ignore[method-assign]


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
