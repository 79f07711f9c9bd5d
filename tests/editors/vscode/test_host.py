"""The extension inside the real extension host; the scenes are in host/index.cjs."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
LARGE = "[workspace]\nmax_bytes_per_file = 16777216\nmax_total_bytes = 67108864\n"
RUFF = '[engines.ruff]\npreset = "ruff"\n[gate]\nmode = "editor"\n'


@pytest.mark.timeout(240)
def test_scenes_inside_the_extension_host(new_project: Any, code_server: Any, vsix: Path, tool: Any, wait_until: Any):
    tool("ruff")
    project = new_project(
        {
            "app.py": "eins 🙂\nzwei\ndrei\n",
            "other.py": "x = 1\ny = 1\n",
            "wide.py": "x = '🙂'; import os\n",
            "long.py": "".join(f"line {number}\n" for number in range(1, 41)),
        },
        configuration=LARGE + RUFF,
    )
    agents = project.agents()
    early = agents.connect("early")
    terminal = agents.connect("terminal", "terminal")
    agents.do(terminal.approvals(watch=True))
    call = agents.call(
        early, "apply_patch", {"patch": "*** Begin Patch\n*** Add File: early.py\n+x = 1\n*** End Patch\n"}
    )
    (item,) = wait_until(lambda: agents.do(terminal.approvals()), "the approval")
    agents.do(terminal.decide(item["id"], True))
    call.result(30)
    project.env["DAEMON_PID"] = str(project.process.pid)
    settings = {"devtools.landed.brightSeconds": 1, "devtools.landed.fadingSeconds": 1, "devtools.ask": "silent"}
    server = code_server(project, **settings)
    server.install(vsix)
    server.start()
    # The tests come with an extension of their own; the one under test is the packaged one.
    page = server.open(
        {
            "extensionDevelopmentPath": server.remote(HERE / "host"),
            "extensionTestsPath": server.remote(HERE / "host" / "index.cjs"),
            "skipWelcome": "true",
        }
    )
    try:
        code = page.exits.get(timeout=200)
    except queue.Empty:
        page.picture("extension-host-failed")
        code = "no end"
    told = [line for line in page.logged if line.startswith(("ok   ", "FAIL ", "done "))]
    print("\n".join(told))
    assert code == 0, "\n".join([*(told or page.logged[-20:]), server.logs()])
    assert any(line.startswith("done ") and line.endswith(", 0 failed") for line in told)
