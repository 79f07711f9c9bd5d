"""What a person sees and clicks in VS Code's workbench, with pictures; and Neovim beside it on the same daemon."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.errors import GateDeclinedError

SOURCE = '''"""Prices of a basket."""


def total(prices: list[float]) -> float:
    """The sum of all prices."""
    return sum(prices)


def average(prices: list[float]) -> float:
    """The mean price."""
    return total(prices) / len(prices)
'''
ASKS = "claude wants to edit"
STATUS = '.statusbar-item:has-text("{}")'


@pytest.mark.timeout(300)
def test_a_person_sees_the_question_everywhere_and_answers_with_a_click(
    new_project: Any, code_server: Any, neovim: Any, vsix: Path, wait_until: Any
):
    project = new_project({"app.py": SOURCE})
    server = code_server(project, **{"devtools.landed.brightSeconds": 30})
    server.install(vsix)
    server.start()
    page = server.open({"openFile": server.remote(Path(project.path("app.py")))})
    page.do("see", '.view-line:has-text("def average")')
    page.do("see", STATUS.format("devtools"))
    beside = neovim(project)
    beside.attached(project.path("app.py"))
    agents = project.agents()
    agent = agents.connect()
    terminal = agents.connect("terminal", "terminal")
    wait_until(lambda: len(agents.do(terminal.status())["editors"]) == 2, "both editors")

    # The same question stands in both editors: a notification, the status bar, a mark in the file; a mark in Neovim.
    call = agents.edit(
        agent,
        "app.py",
        "    return total(prices) / len(prices)\n",
        "    if not prices:\n        return 0.0\n    return total(prices) / len(prices)\n",
    )
    page.do("see", STATUS.format("1 waiting"))
    page.do("see", ".squiggly-info")
    (asked,) = wait_until(beside.pending, "Neovim is asked, too")
    page.picture("vscode-question")

    # The diff, and Approve in its title bar. Neovim's question goes away, both show the new text.
    page.do("click", f'{page.notice(ASKS)} .monaco-button:has-text("Show Diff")')
    page.do("see", '.monaco-diff-editor .view-line:has-text("return 0.0")')
    page.do("see", '.tab:has-text("app.py: claude wants to edit app.py")')
    page.picture("vscode-diff")
    page.do("click", '.editor-actions .action-label[aria-label^="Approve"]')
    assert call.result(30)["decision"]["by"] == "editor"
    page.do("miss", ".monaco-diff-editor")
    page.do("see", '.view-line:has-text("return 0.0")')
    page.do("see", STATUS.format("devtools"))
    wait_until(lambda: not beside.pending(), "nothing waits in Neovim")
    wait_until(lambda: "        return 0.0" in beside.lines(), "Neovim shows it")
    assert asked["headline"] == "claude wants to edit app.py (+2 -0)"
    page.picture("vscode-landed")

    # Neovim answers the next one: it goes away here.
    call = agents.edit(agent, "app.py", "0.0", "float(0)")
    page.do("see", STATUS.format("1 waiting"))
    wait_until(beside.pending, "Neovim is asked")
    beside.lua("vim.cmd.Devtools('deny')")
    with pytest.raises(GateDeclinedError):
        call.result(30)
    page.do("miss", STATUS.format("1 waiting"))
    page.do("miss", ".squiggly-info")

    # The editor's own gesture: Ctrl+. on the line, Deny from the menu.
    call = agents.edit(agent, "app.py", '"""Prices of a basket."""', '"""Prices."""')
    page.do("see", ".squiggly-info")
    page.do("click", '.view-line:has-text("Prices of a basket")')
    page.do("press", "Control+Home")
    page.do("press", "Control+.")
    page.do("see", '.action-widget .monaco-list-row:has-text("Approve: claude")')
    page.picture("vscode-quick-fix")
    page.do("press", "ArrowDown")
    page.do("press", "Enter")
    with pytest.raises(GateDeclinedError):
        call.result(30)
    assert project.text("app.py").startswith('"""Prices of a basket."""')

    # The lists: what waits, and the plan that landed.
    call = agents.edit(agent, "app.py", "The mean price", "The arithmetic mean")
    page.command("Agents: Focus on Waiting for You View")
    row = '.tree-explorer-viewlet-tree-view .monaco-list-row:has-text("claude wants to edit app.py (+1 -1)")'
    page.do("see", row)
    page.do("see", '.tree-explorer-viewlet-tree-view .monaco-list-row:has-text("1 file")')
    page.do("hover", row)
    page.picture("vscode-lists")
    page.do("click", f'{row} .action-label[aria-label^="Approve"]')
    assert call.result(30)["ok"]
    page.do("see", '.view-line:has-text("arithmetic")')


LINES = "".join(f"line {number}\n" for number in range(1, 41))
LONG = "".join(f"line {number}\n" for number in range(1, 101))
PICK = '.quick-input-list .monaco-list-row:has-text("{}")'
TITLE = '.editor-actions .action-label[aria-label^="{}"]'


@pytest.mark.timeout(300)
def test_a_person_takes_the_hunks_that_they_want_and_remembers(
    new_project: Any, code_server: Any, vsix: Path, wait_until: Any
):
    """I5: what is written is what stands at the right side when it is approved."""
    project = new_project({"app.py": LONG})
    server = code_server(project, **{"diffEditor.codeLens": True})
    server.install(vsix)
    server.start()
    page = server.open()
    page.do("see", ".statusbar-item .codicon-shield")
    agents = project.agents()
    agent = agents.connect()
    edits = [
        {"find": "line 2\n", "replace": "second\n"},
        {"find": "line 50\n", "replace": "middle\n"},
        {"find": "line 98\n", "replace": "last but two\n"},
    ]
    call = agents.call(agent, "edit", {"path": "app.py", "edits": edits})
    page.do("click", f'{page.notice(ASKS)} .monaco-button:has-text("Show Diff")')
    row = '.monaco-diff-editor .modified .view-line:has-text("{}")'
    page.do("see", row.format("second"))
    page.do("see", '.monaco-diff-editor .codelens-decoration:has-text("Leave This Hunk Out")')

    # At the hunk itself, by a click.
    page.do("click", '.monaco-diff-editor .codelens-decoration a:has-text("Leave This Hunk Out")')
    page.do("miss", row.format("second"))
    # From the list in the title bar: what is not checked is not written, and is seen to be gone.
    page.do("click", TITLE.format("Choose Hunks"))
    page.do("see", PICK.format("+last but two"))
    page.do("click", PICK.format("app.py:98"))
    page.picture("vscode-hunks")
    page.do("press", "Enter")
    page.do("see", row.format("line 98"))
    # By keys at the cursor.
    page.do("click", row.format("line 97"))
    page.do("press", "Control+Home")
    page.do("press", "ArrowDown")
    page.do("press", "Control+k")
    page.do("press", "h")
    page.do("see", row.format("second"))

    # What would be remembered is read before, what would keep it is offered after.
    page.do("click", '.editor-actions .action-label[aria-label^="More Actions"], .editor-actions .codicon-toolbar-more')
    page.do("choose", '.monaco-menu .action-item:has-text("Remember and Approve")')
    page.do("see", '.monaco-dialog-box:has-text("Let claude change files directly in the root without asking")')
    page.do("click", '.monaco-dialog-box .monaco-button:has-text("Remember and Approve")')
    decision = call.result(30)["decision"]
    assert len(decision["dropped"]) == 1
    assert not decision["edited"]
    assert project.text("app.py") == LONG.replace("line 2\n", "second\n").replace("line 50\n", "middle\n")
    page.do("click", f'{page.notice("keeps it for good")} .monaco-button:has-text("Show the Rule")')
    page.do("see", '.view-line:has-text("[[gate.rules]]")')
    page.do("see", '.view-line:has-text("agent = \\"claude\\"")')


@pytest.mark.timeout(300)
def test_an_agents_words_are_read_as_words(new_project: Any, code_server: Any, vsix: Path, wait_until: Any):
    """Neither as icons, which would hide them, nor as links, which would run the editor's commands."""
    project = new_project({"app.py": LINES})
    server = code_server(project)
    server.install(vsix)
    server.start()
    page = server.open()
    page.do("see", ".statusbar-item .codicon-shield")
    agents = project.agents()
    agent, shell = agents.connect(), agents.connect("runner", surface="workspace")
    command = "echo $(trash) [look](command:workbench.action.closeWindow)"
    other = agents.edit(agent, "app.py", "line 7\n", "row 7\n")
    call = agents.call(shell, "bash", {"command": command})
    page.notice("echo $(trash) [look] (command:")
    assert page.do("count", ".notifications-center .notification-list-item-message a") == 0
    page.command("Devtools: Choose What Waits")
    page.do("see", PICK.format("echo $(trash)"))
    assert page.do("count", ".quick-input-list .codicon-trash") == 0
    page.do("press", "Escape")
    terminal = agents.connect("terminal", "terminal")
    for item in agents.do(terminal.approvals()):
        agents.do(terminal.decide(item["id"], False))
    for declined in (call, other):
        with pytest.raises(GateDeclinedError):
            declined.result(30)


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_thousand_wait_and_the_workbench_still_answers(
    new_project: Any, code_server: Any, vsix: Path, wait_until: Any
):
    count = 1000
    project = new_project({f"f{number}.py": "one\n" for number in range(count)})
    server = code_server(project)
    server.install(vsix)
    server.start()
    page = server.open({"openFile": server.remote(Path(project.path("f7.py")))})
    page.do("see", ".statusbar-item .codicon-shield")
    agents = project.agents()
    agent = agents.connect()
    began = time.monotonic()
    calls = [agents.edit(agent, f"f{number}.py", "one", "two") for number in range(count)]
    page.do("wait", STATUS.format(f"{count} waiting"), 120_000)
    print(f"{count} waiting are shown {time.monotonic() - began:.1f} s after the first was asked")
    assert page.do("count", ".notification-toast") <= 3
    page.do("see", ".squiggly-info")
    page.command("Agents: Focus on Waiting for You View")
    began = time.monotonic()
    page.do("see", '.tree-explorer-viewlet-tree-view .monaco-list-row:has-text("claude wants to edit")')
    page.command("Devtools: Choose What Waits")
    page.do("see", PICK.format("claude wants to edit"))
    page.do("type", "f77.py")
    page.do("see", PICK.format("edit f77.py"))
    page.do("press", "Enter")
    page.do("see", '.monaco-diff-editor .view-line:has-text("two")')
    took = time.monotonic() - began
    print(f"the list, a choice from it and its diff took {took:.1f} s")
    assert took < 20
    assert page.do("count", ".tree-explorer-viewlet-tree-view .monaco-list-row") < 100
    page.do("click", TITLE.format("Approve"))
    page.do("see", STATUS.format(f"{count - 1} waiting"))
    terminal = agents.connect("terminal", "terminal")
    for item in agents.do(terminal.approvals()):
        agents.do(terminal.decide(item["id"], True))
    for call in calls:
        assert call.result(120)["ok"]
    page.do("wait", STATUS.format("devtools"), 60_000)


