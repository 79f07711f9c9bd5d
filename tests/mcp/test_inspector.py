"""The MCP inspector's command-line mode, which shares no code with the SDK of the other tests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.place import ALLOW, PROGRAM, RUFF, Place

INSPECTOR = Path(__file__).parent / "node_modules" / ".bin" / "mcp-inspector"
TOOL_ERROR = 5
"""Its exit code for a tool's result with isError."""

pytestmark = pytest.mark.skipif(not INSPECTOR.exists(), reason="npm ci was not run in tests/mcp")


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place]) -> Place:
    return new_place(ALLOW + RUFF, {"a.py": "import os\n"})


@pytest.fixture
def inspect(place: Place) -> Callable[..., tuple[int, Any, str]]:
    """Run the inspector on the bridge of the place: its exit code, its JSON, and its standard error."""

    def run(*arguments: str, surface: str = "granular") -> tuple[int, Any, str]:
        # It hands on little of its own environment.
        handed = [f"{name}={place.env[name]}" for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME")]
        server = [str(PROGRAM), "mcp", "--root", str(place.root), "--surface", surface]
        done = subprocess.run(
            [str(INSPECTOR), "--cli", *(part for pair in handed for part in ("-e", pair)), *server, *arguments],
            env=place.env,
            cwd=place.base,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        return done.returncode, json.loads(done.stdout), done.stderr

    return run


@pytest.mark.parametrize("surface", ["granular", "composite", "workspace"])
def test_tools_are_listed_and_their_schemas_are_portable(place: Place, inspect: Any, surface: str):
    """`--strict` judges every schema by what the common clients can use."""
    code, listed, said = inspect("--method", "tools/list", "--strict", surface=surface)
    assert code == 0, said
    assert listed["tools"] == place.agent(surface=surface).greeting["tools"]


def test_a_tool_is_called(place: Place, inspect: Any):
    code, result, _ = inspect("--method", "tools/call", "--tool-name", "lint", "--tool-arg", 'paths=["a.py"]')
    assert code == 0
    assert result["structuredContent"]["counts"] == {"error": 0, "warning": 1, "info": 0}
    assert "F401" in result["content"][0]["text"]
    handle = result["structuredContent"]["artifact"]["handle"]
    code, resource, _ = inspect("--method", "resources/read", "--uri", f"devtools://artifact/{handle}")
    assert code == 0
    assert json.loads(resource["contents"][0]["text"])["total"] == 1


def test_a_refusal_is_seen_as_one(inspect: Any):
    code, result, _ = inspect("--method", "tools/call", "--tool-name", "edit", "--tool-arg", "path=b.py", "edits=[]")
    assert code == TOOL_ERROR
    assert result["structuredContent"]["code"] == "E_DEV_BAD_ARG"
