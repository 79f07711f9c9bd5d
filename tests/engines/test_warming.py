"""What is learnt in quiet moments, and that it never stands in the way of a call."""

from __future__ import annotations

import time
from typing import Any

from devtools_lsp.engines.spec import spec_from_table
from devtools_lsp.engines.tree import FileEvent

FILES = {
    "lib.py": "def total(x: int) -> int:\n    return x\n",
    "user.py": "from lib import total\n\nprint(total(1))\n",
    "far.py": "import user\n\nprint(user)\n",
    "apart.py": "x: int = ''\n",
}


def judge_of(scene: Any) -> Any:
    return scene.registry._entries[scene.engine_id].served._judge


async def test_baselines_are_learnt_when_it_is_quiet_and_kept_where_they_hold(
    make_scene: Any, engines: Any, tool: Any
) -> None:
    tool("basedpyright-langserver")
    scene = make_scene(spec_from_table("basedpyright", {"preset": "basedpyright"}), files=FILES)
    await scene.registry.start()
    judge = judge_of(scene)

    def unknown() -> list[str] | None:
        session = scene.registry._entries["basedpyright"].server.current
        return judge.unknown(session) if session is not None and judge.tree.files else None

    await engines.eventually(lambda: unknown() == [], within_s=20, what="everything is known")
    scene.write({"lib.py": FILES["lib.py"] + "\n# landed\n"})
    await scene.registry.files_changed([FileEvent("lib.py", "changed")])
    verdict = await scene.compare(changes={"apart.py": "x: int = 1\n"}, deadline_s=10)
    assert [e.rule for e in verdict.resolved] == ["reportAssignmentType"]
    # What does not depend on the changed file was carried over, the rest is learnt again.
    assert set(unknown() or []) <= {"lib.py", "user.py", "far.py"}
    await engines.eventually(lambda: unknown() == [], within_s=20, what="everything is known again")


async def test_a_call_does_not_wait_for_it(make_scene: Any, engines: Any) -> None:
    """The server answers nothing but the call's file: the question under way is given up at once."""
    spec = engines.zoo_spec("answers_one_file.py", "a.py", dependents="workspace", judges_closed=True, timeout_s=5)
    scene = make_scene(spec, files={"a.py": "x = bad\n", "b.py": "", "c.py": ""})
    await scene.registry.start()
    server = scene.registry._entries["zoo"].server
    await engines.eventually(
        lambda: server.current is not None and server.current.connection._waiting, what="it learns"
    )
    started = time.monotonic()
    delta = await scene.run("check", "a.py")
    assert [f.rule for f in delta.diagnostics] == ["bad"]
    assert time.monotonic() - started < 1
