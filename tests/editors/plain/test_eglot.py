"""A client that we did not write: Emacs' eglot."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from devtools_lsp.errors import GateDeclinedError
from tests.editors.workbench import PROGRAM

SETUP = """
(package-initialize)
(require 'eglot)
(setq warning-minimum-level :emergency native-comp-async-report-warnings-errors nil)
(setq create-lockfiles nil make-backup-files nil inhibit-startup-screen t ring-bell-function 'ignore)
(setq auto-revert-interval 1)
(global-auto-revert-mode 1)
(add-to-list 'eglot-server-programs '((python-mode text-mode) . ("{program}" "stdio")))
(add-hook 'find-file-hook 'eglot-ensure)
"""


@pytest.fixture
def emacs(tool: Any, terminal: Any) -> Any:
    """Starts Emacs with eglot on a file of a project, in a terminal."""
    tool("emacs")

    def start(project: Any, name: str) -> Any:
        (project.base / "init.el").write_text(SETUP.format(program=PROGRAM))
        screen = terminal(project)
        screen.start("emacs", "-q", "-nw", "-l", str(project.base / "init.el"), name)
        screen.sees("[eglot:root]")
        return screen

    return start


@pytest.fixture(scope="module", autouse=True)
def has_eglot() -> None:
    """Emacs 29 comes with it, Debian's package adds it to an older one."""
    program = shutil.which("emacs")
    if program is None:
        pytest.skip("Emacs is not installed (apt-get install --no-install-recommends emacs-nox elpa-eglot)")
    found = subprocess.run(
        [program, "-q", "--batch", "--eval", "(progn (package-initialize) (require 'eglot))"],
        capture_output=True,
        timeout=60,
    )
    if found.returncode != 0:
        pytest.skip("this Emacs has no eglot (apt-get install --no-install-recommends elpa-eglot)")


def actions(screen: Any) -> None:
    """Ask for the code actions at the cursor."""
    screen.keys("M-x")
    screen.sees("M-x")
    screen.keys("eglot-code-actions", "Enter")
    screen.sees("[eglot] Pick an action")


def test_what_waits_is_a_diagnostic_with_actions_and_the_buffer_shows_what_lands(new_project: Any, emacs: Any):
    project = new_project({"app.py": "one\ntwo\nthree\n"})
    screen = emacs(project, "app.py")
    agents = project.agents()
    agent = agents.connect()
    call = agents.edit(agent, "app.py", "two\n", "zwei\ndrei\n")
    # Flymake counts it as a note, and says it where the cursor is.
    screen.sees("Flymake[0 0 1]")
    screen.keys("C-n")
    screen.sees("devtools-lsp [approval]: claude wants to edit app.py (+2 -1)")
    actions(screen)
    screen.keys("Show", "Tab", "Enter")
    screen.sees("+zwei")
    actions(screen)
    screen.keys("Appr", "Tab", "Enter")
    assert call.result(30)["decision"]["by"] == "editor"
    assert project.text("app.py") == "one\nzwei\ndrei\nthree\n"
    screen.sees("zwei\ndrei\nthree")
    screen.sees("Flymake[0 0]")


def test_a_question_without_a_file_is_asked_and_enter_alone_approves_nothing(new_project: Any, emacs: Any):
    """Eglot offers the first choice as what Enter takes."""
    project = new_project({"app.py": "one\n"})
    screen = emacs(project, "app.py")
    agents = project.agents()
    agent = agents.connect()
    patch = "*** Begin Patch\n*** Add File: new.py\n+x = 1\n*** End Patch\n"
    call = agents.call(agent, "apply_patch", {"patch": patch})
    screen.sees("claude wants to patch new.py (+1 -0)")
    screen.sees("Choose an option: Show diff")
    screen.keys("Enter")
    # It is asked again below the diff, until it is answered.
    screen.sees("+x = 1")
    screen.sees("Choose an option: Show diff")
    assert not call.done()
    screen.keys("C-a", "C-k", "Deny", "Enter")
    with pytest.raises(GateDeclinedError):
        call.result(30)
    assert not (project.root / "new.py").exists()
