"""Runs `devtools-lsp` so that it tells what it holds: `python counted.py REPORT serve --root DIR`.

At every SIGUSR2 a line of JSON is appended to REPORT: `{blocks, tasks, objects}`. `blocks` are the allocations that
are alive after a collection, `tasks` those of the event loop, `objects` how many there are of each type, of ours and
of the most frequent others.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
from collections import Counter
from pathlib import Path

SHOWN_OTHERS = 50


def count_at_signal(report: Path) -> None:
    """The handler runs on the main thread, between two steps of the event loop's own work."""
    sink = report.open("a", buffering=1)

    def count(*_: object) -> None:
        # What the daemon keeps from the collector is counted as well.
        gc.unfreeze()
        gc.collect()
        blocks = sys.getallocatedblocks()
        tasks = sorted(task.get_name() for task in asyncio.all_tasks())
        kinds = Counter(f"{type(found).__module__}.{type(found).__qualname__}" for found in gc.get_objects())
        ours = {kind: count for kind, count in kinds.items() if kind.startswith("devtools_lsp.")}
        objects = {**dict(kinds.most_common(SHOWN_OTHERS)), **ours}
        sink.write(json.dumps({"blocks": blocks, "tasks": tasks, "objects": objects}) + "\n")

    signal.signal(signal.SIGUSR2, count)


if __name__ == "__main__":
    count_at_signal(Path(sys.argv[1]))
    sys.argv[:] = ["devtools-lsp", *sys.argv[2:]]
    from devtools_lsp.__main__ import main

    main()