@pytest.mark.timeout(300)
def test_each_root_of_a_workspace_has_its_own_daemon(new_project: Any, code_server: Any, vsix: Path, wait_until: Any):
    first, second = new_project({"one.py": "x = 1\n"}), new_project({"two.py": "y = 1\n"}, serve=False)
    server = code_server(first)
    server.install(vsix)
    server.start()
    workspace = first.base / "both.code-workspace"
    workspace.write_text(f'{{"folders": [{{"path": "{first.root}"}}, {{"path": "{second.root}"}}]}}')
    page = server.open(workspace=str(workspace))
    wait_until(second.daemons, "the second root's daemon is started", 60)
    # Until both are connected it spins.
    page.do("see", ".statusbar-item .codicon-shield")
    calls = []
    for project, name, find in ((first, "one.py", "x = 1"), (second, "two.py", "y = 1")):
        agents = project.agents()
        calls.append(agents.edit(agents.connect(start=True), name, find, "z = 2"))
    page.do("see", STATUS.format("2 waiting"))
    page.command("Devtools: Choose What Waits")
    page.do("see", '.quick-input-list .monaco-list-row:has-text("edit one.py")')
    page.do("see", '.quick-input-list .monaco-list-row:has-text("edit two.py")')
    page.do("press", "Escape")
    for name in ("one.py", "two.py"):
        page.do("click", f'{page.notice(name)} .monaco-button:has-text("Approve")')
    for call in calls:
        assert call.result(30)["ok"]


