"""The proxy's connection to a daemon: made, agreed on, and used without waiting."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from devtools_lsp import __version__, discovery
from devtools_lsp.errors import BadArgumentError, ConflictError, DevToolsError, StepFailedError, WaitTimeoutError
from devtools_lsp.wire.framing import Fault, FrameDecoder, encode_frame
from devtools_lsp.wire.messages import DEVTOOLS_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Request, Surface, encode
from devtools_lsp.wire.reading import CHUNK_BYTES

GREETING_S = 30.0
OWN = "devtools-lsp:"
"""What the ids of our own requests begin with."""


class _Greeting(msgspec.Struct):
    """The answer to `devtools/mcp`."""

    class _Result(msgspec.Struct):
        version: str = "of an unknown version"

    class _Error(msgspec.Struct):
        code: int
        message: str
        data: dict[str, Any] | None = None

    id: int | str | None = None
    result: _Result = msgspec.field(default_factory=_Result)
    error: _Error | None = None


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
        self.descriptor = self.socket.fileno()

    def _agree(self, root: Path, surface: Surface, session: str | None) -> None:
        params = {"root": str(root), "surface": surface} | ({"session": session} if session is not None else {})
        self.socket.settimeout(GREETING_S)
        self.socket.sendall(encode_frame(encode(Request(id=OWN, method="devtools/mcp", params=params))))
        try:
            answer = self._first_answer(time.monotonic() + GREETING_S)
        except TimeoutError:
            raise WaitTimeoutError(f"the daemon did not answer within {GREETING_S:g} s; try again") from None
        except msgspec.DecodeError as error:
            raise StepFailedError(f"the daemon is not understood: {error}") from None
        if answer.error is None:
            if answer.result.version != __version__:
                say(f"the daemon is devtools-lsp {answer.result.version}, and this is {__version__}")
            return
        code, told = answer.error.code, answer.error.message
        if code == DEVTOOLS_ERROR and answer.error.data is not None:
            raise DevToolsError.from_wire(answer.error.data)
        if code == INVALID_PARAMS:
            raise BadArgumentError(f"the daemon refuses how it was asked to serve an MCP client: {told}")
        told = "is of a version that serves no MCP clients" if code == METHOD_NOT_FOUND else f"refuses: {told}"
        raise ConflictError(f"the daemon {told}; `devtools-lsp stop` ends it, and the next call starts another")

    def _first_answer(self, deadline: float) -> _Greeting:
        """The answer to our request; what else is said before it is not for us."""
        while True:
            while (body := self.decoder.next()) is not None:
                if isinstance(body, Fault):
                    raise StepFailedError(f"the daemon sent something else than frames: {body.message}")
                answer = msgspec.json.decode(body, type=_Greeting)
                if answer.id == OWN:
                    return answer
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError
            self.socket.settimeout(remaining_s)
            data = self.socket.recv(CHUNK_BYTES)
            if not data:
                raise StepFailedError("the daemon ended while it was asked to serve an MCP client; try again")
            self.decoder.feed(data)

    def send(self, body: bytes) -> None:
        """Send a message, or keep what cannot be sent now. Raises OSError when the daemon is gone."""
        frame = encode_frame(body)
        if self.waiting:
            self.waiting += frame
            return
        try:
            sent = self.socket.send(frame)
        except BlockingIOError:
            sent = 0
        self.waiting += frame[sent:]

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
    """Tell the person, on standard error: stdout is the client's. Nobody may be there to be told."""
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison] -- it is None when it was closed
        with contextlib.suppress(OSError):
            print(f"devtools-lsp mcp: {message}", file=sys.stderr, flush=True)
