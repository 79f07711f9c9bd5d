"""`devtools-lsp stdio`: an editor's stdin and stdout, copied to and from the daemon's socket.

Starts the daemon when none runs. Only the standard library, and as little of it as possible, stands between the
editor and its first byte. Reads nothing of what it copies; prints its own words on stderr only.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from devtools_lsp import discovery
from devtools_lsp.errors import DevToolsError, InvalidConfigError

USAGE = "usage: devtools-lsp stdio [--root DIR]"
_CHUNK_BYTES = 64 * 1024
_LAST_WORDS_S = 10.0
"""How long the daemon may still answer after the editor has closed its end; its own bounds are shorter."""


def main(arguments: Sequence[str]) -> int:
    """Run the proxy with the arguments after `stdio`; returns the exit code."""
    try:
        root = _read_arguments(arguments)
        if root is None:
            print(f"{USAGE}\n\nConnects stdin and stdout to the workspace's daemon, which is started when none runs.")
            return 0
        return run(discovery.find_root(Path.cwd()) if root == "" else discovery.checked_root(root))
    except DevToolsError as error:
        return _fail(error.message)
    except OSError as error:
        return _fail(f"cannot reach the daemon: {error}")
    except KeyboardInterrupt:
        return 130


def run(root: Path, command: Sequence[str] | None = None) -> int:
    """Copy until either side ends; `command` replaces how a daemon is started. Raises what `connect_or_start` does."""
    daemon = discovery.connect_or_start(root, command=command)
    with daemon:
        # Reading stdin cannot be interrupted, so it has the thread that dies with the process.
        threading.Thread(target=_copy_in, args=(daemon,), daemon=True).start()
        return _copy_out(daemon)


def _read_arguments(arguments: Sequence[str]) -> str | None:
    """The root that was named, "" for the default, None when help was asked for."""
    root = ""
    rest = list(arguments)
    while rest:
        option = rest.pop(0)
        if option in ("--help", "-h"):
            return None
        if option == "--root" and rest:
            root = rest.pop(0)
        elif option.startswith("--root=") and option != "--root=":
            root = option.removeprefix("--root=")
        else:
            raise InvalidConfigError(f"cannot use {option!r}\n{USAGE}")
    return root


def _copy_in(daemon: socket.socket) -> None:
    try:
        while chunk := os.read(0, _CHUNK_BYTES):
            daemon.sendall(chunk)
        daemon.settimeout(_LAST_WORDS_S)
        daemon.shutdown(socket.SHUT_WR)
    except OSError:
        # The daemon is gone; the other direction sees that, too, and ends the process.
        return


def _copy_out(daemon: socket.socket) -> int:
    while True:
        try:
            chunk = daemon.recv(_CHUNK_BYTES)
        except TimeoutError:
            return _fail(f"the daemon did not end the connection within {_LAST_WORDS_S:g} s")
        except OSError as error:
            return _fail(f"the connection to the daemon broke: {error.strerror}")
        if not chunk:
            return 0
        view = memoryview(chunk)
        try:
            while view:
                view = view[os.write(1, view) :]
        except OSError:
            # The editor closed its end: nobody is left to copy for.
            return 0


def _fail(message: str) -> int:
    print(f"devtools-lsp: {message}", file=sys.stderr)
    return 1
