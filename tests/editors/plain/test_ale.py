"""A client that we did not write: Vim's ALE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.editors.workbench import PROGRAM

ALE = Path("/usr/share/vim-ale")
SETUP = """
set nocompatible noswapfile autoread nomore
filetype plugin on
set runtimepath^={ale}
let g:ale_linters = {{'python': ['devtools']}}
let g:ale_virtualtext_cursor = 0
runtime plugin/ale.vim
call ale#linter#Define('python', {{'name': 'devtools', 'lsp': 'stdio', 'executable': '{program}',
  \\ 'command': '%e stdio', 'project_root': {{buffer -> getcwd()}}}})
"""


def test_what_waits_is_marked_and_answered_by_a_code_action(
    new_project: Any, terminal: Any, tool: Any, wait_until: Any
):
    tool("vim")
    if not ALE.is_dir():
        pytest.skip("ALE is not installed (apt-get install --no-install-recommends vim vim-ale)")
    # An editor is listed a moment before it can be asked: the question waits for it.
    waits = '[gate]\nmode = "editor"\nno_editor = "wait"\n'
    project = new_project({"app.py": "one\ntwo\nthree\n"}, configuration=waits)
    (project.base / "vimrc").write_text(SETUP.format(ale=ALE, program=PROGRAM))
    screen = terminal(project)
    screen.start("vim", "-u", str(project.base / "vimrc"), "app.py")
    screen.sees("three")
    screen.keys(":ALELint", "Enter")
    agents = project.agents()
    person = agents.connect("terminal", "terminal")
    wait_until(lambda: agents.do(person.status())["editors"], "Vim is attached")
    call = agents.edit(agents.connect(), "app.py", "two\n", "zwei\ndrei\n")
    screen.sees("--one")  # ALE's sign for an information
    screen.keys("j")
    screen.sees("claude wants to edit app.py (+2 -1)")
    screen.keys(":ALECodeAction", "Enter")
    asked = screen.sees("1) Approve: claude wants to edit app.py (+2 -1)")
    assert "2) Deny: claude" in asked
    screen.keys("1", "Enter")
    assert call.result(30)["decision"]["by"] == "editor"
    assert project.text("app.py") == "one\nzwei\ndrei\nthree\n"
    screen.keys(":checktime", "Enter")
    screen.sees("drei")
    screen.keys(":qa!", "Enter")
