"""What a person sees: Neovim in a real terminal under tmux, driven by keys alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.editors.neovim import PLUGIN

pytestmark = pytest.mark.usefixtures("in_a_terminal")


@pytest.fixture
def in_a_terminal(tool: Any) -> None:
    tool("nvim")


def test_a_person_reads_the_diff_drops_nothing_and_approves_with_one_key(new_project: Any, terminal: Any):
    project = new_project({"app.py": "def total(prices):\n    return sum(prices)\n"})
    screen = terminal(project)
    screen.start(
        "nvim", "-u", "NONE", "-i", "NONE", "-n",
        "--cmd", f"set termguicolors runtimepath^={PLUGIN} laststatus=2",
        "--cmd", r"set statusline=%f\ %{v:lua.require'devtools'.statusline()}",
        "--cmd", "syntax on", "-c", "lua vim.diagnostic.config({ virtual_text = true })",
        "-c", "lua require('devtools').setup()",
        "app.py",
    )  # fmt: skip
    screen.sees("app.py devtools\n")
    agents = project.agents()
    call = agents.edit(agents.connect(), "app.py", "sum(prices)", "round(sum(prices), 2)")
    screen.sees("app.py devtools · 1 waiting")
    screen.sees("claude wants to edit app.py (+1 -1)")
    screen.keys(":Devtools diff", "Enter")
    shown = screen.sees("+    return round(sum(prices), 2)")
    assert "-    return sum(prices)" in shown
    assert "a approve" in shown
    screen.picture("neovim-diff")
    screen.keys("a")
    call.result(30)
    after = screen.sees("return round(sum(prices), 2) claude")
    screen.picture("neovim-landed")
    assert "waiting" not in after
    screen.keys(":qa", "Enter")


def test_the_editors_own_gesture_asks_in_its_own_list(new_project: Any, terminal: Any):
    # An editor is listed a moment before it can be asked: the question waits for it.
    waits = '[gate]\nmode = "editor"\nno_editor = "wait"\n'
    project = new_project({"app.py": "one\n"}, configuration=waits)
    screen = terminal(project)
    screen.start(
        "nvim", "-u", "NONE", "-i", "NONE", "-n", "--cmd", f"set runtimepath^={PLUGIN}",
        "-c", "lua vim.diagnostic.config({ virtual_text = true })",
        "-c", "lua require('devtools').setup({ ask = false })", "app.py",
    )  # fmt: skip
    screen.sees("one")
    agents = project.agents()
    agent = agents.connect()
    terminal_client = agents.connect("terminal", "terminal")
    screen._wait_until(lambda: agents.do(terminal_client.status())["editors"], "Neovim is attached")
    call = agents.edit(agent, "app.py", "one", "two")
    screen.sees("claude wants to edit app.py")
    screen.keys("g", "r", "a")
    asked = screen.sees("Approve: claude wants to edit app.py (+1 -1)")
    assert "Deny: claude wants to edit app.py (+1 -1)" in asked
    assert "Show diff: claude" in asked
    screen.keys("1", "Enter")
    assert call.result(30)["ok"]
    screen.sees("two")