@pytest.mark.timeout(300)
def test_nothing_is_started_in_a_workspace_that_is_not_trusted(
    new_project: Any, code_server: Any, vsix: Path, wait_until: Any
):
    project = new_project({"app.py": SOURCE}, serve=False)
    # A workspace that tries to name the program itself: a setting of the machine's scope is none of its business.
    trap = project.base / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {project.base}/sprung\n")
    trap.chmod(0o755)
    project.put({".vscode/settings.json": f'{{"devtools.path": "{trap}"}}'})
    asks = {"security.workspace.trust.enabled": True, "security.workspace.trust.startupPrompt": "always"}
    server = code_server(project, **asks)
    server.install(vsix)
    server.start(trusting=False)
    page = server.open()
    page.do("see", '.monaco-dialog-box:has-text("Do you trust the authors")')
    page.do("click", '.monaco-dialog-box .monaco-button:has-text("No, I don")')
    page.do("see", '.statusbar-item:has-text("Restricted Mode")')
    page.command("Devtools: Attach to the Daemon")
    page.command("Devtools: Show Status")
    page.notice("not trusted")
    assert project.daemons() == []
    page.command("Workspaces: Manage Workspace Trust")
    page.do("click", '.workspace-trust-editor .monaco-button:has-text("Trust")')
    wait_until(project.daemons, "the daemon is started", 60)
    page.do("see", STATUS.format("devtools"))
    assert not (project.base / "sprung").exists()
