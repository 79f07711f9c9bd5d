"""The plugin against the real daemon: findings, an approval by code action, what lands, a clean exit."""

from __future__ import annotations

from typing import Any

import pytest

from devtools_lsp.errors import GateDeclinedError

RUFF = '[engines.ruff]\npreset = "ruff"\n[gate]\nmode = "editor"\n'

CODE_ACTION = """
vim.api.nvim_win_set_cursor(0, { ..., 0 })
vim.lsp.buf.code_action({ apply = true, filter = function(action) return vim.startswith(action.title, "%s") end })
"""


def approval_marks(editor: Any) -> list[Any]:
    return editor.lua(
        "return vim.tbl_filter(function(found) return found.code == 'approval' end, vim.diagnostic.get(0))"
    )


def test_findings_of_an_agents_run_arrive_with_their_engine(new_project: Any, neovim: Any, wait_until: Any, tool: Any):
    """I9: `data` names the engine, and whether the file was in the workspace."""
    tool("ruff")
    project = new_project({"app.py": "import os\n\nx = 'ä'; import sys\n"}, configuration=RUFF)
    editor = neovim(project)
    editor.attached(project.path("app.py"))
    agents = project.agents()
    agents.call(agents.connect(), "lint", {"paths": ["app.py"]}).result(30)
    found = wait_until(lambda: editor.lua("return vim.diagnostic.get(0)"), "diagnostics")
    assert {entry["source"] for entry in found} == {"ruff"}
    by_line = {(entry["lnum"], entry["code"]): entry for entry in found}
    assert by_line[(0, "F401")]["user_data"]["lsp"]["data"] == {"engineId": "ruff", "outOfScope": False}
    # Neovim negotiates UTF-8: the umlaut before it takes two units.
    assert by_line[(2, "F401")]["col"] == len("x = 'ä'; import ".encode())


def test_an_edit_waits_is_approved_by_code_action_and_appears(new_project: Any, neovim: Any, wait_until: Any):
    project = new_project({"app.py": "one\ntwo\nthree\n"})
    editor = neovim(project)
    editor.attached(project.path("app.py"))
    agents = project.agents()
    call = agents.edit(agents.connect(), "app.py", "two\n", "zwei\ndrei\n")
    (mark,) = wait_until(lambda: approval_marks(editor), "the approval")
    assert mark["severity"] == editor.lua("return vim.diagnostic.severity.INFO")
    assert mark["source"] == "devtools-lsp"
    assert mark["message"].startswith("claude wants to edit app.py (+2 -1)")
    # Neovim decodes null to nil, which a Lua table cannot hold: `engineId` is absent there.
    data = mark["user_data"]["lsp"]["data"]
    assert data == {"approvalId": editor.pending()[0]["id"], "outOfScope": False}
    assert not call.done()
    assert project.text("app.py") == "one\ntwo\nthree\n"

    editor.lua(CODE_ACTION % "Approve", mark["lnum"] + 1)
    result = call.result(30)
    assert result["decision"]["by"] == "editor"
    assert project.text("app.py") == "one\nzwei\ndrei\nthree\n"
    wait_until(lambda: editor.lines() == ["one", "zwei", "drei", "three"], "the buffer shows it")
    assert editor.lua("return vim.bo.modified") is False
    assert wait_until(editor.marks, "highlights") == [[2, 3, "DevtoolsLanded"]]
    assert editor.lua("return told.landed[1].agent") == "claude"
    wait_until(lambda: not approval_marks(editor) and not editor.pending(), "the approval goes")


def test_a_denied_edit_leaves_everything_as_it_was(new_project: Any, neovim: Any, wait_until: Any):
    project = new_project({"app.py": "one\n"})
    editor = neovim(project)
    editor.attached(project.path("app.py"))
    agents = project.agents()
    call = agents.edit(agents.connect(), "app.py", "one", "two")
    (mark,) = wait_until(lambda: approval_marks(editor), "the approval")
    editor.lua(CODE_ACTION % "Deny", mark["lnum"] + 1)
    with pytest.raises(GateDeclinedError):
        call.result(30)
    assert project.text("app.py") == "one\n"
    wait_until(lambda: not approval_marks(editor), "the approval goes")
    assert editor.marks() == []
    assert editor.lua("return told.landed") == []


def test_any_file_under_the_root_attaches_whatever_its_type(new_project: Any, neovim: Any, wait_until: Any):
    project = new_project({"notes": "no type\n", "deep/er/data.xyz": "none either\n"})
    editor = neovim(project)
    editor.attached(project.path("notes"))
    editor.attached(project.path("deep/er/data.xyz"))
    assert editor.lua("return #vim.lsp.get_clients({ name = 'devtools' })") == 1
    editor.edit(str(project.base / "outside.txt"))
    editor.lua("vim.wait(50)")
    assert editor.lua("return #vim.lsp.get_clients({ bufnr = 0 })") == 0


def test_leaving_ends_the_proxy_and_leaves_the_daemon(new_project: Any, neovim: Any, wait_until: Any):
    project = new_project({"app.py": "one\n"})
    editor = neovim(project)
    editor.attached(project.path("app.py"))
    agents = project.agents()
    terminal = agents.connect("terminal", "terminal")
    assert [entry["name"] for entry in agents.do(terminal.status())["editors"]] == ["Neovim"]
    assert editor.quit() == 0
    wait_until(lambda: agents.do(terminal.status())["editors"] == [], "the editor is gone")
    assert project.process.poll() is None
