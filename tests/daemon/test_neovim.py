"""Neovim without any plugin of ours: the code actions and the default handlers alone suffice (SPEC 8.0.8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


async def test_a_plain_neovim_attaches_sees_approves_and_types(
    daemon: Any, tool: Callable[[str], str], eventually: Any
):
    daemon.gate.put({"a.txt": 'x = "😀"\ny = 1\n'})
    go = str(daemon.socket.with_name("go"))
    script = Path(__file__).with_name("attach.lua")
    editor = await asyncio.create_subprocess_exec(
        tool("nvim"), "--headless", "-u", "NONE", "-i", "NONE", "-n", "-l", str(script),
        str(daemon.socket), str(daemon.root / "a.txt"), go,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip

    async def fact() -> dict[str, Any]:
        assert editor.stdout is not None
        async with asyncio.timeout(30):
            while line := await editor.stdout.readline():
                if line.startswith(b"{"):
                    return json.loads(line)
        raise AssertionError("Neovim ended")

    try:
        assert await fact() == {"encoding": "utf-8"}
        await eventually(lambda: len(daemon.editors.attached) == 1)
        asked = daemon.gate.edit("a.txt", 'x = "🎉"\ny = 1\n')
        approval = await daemon.gate.waiting()
        mark = (await fact())["mark"]
        assert mark["data"] == {"approvalId": approval.id, "outOfScope": False}, "Lua has no null"
        assert (mark["lnum"], mark["col"], mark["end_lnum"], mark["end_col"]) == (0, 0, 1, 5)
        assert (mark["source"], mark["code"]) == ("devtools-lsp", "approval")
        assert await fact() == {"approved": True}
        decision = await asked.task
        assert (decision.approved, decision.by) == (True, "editor")
        command = daemon.gate.ask("bash", args={"command": "make"}, targets=[])
        assert (await fact())["asked"]["kind"] == "lsp_message"
        assert (await command.task).approved
        assert await fact() == {"typed": True}
        await eventually(lambda: daemon.buffers.dirty(["a.txt"]) == ["a.txt"])
        assert daemon.buffers.unsaved("a.txt", None).text == 'typed 😀\nx = "😀"\ny = 1\n'
        Path(f"{go}1").touch()
        assert await fact() == {"saved": True}
        await eventually(lambda: daemon.buffers.dirty(["a.txt"]) == [])
        Path(f"{go}2").touch()
        assert await fact() == {"stopped": True}
        await eventually(lambda: len(daemon.editors.attached) == 0)
    finally:
        if editor.returncode is None:
            editor.kill()
        await editor.wait()
