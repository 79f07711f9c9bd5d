"""A real Neovim with the plugin, embedded and driven over its own RPC."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_serial = itertools.count(1)
PLUGIN = Path(__file__).parents[2] / "editors" / "nvim"

RECORD = """
_G.told = { notes = {}, selects = {}, landed = {} }
vim.notify = function(message, level) table.insert(told.notes, message) end
vim.api.nvim_create_autocmd("User", { pattern = "DevtoolsLanded", callback = function(event)
  table.insert(told.landed, event.data)
end })
"""


def arguments(options: str = "{}") -> list[str]:
    return [
        "-u", "NONE", "-i", "NONE", "-n",
        "--cmd", f"set runtimepath^={PLUGIN}",
        "--cmd", "filetype plugin on",
        "-c", f"lua require('devtools').setup({options})",
    ]  # fmt: skip


class Nvim:
    """One headless Neovim. Lua runs in it with `lua`; `until` polls a Lua expression.

    Spoken to over its own socket with msgpack: one request at a time, which is all that a test needs.
    """

    def __init__(self, project: Any, options: str, wait_until: Callable[..., Any]) -> None:
        import msgpack

        program = shutil.which("nvim")
        assert program is not None
        self._wait_until = wait_until
        address = project.base / f"nvim-{next(_serial)}.sock"
        self._log = address.with_suffix(".log").open("w")
        self.process = subprocess.Popen(
            [program, "--headless", "--listen", str(address), "--cmd", f"lua {RECORD}", *arguments(options)],
            env=project.env,
            cwd=project.base,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)

        def listens() -> bool:
            assert self.process.poll() is None, address.with_suffix(".log").read_text()
            return self._socket.connect_ex(str(address)) == 0

        try:
            wait_until(listens, "Neovim listens")
        except AssertionError:
            self.close()
            raise
        self._pack, self._unpacker = msgpack.packb, msgpack.Unpacker(raw=False, ext_hook=lambda _code, data: data)
        self.pid = self.lua("return vim.fn.getpid()")

    def _receive(self) -> Any:
        while True:
            for message in self._unpacker:
                if message[0] == 1:
                    return message
            data = self._socket.recv(1 << 16)
            if not data:
                raise EOFError("Neovim closed its socket")
            self._unpacker.feed(data)

    def lua(self, code: str, *values: Any) -> Any:
        self._socket.sendall(self._pack([0, next(_serial), "nvim_exec_lua", [code, list(values)]]))
        _kind, _id, problem, result = self._receive()
        assert problem is None, problem
        return result

    def until(self, code: str, *values: Any, what: str = "") -> Any:
        return self._wait_until(lambda: self.lua(code, *values), what or code)

    def edit(self, path: str) -> None:
        self.lua("vim.cmd.edit(vim.fn.fnameescape(...))", path)

    def attached(self, path: str) -> None:
        """Open a file and wait until the daemon knows this editor."""
        self.edit(path)
        self.until(
            "local found = vim.lsp.get_clients({ name = 'devtools', bufnr = 0 })[1] return found and found.initialized",
            what="the client attaches",
        )

    def lines(self) -> list[str]:
        return self.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, false)")

    def pending(self) -> list[dict[str, Any]]:
        return self.lua(
            "return vim.tbl_map(function(item) return { id = item.payload.id, headline = item.headline, "
            "agent = item.payload.agent, step = item.payload.step } end, require('devtools.approvals').list())"
        )

    def marks(self) -> list[list[Any]]:
        return self.lua("return require('devtools.landed').marks(0)")

    def notes(self) -> list[str]:
        return self.lua("return told.notes")

    def choose(self, beginning: str) -> None:
        """From now on `vim.ui.select` takes the first entry that begins so, and records what it was asked."""
        self.lua(
            """
            local beginning = ...
            vim.ui.select = function(items, options, chosen)
              local shown = vim.tbl_map(options.format_item or tostring, items)
              table.insert(told.selects, { prompt = options.prompt, kind = options.kind, items = shown })
              for index, text in ipairs(shown) do
                if vim.startswith(text, beginning) then return chosen(items[index], index) end
              end
              chosen(nil, nil)
            end
            """,
            beginning,
        )

    def quit(self) -> int:
        """Leave as a person does; returns the exit code."""
        self._socket.sendall(self._pack([2, "nvim_command", ["qall!"]]))
        return self.process.wait(15)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(15)
        self._socket.close()
        self._log.close()


@pytest.fixture
def neovim(wait_until: Callable[..., Any]) -> Iterator[Callable[..., Nvim]]:
    """Starts Neovim for a project; skips where there is none."""
    program = shutil.which("nvim")
    if program is None or importlib.util.find_spec("msgpack") is None:
        pytest.skip("Neovim or msgpack is not installed; both come with the extra dev")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    if tuple(int(part) for part in version.removeprefix("NVIM v").split("-")[0].split(".")[:2]) < (0, 11):
        pytest.skip(f"{version} is older than 0.11")
    made: list[Nvim] = []

    def start(project: Any, options: str = "{}") -> Nvim:
        editor = Nvim(project, options, wait_until)
        made.append(editor)
        return editor

    yield start
    for editor in made:
        editor.close()
