"""Stands for the daemon in tests of its death: starts engines over a root, asks each once, prints their pids, waits.

usage: daemon.py ROOT CHILD_PID_FILE
"""

import asyncio
import json
import sys
from pathlib import Path

from devtools_lsp.engines.registry import EngineRegistry
from devtools_lsp.engines.spec import spec_from_table
from devtools_lsp.ports import Cancellation, EngineCall


async def main() -> None:
    root = Path(sys.argv[1])
    stubborn = {
        "kind": "language-server",
        "command": [sys.executable, str(Path(__file__).parent / "ignores_shutdown.py"), sys.argv[2]],
        "capabilities": ["check"],
        "extensions": ["py"],
    }
    specs = [
        spec_from_table("stubborn", stubborn),
        spec_from_table("ruff", {"preset": "ruff"}),
        spec_from_table("mypy", {"preset": "mypy"}),
    ]
    registry = EngineRegistry(root, specs)
    await registry.start()
    text = (root / "a.py").read_text()
    for engine in registry.engines:
        capability = (*engine.checks, *engine.lints)[0]
        await capability.run(
            EngineCall(
                engine_id=engine.id,
                step="check",
                paths=("a.py",),
                texts={"a.py": text},
                acquired={"a.py": text},
                disk={"a.py": text},
                signal=Cancellation(),
            )
        )
    print(json.dumps([status.pid for status in registry.status()]), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
