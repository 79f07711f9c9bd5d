"""The proxy's connection to a daemon: made, agreed on, and used without waiting."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import msgspec

from devtools_lsp import __version__, discovery
from devtools_lsp.errors import ConflictError, DevToolsError, StepFailedError
from devtools_lsp.wire.framing import Fault, FrameDecoder, encode_frame
from devtools_lsp.wire.messages import DEVTOOLS_ERROR, METHOD_NOT_FOUND, Request, Surface, encode

GREETING_S = 30.0
CHUNK_BYTES = 256 * 1024
OWN = "devtools-lsp:"
"""What the ids of our own requests begin with."""


class Downstream:
    """One connection to a daemon that has agreed to serve an MCP client."""

    def __init__(self, root: Path, surface: Surface, session: str | None) -> None:
        """Start the daemon when none runs. Raises DevToolsError or OSError when it cannot be reached or refuses."""
        self.socket = discovery.connect_or_start(root)
        self.decoder = FrameDecoder()
        self.waiting = bytearray()
        self._finished = False
        try:
            self._agree(root, surface, session)
        except BaseException:
            self.socket.close()
            raise
        self.socket.setblocking(False)

    def _agree(self, root: Path, surface: Surface, session: str | None) -> None:
        params = {"root": str(root), "surface": surface} | ({"session": session} if session is not None else {})
        self.socket.settimeout(GREETING_S)
        self.socket.sendall(encode_frame(encode(Request(id=OWN, method="devtools/mcp", params=params))))
        body: bytes | Fault | None = None
        while body is None:
            data = self.socket.recv(CHUNK_BYTES)
            if not data:
                raise StepFailedError("the daemon ended while it was asked to serve an MCP client; try again")
            self.decoder.feed(data)
            body = self.decoder.next()
        if isinstance(body, Fault):
            raise StepFailedError(f"the daemon sent something else than frames: {body.message}")
        answer: dict[str, Any] = msgspec.json.decode(body)
        error = answer.get("error")
        if error is None:
            if answer["result"]["version"] != __version__:
                say(f"the daemon is devtools-lsp {answer['result']['version']}, and this is {__version__}")
            return
        if error["code"] == DEVTOOLS_ERROR:
            raise DevToolsError.from_wire(error["data"])
        told = "is of a version that serves no MCP clients" if error["code"] == METHOD_NOT_FOUND else error["message"]
        raise ConflictError(f"the daemon {told}; `devtools-lsp stop` ends it, and the next call starts another")

    def send(self, body: bytes) -> None:
        """Send a message, or keep what cannot be sent now. Raises OSError when the daemon is gone."""
        self.waiting += encode_frame(body)
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as that is possible now."""
        try:
            while self.waiting:
                del self.waiting[: self.socket.send(self.waiting)]
        except BlockingIOError:
            return
        if self._finished:
            self.socket.shutdown(socket.SHUT_WR)

    def finish(self) -> None:
        """Nothing more is sent but what waits. Raises OSError when the daemon is gone."""
        self._finished = True
        self.flush()


def say(message: str) -> None:
    """Tell the person, on standard error: stdout is the client's."""
    print(f"devtools-lsp mcp: {message}", file=sys.stderr, flush=True)
