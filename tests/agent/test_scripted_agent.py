"""A scripted agent mends a planted bug in a real package: how many turns, and how many tokens its replies take.

The bug is a type error and two findings of the linter in a copy of rich. The agent is told the file; it learns the
rest from what the tools say, and is done when the tools say that nothing is wrong any more.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters, stdio_client

from devtools_lsp.agent.render import BYTES_PER_TOKEN, ENVELOPE_TOKENS
from devtools_lsp.client import connect, stop_daemon
from devtools_lsp.config import load_configuration

pytestmark = pytest.mark.timeout(240)

PATH = "rich/filesize.py"
CONFIGURATION = (
    '[gate]\nmode = "allow"\n[engines.ruff]\npreset = "ruff"\n[engines.basedpyright]\npreset = "basedpyright"\n'
)
LINTING = '[lint]\nselect = ["F", "I"]\n'
IMPORTS = "from typing import Iterable, List, Optional, Tuple\n"
PLANTED = IMPORTS + "import os\n"
WRONG = '    return _to_str(size, ("KiB", "MiB", "GiB", "TiB"), "1024")\n'
RIGHT = '    return _to_str(size, ("KiB", "MiB", "GiB", "TiB"), 1024)\n'
FUNCTION = f'\n\ndef binary(size: int) -> str:\n    """Convert a file size, powers of 1024."""\n{WRONG}'


@dataclass
class Script:
    """An agent's side of the conversation: every call is a turn, every reply is weighed."""

    tool: Callable[[str, dict[str, Any]], Awaitable[tuple[dict[str, Any], int]]]
    tokens: list[int] = field(default_factory=list)

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        result, size = await self.tool(name, arguments)
        self.tokens.append(-(-size // BYTES_PER_TOKEN))
        return result


Door = Callable[[Path, str], AbstractAsyncContextManager[Script]]


@asynccontextmanager
async def over_the_socket(root: Path, surface: Any) -> AsyncIterator[Script]:
    async with await connect(root, name="scripted", surface=surface) as client:

        async def tool(name: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], int]:
            result = await client.call(name, arguments)
            return result, len(msgspec.json.encode(result))

        yield Script(tool)


@asynccontextmanager
async def over_mcp(root: Path, surface: str) -> AsyncIterator[Script]:
    program = str(Path(sys.executable).with_name("devtools-lsp"))
    arguments = ["mcp", "--root", str(root), "--surface", surface]
    command = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    async with McpClient(stdio_client(command)) as client:

        async def tool(name: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], int]:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content[0].text
            return result.structured_content, len(msgspec.json.encode(result.structured_content))

        yield Script(tool)


DOORS: dict[str, Door] = {"socket": over_the_socket, "mcp": over_mcp}


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """A copy of rich with its engines; the daemon is stopped with the module."""
    for program in ("ruff", "basedpyright-langserver"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    spec = find_spec("rich")
    assert spec is not None
    assert spec.origin is not None
    with tempfile.TemporaryDirectory(prefix="scripted-") as directory:
        made = Path(directory).resolve()
        shutil.copytree(Path(spec.origin).parent, made / "rich", ignore=shutil.ignore_patterns("__pycache__"))
        (made / "devtools.toml").write_text(CONFIGURATION)
        (made / "ruff.toml").write_text(LINTING)
        yield made
        asyncio.run(stop_daemon(made))


@pytest.fixture
def planted(root: Path) -> Iterator[Path]:
    """The package with the bug in it."""
    target = root / PATH
    original = target.read_text()
    assert original.count(IMPORTS) == 1
    target.write_text(original.replace(IMPORTS, PLANTED) + FUNCTION)
    yield root
    target.write_text(original)


def messages(result: dict[str, Any]) -> set[str]:
    """The errors that the checker finds in the mended file."""
    return {item["message"] for item in result["diagnostics"] if item["path"] == PATH and item["severity"] == "error"}


async def mend_step_by_step(agent: Script) -> None:
    """Granular: look, edit, lint, look again."""
    found = await agent.call("check", paths=[PATH])
    (error,) = [item for item in found["diagnostics"] if item["severity"] == "error" and "1024" in item["message"]]
    others = messages(found) - {error["message"]}
    lines = WRONG.splitlines(keepends=True)
    assert error["path"] == PATH
    await agent.call("edit", path=error["path"], edits=[{"find": lines[0], "replace": RIGHT}])
    linted = await agent.call("lint", paths=[error["path"]], fix=True)
    assert not [item for item in linted["diagnostics"] if item["engineId"] == "ruff"]
    checked = await agent.call("check", paths=[error["path"]])
    assert messages(checked) == others, "what was wrong before is all that is left"
    assert not [item for item in checked["delta"]["pending"] if item.get("path") == PATH]


async def mend_at_once(agent: Script) -> None:
    """Composite: the edit, the linter's fixes, the checker's word and the write are one plan."""
    result = await agent.call(
        "dev_plan",
        paths=[PATH],
        ops=[
            {"step": "edit", "args": {"path": PATH, "edits": [{"find": WRONG, "replace": RIGHT}]}},
            {"step": "lint", "args": {"fix": True}},
            {"step": "check"},
            {"step": "write"},
        ],
    )
    assert result["written"] == [{"path": PATH, "kind": "modified"}]
    assert not [item for item in result["delta"]["introduced"] if item["severity"] == "error"]
    assert [item for item in result["delta"]["resolved"] if "1024" in item["message"]], result["delta"]


async def mend_with_plain_tools(agent: Script) -> None:
    """Workspace: search, read, edit, and a command that lints and checks."""
    found = await agent.call("grep", pattern='"1024"', path="rich")
    path = found["content"].partition(":")[0]
    await agent.call("read_file", path=path)
    await agent.call("edit_file", path=path, old_string=WRONG, new_string=RIGHT)
    done = await agent.call("bash", command=f"ruff check --fix --quiet {path} && echo clean")
    assert "clean" in done["content"]


WAYS: dict[str, tuple[Callable[[Script], Awaitable[None]], int]] = {
    "composite": (mend_at_once, 1),
    "granular": (mend_step_by_step, 4),
    "workspace": (mend_with_plain_tools, 4),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("surface", WAYS)
async def test_an_agent_mends_a_planted_bug(planted: Path, surface: str, door: str):
    mend, turns = WAYS[surface]
    async with DOORS[door](planted, surface) as agent:
        await mend(agent)
    text = (planted / PATH).read_text()
    assert RIGHT in text
    assert "import os" not in text
    budget = load_configuration(planted).file.reply.inline_tokens + ENVELOPE_TOKENS
    print(f"\n{surface} over {door}: {len(agent.tokens)} turn(s), {sum(agent.tokens)} reply tokens {agent.tokens}")
    assert len(agent.tokens) <= turns
    # What read_file returns is the caller's own choice and not part of the budget.
    weighed = [size for index, size in enumerate(agent.tokens) if (surface, index) != ("workspace", 1)]
    assert max(weighed) <= budget
