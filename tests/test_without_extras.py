"""An environment without the optional extras: nothing fails, and what is unknown is absent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, json, sys
from pathlib import Path

for name in ("rapidfuzz", "mcp"):
    sys.modules[name] = None  # what importing it meets where the extra is not installed

from devtools_lsp.agent.render import render_reply, render_text
from devtools_lsp.app import World, build
from devtools_lsp.config import parse_configuration
from devtools_lsp.ports import Decision


async def gate(context, call):
    return Decision(approved=True, by="test")


async def main(root):
    app = build(root, parse_configuration({}), World(gate=gate), artifacts=Path(root).parent / "artifacts")
    edits = [{"find": "a", "replace": "b"}]
    result = await app.pipeline.single("edit", {"path": "a.txt", "edits": edits})
    reply = render_reply(result, app.artifacts.spool(result), inline_tokens=2000)
    print(json.dumps({"reply": reply, "text": render_text(reply)}))
    await app.close()


asyncio.run(main(sys.argv[1]))
"""


def test_counts_are_absent_and_everything_else_works(tmp_path: Path):
    """I12: without the extra `diff` counts are left out, in the result and in words."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("a\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (root / "a.txt").read_text(encoding="utf-8") == "b\n"
    assert said["reply"]["lineCountsAvailable"] is False
    assert said["reply"]["changes"] == [{"path": "a.txt", "kind": "modified"}]
    assert "M  a.txt\n" in said["text"]
