"""The process at an MCP client's pipes: lines to the daemon in frames, frames back as lines.

It knows of MCP what it takes to get over the death of a daemon: which requests are open, so that each has its answer,
and how the client introduced itself, so that the next daemon can be told. Everything else is the daemon's.
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import msgspec

from devtools_lsp.errors import DevToolsError, StepFailedError, WorkspaceBoundsError
from devtools_lsp.mcp_bridge.downstream import OWN, Downstream, say
from devtools_lsp.mcp_bridge.ids import meant_request
from devtools_lsp.mcp_bridge.lines import Lines, LineWriter
from devtools_lsp.wire.framing import MAX_FRAME_BYTES, Fault
from devtools_lsp.wire.messages import (
    INTERNAL_ERROR,
    PARSE_ERROR,
    ErrorAnswer,
    ErrorObject,
    Notification,
    Request,
    RequestId,
    ResultAnswer,
    Surface,
    UnusableMessageError,
    decode_incoming,
    encode,
)
from devtools_lsp.wire.reading import CHUNK_BYTES

MAX_LINE_BYTES = 4 * MAX_FRAME_BYTES
"""Above this nothing of a line is kept, not even whose it is."""
HIGH_WATER_BYTES = 1024 * 1024
"""How much may wait in either direction before the other end is not read any more."""
LAST_WORDS_S = 12.0
"""How long the daemon may still answer after the client has closed its end; its own bounds are shorter."""


class _Head(msgspec.Struct):
    """What is read of a message: whose it is."""

    id: RequestId | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Cancelled(msgspec.Struct):
    """`notifications/cancelled`."""

    class _Params(msgspec.Struct):
        request: RequestId = msgspec.field(name="requestId")

    params: _Params


class _Listed(msgspec.Struct):
    """The answer to `tools/list`."""

    result: msgspec.Raw = msgspec.Raw(b"")


class _Asked(msgspec.Struct):
    """A request that is made again: its params are passed on as they are."""

    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_head = msgspec.json.Decoder(_Head)


class Proxy:
    """One MCP client, on the descriptors `incoming` and `outgoing`."""

    def __init__(
        self, root: Path, surface: Surface, session: str | None, *, incoming: int = 0, outgoing: int = 1
    ) -> None:
        self._root = root
        self._surface: Surface = surface
        self._session = session
        self._incoming = incoming
        self._outgoing = outgoing
        self._lines = Lines(MAX_LINE_BYTES)
        self._reading = True
        self._hung_up = False
        self._abandoned = False
        self._ends_at: float | None = None
        self._to_client = LineWriter(outgoing)
        self._poll = select.poll()
        self._polled: dict[int, int] = {}
        self._daemon: Downstream | None = None
        # With the methods, several for an id that was used again before its answer: each of them has an answer.
        self._open: dict[RequestId, list[str]] = {}
        self._unreachable: DevToolsError | None = None
        self._own = f"{OWN}{os.urandom(8).hex()}:"
        self._introducing: bytes | None = None
        self._introduction: bytes | None = None
        self._introduced: bytes | None = None
        self._listing: bytes | None = None
        self._listed: bytes | None = None

    def run(self) -> int:
        """Copy until the client's end; returns the exit code."""
        try:
            # The daemon is up when the client introduces itself; what prevents that is told to the client, then.
            self._daemon = self._connect()
        except (DevToolsError, OSError) as error:
            say(f"no daemon yet: {error}")
        while self._reading or self._to_client.waiting or self._daemon is not None:
            if not self._turn() or self._abandoned:
                break
        if self._daemon is not None:
            self._daemon.socket.close()
        return 0

    # -- waiting -------------------------------------------------------------------------------------------------

    def _turn(self) -> bool:
        """Wait for something to do, and do it; false when there is nothing left to wait for."""
        daemon = self._daemon
        room = len(self._to_client.waiting) <= HIGH_WATER_BYTES
        reads = room and (daemon is None or len(daemon.waiting) <= HIGH_WATER_BYTES)
        wanted: dict[int, int] = {}
        if self._reading and (reads or not self._hung_up):
            # Its end is noticed also while nothing can be taken from it.
            wanted[self._incoming] = (select.POLLIN if reads else 0) | select.POLLRDHUP
        if self._to_client.waiting:
            wanted[self._outgoing] = select.POLLOUT
        if daemon is not None:
            wanted[daemon.descriptor] = (select.POLLIN if room else 0) | (select.POLLOUT if daemon.waiting else 0)
        if wanted != self._polled:
            self._poll_for(wanted)
        remaining_s = None if self._ends_at is None else self._ends_at - time.monotonic()
        ready = dict(self._poll.poll(None if remaining_s is None else max(0.0, remaining_s * 1000)))
        if not ready:
            return False
        if self._outgoing in ready:
            self._flush()
        if daemon is not None and (events := ready.get(daemon.descriptor)):
            self._hear(daemon, events)
        if self._incoming in ready:
            if reads:
                self._read()
            else:
                self._hung_up = True
                self._ends_at = time.monotonic() + LAST_WORDS_S
        return True

    def _poll_for(self, wanted: dict[int, int]) -> None:
        """Mostly a turn waits for the same as the last one."""
        for descriptor in self._polled.keys() - wanted.keys():
            self._poll.unregister(descriptor)
        for descriptor, events in wanted.items():
            self._poll.register(descriptor, events)
        self._polled = wanted

    # -- from the client -----------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            data = os.read(self._incoming, CHUNK_BYTES)
        except BlockingIOError:
            # Whoever shares it was faster.
            return
        except OSError as error:
            say(f"stdin cannot be read any more: {error.strerror}")
            data = b""
        self._unreachable = None
        for line in self._lines.feed(data):
            self._take(line)
        if not data:
            self._end_input()

    def _end_input(self) -> None:
        self._reading = False
        self._ends_at = time.monotonic() + LAST_WORDS_S
        if self._daemon is not None:
            try:
                self._daemon.finish()
            except OSError as error:
                self._lose(error.strerror or type(error).__name__)

    def _take(self, line: bytes | None) -> None:
        """One message of the client: to the daemon, or with an answer of our own when it cannot be had."""
        if line is None:
            told = f"a line of more than {MAX_LINE_BYTES:,} bytes was dropped"
            self._tell(ErrorAnswer(id=None, error=ErrorObject(PARSE_ERROR, told)))
            return
        head = _read_head(line)
        method = head.method if isinstance(head.method, str) else ""
        request = head.id if method and isinstance(head.id, int | str) else _answered_to(head, line)
        if request is not None:
            self._open.setdefault(request, []).append(method)
        if method == "initialize" and request is not None:
            self._introducing = line
        elif head.method == "notifications/initialized":
            self._introduced = line
        elif head.method == "tools/list":
            self._listing = line
        elif head.method == "notifications/cancelled":
            self._forget_cancelled(line)
        try:
            if len(line) > MAX_FRAME_BYTES:
                raise WorkspaceBoundsError(
                    f"the request has {len(line):,} bytes, and the daemon takes at most {MAX_FRAME_BYTES:,}"
                )
            if self._daemon is None:
                if request is None and head != _NOTHING:
                    return
                self._connect_again(replay=method != "initialize")
            if self._daemon is not None:
                self._daemon.send(line)
        except DevToolsError as error:
            if request is not None:
                self._refuse(request, self._open[request][-1], error)
            elif head == _NOTHING:
                self._tell(ErrorAnswer(id=None, error=ErrorObject(PARSE_ERROR, f"no message, and {error.message}")))
        except OSError as error:
            self._lose(error.strerror or type(error).__name__)

    def _forget_cancelled(self, line: bytes) -> None:
        """What the client has cancelled is never answered."""
        try:
            named = msgspec.json.decode(line, type=_Cancelled).params.request
        except msgspec.DecodeError:
            return
        request = meant_request(named, self._open)
        if request is not None:
            del self._open[request]

    # -- from the daemon -----------------------------------------------------------------------------------------

    def _hear(self, daemon: Downstream, events: int) -> None:
        try:
            if events & select.POLLOUT:
                daemon.flush()
            if not events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                return
            data = daemon.socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error.strerror or type(error).__name__)
            return
        if not data:
            self._lose("the daemon closed it")
            return
        if fault := self._take_frames(daemon, data):
            daemon.socket.close()
            self._lose(f"it sent something else than frames: {fault.message}")

    def _take_frames(self, daemon: Downstream, data: bytes) -> Fault | None:
        daemon.decoder.feed(data)
        while (body := daemon.decoder.next()) is not None:
            if isinstance(body, Fault):
                return body
            self._hand_on(body)
        return None

    def _hear_rest(self, daemon: Downstream) -> None:
        try:
            while data := daemon.socket.recv(CHUNK_BYTES):
                if self._take_frames(daemon, data):
                    return
        except OSError:
            return

    def _hand_on(self, body: bytes) -> None:
        head = _read_head(body)
        if head.method is msgspec.UNSET and isinstance(head.id, int | str):
            if isinstance(head.id, str) and head.id.startswith(self._own):
                self._hear_own(head.id.removeprefix(self._own), body)
                return
            method = self._close(head.id)
            if method == "tools/list":
                self._listed = _result_of(body)
            elif method == "initialize":
                if head.error is msgspec.UNSET:
                    self._introduction = self._introducing
                self._introducing = None
        self._write(body)

    def _close(self, request: RequestId) -> str:
        """An open request has its answer; returns its method."""
        methods = self._open.get(request)
        if not methods:
            return ""
        method = methods.pop(0)
        if not methods:
            del self._open[request]
        return method

    def _lose(self, why: str) -> None:
        """Every open request is answered, and the next one finds another daemon."""
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            # What it said before its end still counts.
            self._hear_rest(daemon)
            daemon.socket.close()
        if not self._reading:
            why = "it ended"
        elif self._open:
            say(f"the connection to the daemon was lost ({why}); the next call connects again")
        if not self._open:
            return
        # Loaded when it is needed: with it comes all of asyncio, which this process does without.
        from devtools_lsp.client.link import connection_lost

        lost = connection_lost(why)
        for request, methods in list(self._open.items()):
            for method in list(methods):
                self._refuse(request, method, lost)

    # -- another daemon ------------------------------------------------------------------------------------------

    def _connect(self) -> Downstream:
        return Downstream(self._root, self._surface, self._session)

    def _connect_again(self, *, replay: bool) -> None:
        """A daemon that knows the client as the last one did, and is asked whether it offers the same tools.

        What arrived together meets the same refusal: each would wait as long for it as the first one.
        """
        if self._unreachable is not None:
            raise self._unreachable
        try:
            daemon = self._daemon = self._connect()
        except DevToolsError as error:
            self._unreachable = error
            raise
        except OSError as error:
            self._unreachable = StepFailedError(f"the daemon cannot be reached: {error}")
            raise self._unreachable from None
        if replay and self._introduction is not None:
            daemon.send(self._as_own(self._introduction, "initialize"))
            if self._introduced is not None:
                daemon.send(self._introduced)
        if replay and self._listing is not None and self._listed is not None:
            daemon.send(self._as_own(self._listing, "tools/list"))

    def _as_own(self, line: bytes, method: str) -> bytes:
        """A request of the client as one of ours, whose answer is not for it."""
        params = msgspec.json.decode(line, type=_Asked).params
        return encode(Request(id=self._own + method, method=method, params=params))

    def _hear_own(self, method: str, body: bytes) -> None:
        if method == "tools/list" and self._introduction is not None:
            listed = _result_of(body)
            if listed and listed != self._listed:
                self._listed = listed
                self._tell(Notification(method="notifications/tools/list_changed", params=msgspec.UNSET))

    # -- to the client -------------------------------------------------------------------------------------------

    def _refuse(self, request: RequestId, method: str, error: DevToolsError) -> None:
        """Answer an open request ourselves, in the form that the daemon would give it."""
        from devtools_lsp.agent.render import refusal_text

        self._close(request)
        if method == "initialize":
            self._introducing = None
        if method == "tools/call":
            content = [{"type": "text", "text": refusal_text(error)}]
            result = {"content": content, "structuredContent": error.to_wire(), "isError": True}
            self._tell(ResultAnswer(id=request, result=result))
        else:
            self._tell(ErrorAnswer(id=request, error=ErrorObject(INTERNAL_ERROR, error.message, error.to_wire())))

    def _tell(self, message: ResultAnswer | ErrorAnswer | Notification) -> None:
        self._write(encode(message))

    def _write(self, body: bytes) -> None:
        try:
            self._to_client.write(body)
        except OSError:
            self._abandoned = True

    def _flush(self) -> None:
        try:
            self._to_client.flush()
        except OSError:
            self._abandoned = True


_NOTHING = _Head()


def _read_head(body: bytes) -> _Head:
    """What a message says of itself; of what is no message, nothing: the daemon says so."""
    try:
        return _head.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _NOTHING


def _answered_to(head: _Head, line: bytes) -> RequestId | None:
    """The id that a line's answer will have; None when it has none, or one without."""
    if isinstance(head.method, str):
        return head.id if isinstance(head.id, int | str) else None
    try:
        decode_incoming(line)
    except UnusableMessageError as error:
        return error.request_id
    return None


def _result_of(body: bytes) -> bytes:
    return bytes(msgspec.json.decode(body, type=_Listed).result)
