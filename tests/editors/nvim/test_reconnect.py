"""The daemon dies, is stopped, is not there: what the plugin does, and what it leaves alone."""

from __future__ import annotations

import time
from typing import Any

import pytest

CONNECTED = """
local found = vim.lsp.get_clients({ name = 'devtools', bufnr = 0 })[1]
return found and found.initialized and found.id ~= ... and found.id or nil
"""


def test_after_a_crash_it_starts_the_daemon_again_and_shows_what_waits_there(new_project: Any, neovim: Any):
    project = new_project({"app.py": "one\n", "plain": "no type\n"})
    editor = neovim(project, "{ reconnect = { first_ms = 20 } }")
    editor.attached(project.path("plain"))
    editor.attached(project.path("app.py"))
    agents = project.agents()
    agents.edit(agents.connect(), "app.py", "one", "two")
    editor.until("return require('devtools.approvals').count() == 1")
    first = editor.lua("return vim.lsp.get_clients({ name = 'devtools' })[1].id")
    project.kill()
    editor.until("return require('devtools.approvals').count() == 0", what="what was lost is shown no more")
    assert editor.lua("return vim.diagnostic.get(0)") == []
    assert editor.until(CONNECTED, first, what="a new client") != first
    assert len(project.daemons()) == 1
    assert editor.lua("return #vim.lsp.get_clients({ name = 'devtools', bufnr = vim.fn.bufnr('plain$') })") == 1
    # And it is an editor as before: an edit is asked about, approved, shown.
    again = project.agents()
    call = again.edit(again.connect("codex"), "app.py", "one", "three")
    editor.until("return require('devtools.approvals').count() == 1")
    editor.lua("vim.cmd.Devtools('approve')")
    call.result(30)
    editor.until("return vim.api.nvim_buf_get_lines(0, 0, -1, false)[1] == 'three'")


def test_a_daemon_that_was_stopped_stays_stopped_until_somebody_starts_it(new_project: Any, neovim: Any):
    project = new_project({"app.py": "one\n"})
    editor = neovim(project, "{ reconnect = { first_ms = 20 } }")
    editor.attached(project.path("app.py"))
    first = editor.lua("return vim.lsp.get_clients({ name = 'devtools' })[1].id")
    editor.lua("vim.cmd.Devtools('stop')")
    project.process.wait(20)
    editor.until("return require('devtools').statusline() == 'devtools · stopped'")
    editor.lua("vim.wait(500)")
    assert project.daemons() == []
    # Somebody else starts it: the editor is there again by itself.
    project.process.stdout.close()
    project.serve()
    second = editor.until(CONNECTED, first, what="attached to the new daemon")
    editor.lua("vim.cmd.Devtools('stop')")
    project.process.wait(20)
    editor.until("return require('devtools').statusline() == 'devtools · stopped'")
    # The person starts it from here.
    editor.lua("vim.cmd.Devtools('start')")
    assert editor.until(CONNECTED, second, what="attached to a third daemon") not in (first, second)


def test_without_the_program_the_editor_goes_on_and_says_so_once(new_project: Any, neovim: Any):
    project = new_project({"app.py": "one\n"}, serve=False)
    editor = neovim(project, "{ cmd = { 'false' }, reconnect = { first_ms = 5, give_up_after = 2 } }")
    editor.edit(project.path("app.py"))
    editor.until("return require('devtools').statusline() == 'devtools · stopped'")
    gave_up = [note for note in editor.notes() if "times in a row" in note]
    assert len(gave_up) == 1
    assert ":checkhealth devtools" in gave_up[0]
    assert editor.lines() == ["one"]


def test_a_socket_may_be_named_in_place_of_a_program(new_project: Any, neovim: Any):
    project = new_project({"app.py": "one\n"}, serve=False)
    project.env["SOCKET_FOR_TEST"] = str(project.base / "run" / "devtools-lsp" / "x.sock")
    project.env["DEVTOOLS_LSP_SOCKET"] = project.env["SOCKET_FOR_TEST"]
    patient = "reconnect = { first_ms = 50, longest_ms = 50, give_up_after = 1000 }"
    editor = neovim(project, f"{{ socket = function() return vim.env.SOCKET_FOR_TEST end, {patient} }}")
    editor.edit(project.path("app.py"))
    editor.until("return require('devtools').statusline() == 'devtools · connecting'")
    (project.base / "run" / "devtools-lsp").mkdir(mode=0o700, exist_ok=True)
    project.serve()
    assert editor.until(CONNECTED, -1, what="attached over the socket")


def test_what_waits_survives_an_editor_that_is_killed(new_project: Any, neovim: Any, wait_until: Any):
    project = new_project({"app.py": "one\n"})
    first = neovim(project)
    first.attached(project.path("app.py"))
    agents = project.agents()
    call = agents.edit(agents.connect(), "app.py", "one", "two")
    wait_until(first.pending, "the first is asked")
    first.process.kill()
    second = neovim(project)
    second.attached(project.path("app.py"))
    wait_until(second.pending, "the second is asked")
    second.lua("vim.cmd.Devtools('approve')")
    assert call.result(30)["ok"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.full)])
def test_many_at_once_are_one_message_and_all_of_them_can_be_answered(
    new_project: Any, neovim: Any, wait_until: Any, count: int
):
    project = new_project({f"f{number}.py": "one\n" for number in range(count)})
    editor = neovim(project)
    editor.attached(project.path("f0.py"))
    agents = project.agents()
    agent = agents.connect()
    calls = [agents.edit(agent, f"f{number}.py", "one", "two") for number in range(count)]
    began = time.monotonic()
    wait_until(
        lambda: editor.lua("return require('devtools.approvals').count()") == count, "all of them", 20 + count / 10
    )
    asked = time.monotonic()
    assert editor.lua("vim.cmd.redraw() return require('devtools').statusline()") == f"devtools · {count} waiting"
    assert time.monotonic() - asked < 2
    print(f"{count} were there after {asked - began:.1f} s")
    wait_until(lambda: any(f"{count} steps wait" in note for note in editor.notes()), "the message")
    assert len(editor.notes()) < 20
    editor.lua(
        "local approvals = require('devtools.approvals') "
        "for _, item in ipairs(approvals.list()) do approvals.decide(item, { approve = true }) end"
    )
    for call in calls:
        assert call.result(60 + count / 10)["ok"]
    editor.until("return require('devtools.approvals').count() == 0")
    assert {project.text(f"f{number}.py") for number in range(count)} == {"two\n"}
