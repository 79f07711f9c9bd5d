"""What an agent's edit costs beside the MCP file-system server's, as ratios of one run: `pytest -m bench -s`.

Both servers change one line of the same 10 KB file, in turns. Ours writes through a journal and `fsync`s before it
answers; the other one renames a temporary file into place. The same client speaks with both over MCP.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

from devtools_lsp.client import connect, stop_daemon

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

ROUNDS = 200
WARM_UP = 20
LINES = "".join(f"line {number:05d}\n" for number in range(900))
ASIDE = Path(__file__).parent.parent / "mcp" / "node_modules" / "@modelcontextprotocol" / "server-filesystem"


@pytest.fixture
def root() -> Iterator[Path]:
    """One 10 KB file for each contestant."""
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory).resolve()
        (made / "devtools.toml").write_text('[gate]\nmode = "allow"\n')
        yield made
        asyncio.run(stop_daemon(made))


@pytest.fixture
def other_server(tool: Callable[[str], str]) -> StdioServerParameters:
    program = ASIDE / "dist" / "index.js"
    if not program.exists():
        pytest.skip("npm ci was not run in tests/mcp")
    return StdioServerParameters(command=tool("node"), args=[str(program)])


Edit = Callable[[str, str], Awaitable[Any]]


async def take_turns(contestants: dict[str, Edit]) -> dict[str, list[float]]:
    """Milliseconds of every edit of each, one after the other in every round."""
    spent: dict[str, list[float]] = {name: [] for name in contestants}
    words = itertools.cycle([("line 00500", "LINE 00500"), ("LINE 00500", "line 00500")])
    for number in range(WARM_UP + ROUNDS):
        old, new = next(words)
        for name, edit in contestants.items():
            began = time.perf_counter()
            await edit(old, new)
            if number >= WARM_UP:
                spent[name].append((time.perf_counter() - began) * 1000)
    for name, times in spent.items():
        low, middle, high = (statistics.quantiles(times, n=10)[index] for index in (0, 4, 8))
        print(f"\n{name:24} {low:7.2f} {middle:7.2f} {high:7.2f} ms (p10, p50, p90)", end="")
    print()
    return spent


async def test_an_edit_against_the_file_system_server(root: Path, other_server: StdioServerParameters):
    """Floors: faster over the socket, no slower over MCP (a tenth for the noise of one run)."""
    bridge = shutil.which("devtools-lsp") or str(Path(sys.executable).with_name("devtools-lsp"))
    contestants: dict[str, Edit] = {}
    async with AsyncExitStack() as stack:

        async def mcp(command: StdioServerParameters) -> ClientSession:
            streams = await stack.enter_async_context(stdio_client(command))
            session = await stack.enter_async_context(ClientSession(*streams))
            await session.initialize()
            await session.list_tools()
            return session

        def add(name: str, edit: Callable[[str, str, str], Awaitable[Any]]) -> None:
            (root / f"{name}.txt").write_text(LINES)

            async def run(old: str, new: str) -> None:
                result = await edit(f"{name}.txt", old, new)
                assert not getattr(result, "is_error", False), result

            contestants[name] = run

        granular = await stack.enter_async_context(await connect(root, name="bench"))
        workspace = await stack.enter_async_context(await connect(root, name="bench", surface="workspace"))
        environment = dict(os.environ)
        granular_mcp, workspace_mcp = [
            await mcp(StdioServerParameters(command=bridge, args=["mcp", "--root", str(root), *more], env=environment))
            for more in ([], ["--surface", "workspace"])
        ]
        theirs = await mcp(other_server.model_copy(update={"args": [*other_server.args, str(root)]}))

        def blocks(path: str, old: str, new: str) -> dict[str, Any]:
            return {"path": path, "edits": [{"find": old, "replace": new}]}

        def strings(path: str, old: str, new: str) -> dict[str, Any]:
            return {"path": path, "old_string": old, "new_string": new}

        add("edit-socket", lambda path, old, new: granular.call("edit", blocks(path, old, new)))
        add("edit_file-socket", lambda path, old, new: workspace.call("edit_file", strings(path, old, new)))
        add("edit-mcp", lambda path, old, new: granular_mcp.call_tool("edit", blocks(path, old, new)))
        add("edit_file-mcp", lambda path, old, new: workspace_mcp.call_tool("edit_file", strings(path, old, new)))
        add(
            "theirs",
            lambda path, old, new: theirs.call_tool(
                "edit_file", {"path": str(root / path), "edits": [{"oldText": old, "newText": new}]}
            ),
        )
        await workspace.call("read_file", {"path": "edit_file-socket.txt"})
        await workspace_mcp.call_tool("read_file", {"path": "edit_file-mcp.txt"})
        spent = await take_turns(contestants)
    ratios = {name: statistics.median(times) / statistics.median(spent["theirs"]) for name, times in spent.items()}
    print("ratios to theirs: " + "  ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    assert max(ratios["edit-socket"], ratios["edit_file-socket"]) < 1
    assert max(ratios["edit-mcp"], ratios["edit_file-mcp"]) <= 1.1
