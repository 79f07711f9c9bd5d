"""A real terminal for editors that live in one: tmux, driven by keys, read as a person reads it."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich._export_format import CONSOLE_SVG_FORMAT

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
    made: list[Terminal] = []

    def open_terminal(project: Any) -> Terminal:
        made.append(Terminal(project, wait_until))
        return made[-1]

    yield open_terminal
    for found in made:
        found.close()
