"""What a person sees: Neovim in a real terminal under tmux, driven by keys alone."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich._export_format import CONSOLE_SVG_FORMAT

from tests.editors.neovim import PLUGIN
from tests.editors.workbench import PICTURES


class Terminal:
    """A tmux server of its own with one pane."""

    def __init__(self, project: Any, wait_until: Callable[..., Any]) -> None:
        self._tmux = ["tmux", "-S", str(project.base / "tmux.sock"), "-f", "/dev/null"]
        self._wait_until = wait_until
        self._project = project

    def start(self, *command: str) -> None:
        size = ["-x", "110", "-y", "32"]
        environment = {**self._project.env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        subprocess.run(
            [*self._tmux, "new-session", "-d", *size, shlex.join(command)],
            env=environment,
            cwd=self._project.root,
            check=True,
        )

    def screen(self) -> str:
        return subprocess.run([*self._tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True).stdout

    def keys(self, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def sees(self, words: str) -> str:
        try:
            return self._wait_until(lambda: words in self.screen() and self.screen(), f"{words!r} on the screen")
        except AssertionError:
            print(self.screen())
            raise

    def picture(self, name: str) -> None:
        """The screen as an SVG, in colours."""
        from rich.console import Console
        from rich.text import Text

        screen = subprocess.run(
            [*self._tmux, "capture-pane", "-p", "-e", "-N"], capture_output=True, text=True, check=True
        )
        with (self._project.base / "picture.txt").open("w") as nowhere:
            console = Console(record=True, width=110, file=nowhere, force_terminal=True, color_system="truecolor")
            console.print(Text.from_ansi(screen.stdout.rstrip("\n")), soft_wrap=True)
        PICTURES.mkdir(parents=True, exist_ok=True)
        # Fonts come from whoever looks at it, not from the network.
        frame = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
        svg = console.export_svg(title="nvim", code_format=frame, unique_id="neovim")
        assert "https://" not in svg.replace("https://www.textualize.io", "")
        (PICTURES / f"{name}.svg").write_text(svg)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def terminal(tool: Callable[[str], str], wait_until: Callable[..., Any]) -> Iterator[Callable[..., Terminal]]:
    tool("tmux")
    tool("nvim")
    made: list[Terminal] = []

    def open_terminal(project: Any) -> Terminal:
        made.append(Terminal(project, wait_until))
        return made[-1]

    yield open_terminal
    for found in made:
        found.close()


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
    project = new_project({"app.py": "one\n"})
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
