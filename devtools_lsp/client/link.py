"""One connection to the daemon as a client sees it: requests out, answers, progress and notifications in.

Owns ids, who waits for what, cancellation and the loss of the connection. Knows no method's name or meaning.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from devtools_lsp.errors import BadArgumentError, DevToolsError, StepFailedError, WaitTimeoutError, WorkspaceBoundsError
from devtools_lsp.ports import Cancellation
from devtools_lsp.wire.framing import Fault, FrameDecoder, FrameTooLargeError, encode_frame
from devtools_lsp.wire.messages import (
    DEVTOOLS_ERROR,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Incoming,
    Notification,
    Request,
    UnusableMessageError,
    decode_incoming,
    encode,
)
from devtools_lsp.wire.reading import read_in_chunks

_log = logging.getLogger(__name__)

CANCEL_S = 12.0
"""How long a cancelled call may take to say what had landed; longer than the daemon's own bound on it."""
_CLOSE_S = 2.0

ProgressCallback = Callable[[dict[str, Any]], None]
"""Told `{kind: output, stream, text}` or `{kind: report, message, approval?}` while a call runs."""
NotificationCallback = Callable[[str, Any], None]
"""Told the method and params of any other notification."""


class ConnectionLostError(StepFailedError):
    """The connection ended before the answer came: what the call did is not known."""


class ProtocolError(StepFailedError):
    """The daemon does not understand us, or failed inside: `rpc_code` is the JSON-RPC code.

    Mostly the daemon is of another version then; `Client.version_note` tells.
    """

    def __init__(self, message: str, rpc_code: int) -> None:
        retry = "afterCorrection" if rpc_code == INVALID_PARAMS else "no"
        super().__init__(f"{message} (JSON-RPC error {rpc_code})", retry=retry)
        self.rpc_code = rpc_code


class _RemoteError(msgspec.Struct):
    """The `error` member of an answer."""

    code: int
    message: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_SILENCE: Any = object()
"""Stands for an answer that did not come in the time that is left to it."""


class _Call(msgspec.Struct, eq=False):
    """A request that waits. `overdue` says that its own time is over, in the words for whoever waits."""

    answer: asyncio.Future[Any]
    progress: ProgressCallback | None
    overdue: str | None = None
    timer: asyncio.TimerHandle | None = None

    def settle(self, answer: Any) -> None:
        """Take the first answer, or fault, and no other."""
        if self.answer.done():
            return
        if isinstance(answer, BaseException):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class Link(ABC):
    """Requests to one daemon. They may run at the same time and be answered in any order.

    Whoever makes one says how a message goes out (`write`, `hang_up`) and hands on what comes back (`receive`, `lose`).
    """

    room: asyncio.Future[None] | None = None
    """Set while requests have to wait before they count as sent; done when there is room again."""

    def __init__(self, on_notification: NotificationCallback | None = None) -> None:
        self._on_notification = on_notification
        self._ids = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._why_lost: str | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @abstractmethod
    def write(self, message: Request | Notification) -> None:
        """Send one message, without waiting. Raises DevToolsError when it cannot be sent."""

    @abstractmethod
    def hang_up(self) -> None:
        """Nothing more is sent or received."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect; what still runs for us is cancelled in the daemon."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        progress: ProgressCallback | None = None,
        timeout_s: float | None,
        signal: Cancellation | None = None,
    ) -> Any:
        """One request and its result. Raises DevToolsError.

        After `timeout_s` seconds it is cancelled in the daemon, and WaitTimeoutError says what had landed. When
        `signal` is turned it is cancelled as well, and the daemon's answer is still waited for: mostly
        CallCancelledError, which says what had landed, and the result of a call that had finished already.
        """
        if self._why_lost is not None:
            raise connection_lost(self._why_lost)
        request_id = next(self._ids)
        if progress is not None:
            params = {**params, "progressToken": request_id}
        call = self._calls[request_id] = _Call(asyncio.get_running_loop().create_future(), progress)
        unsubscribe: Callable[[], None] | None = None
        try:
            self.write(Request(id=request_id, method=method, params=params))
            if timeout_s is not None:
                why = f"{method} took longer than {timeout_s:g} s"
                call.timer = asyncio.get_running_loop().call_later(timeout_s, self._is_overdue, request_id, call, why)
            if signal is not None:
                unsubscribe = signal.subscribe(lambda: self._stop(request_id, call))
            if self.room is not None:
                await asyncio.wait({self.room, call.answer}, return_when=asyncio.FIRST_COMPLETED)
            answer = await call.answer
        except DevToolsError as error:
            if call.overdue is None:
                raise
            raise WaitTimeoutError(
                f"{call.overdue}: {error.message}", written=error.written, paths=error.paths
            ) from None
        except asyncio.CancelledError:
            self._cancel(request_id)
            raise
        finally:
            del self._calls[request_id]
            if call.answer.done() and not call.answer.cancelled():
                # Read it even when nobody wants it any more, or asyncio complains of a lost exception.
                call.answer.exception()
            if call.timer is not None:
                call.timer.cancel()
            if unsubscribe is not None:
                unsubscribe()
        if answer is _SILENCE and call.overdue is None:
            raise WaitTimeoutError(
                f"{method} was cancelled, and the daemon did not say within {CANCEL_S:g} s what had landed: look at "
                "the files"
            )
        if call.overdue is not None:
            became = "what had landed is not known" if answer is _SILENCE else "it finished nevertheless"
            raise WaitTimeoutError(f"{call.overdue}; {became}, look at the files before trying again")
        return answer

    async def lost(self) -> ConnectionLostError:
        """Wait until the connection has ended, and say why: for who waits for notifications and sends nothing."""
        await asyncio.wait([self._ended])
        return connection_lost(self._why_lost or "it ended")

    # -- stopping ------------------------------------------------------------------------------------------------

    def _is_overdue(self, request_id: int, call: _Call, why: str) -> None:
        call.overdue = why
        self._stop(request_id, call)

    def _stop(self, request_id: int, call: _Call) -> None:
        """Cancel in the daemon and wait, bounded, for what it says became of the request."""
        self._cancel(request_id)
        if call.timer is not None:
            call.timer.cancel()
        call.timer = asyncio.get_running_loop().call_later(CANCEL_S, call.settle, _SILENCE)

    def _cancel(self, request_id: int) -> None:
        if self._why_lost is None:
            self.write(Notification(method="$/cancelRequest", params={"id": request_id}))

    # -- messages ------------------------------------------------------------------------------------------------

    def receive(self, message: Incoming) -> None:
        """Take one message of the daemon: an answer, progress, another notification."""
        if isinstance(message.method, str):
            if message.id is msgspec.UNSET:
                self._receive_notification(message.method, message.params)
            return
        self.answered(
            message.id,
            _remote_error(message.error) if isinstance(message.error, msgspec.Raw) else _decoded(message.result),
        )

    def answered(self, request_id: object, answer: Any) -> None:
        """Give whoever waits for a request its result, or the error to raise."""
        call = self._calls.get(request_id) if isinstance(request_id, int) else None
        if call is None:
            _log.debug("an answer that nobody waits for was dropped: %r", request_id)
        else:
            call.settle(answer)

    def _receive_notification(self, method: str, params: msgspec.Raw | msgspec.UnsetType) -> None:
        value = _decoded(params)
        try:
            if method == "$/progress":
                call = self._calls.get(value["token"])
                if call is not None and call.progress is not None:
                    call.progress(value["value"])
            elif self._on_notification is not None:
                self._on_notification(method, value)
        except Exception:
            # A callback of the embedder must not end the connection for its other calls.
            _log.exception("the callback for %s failed", method)

    def lose(self, why: str) -> None:
        """The connection is over: everything that waits fails at once. The first reason is the one that is told."""
        if self._why_lost is not None:
            return
        self._why_lost = why
        self._ended.set_result(None)
        self.hang_up()
        for call in self._calls.values():
            call.settle(connection_lost(why))


class SocketLink(Link, asyncio.Protocol):
    """A link over the daemon's socket.

    Whatever arrives is dealt with where it arrives: an agent's call waits for it, so no task stands in between.
    """

    def __init__(self, on_notification: NotificationCallback | None = None) -> None:
        super().__init__(on_notification)
        self._decoder = FrameDecoder()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def over(cls, connection: socket.socket, on_notification: NotificationCallback | None = None) -> SocketLink:
        """The link over a connected socket, which it then owns."""
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: cls(on_notification), sock=connection)
        return link

    def write(self, message: Request | Notification) -> None:
        """Send one message."""
        try:
            self._transport.write(encode_frame(encode(message)))
        except FrameTooLargeError as error:
            raise WorkspaceBoundsError(f"the request is too large: {error}") from None
        except (TypeError, ValueError) as error:
            raise BadArgumentError(f"the request cannot be sent: {error}", reason="malformed") from None

    def hang_up(self) -> None:
        """Send what was given to the transport, and end."""
        self._transport.close()

    async def close(self) -> None:
        """Disconnect; what still runs for us is cancelled in the daemon."""
        self.lose("the client was closed")
        await asyncio.wait([self._closed], timeout=_CLOSE_S)
        if not self._closed.done():
            self._transport.abort()

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)
        read_in_chunks(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, whoever ended it."""
        self.lose(f"{type(exc).__name__}: {exc}" if exc is not None else "the daemon closed it")
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        """Requests wait from now on, until there is room."""
        self.room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """There is room again."""
        if self.room is not None and not self.room.done():
            self.room.set_result(None)
        self.room = None

    def data_received(self, data: bytes) -> None:
        """Deal with every frame that is complete now."""
        self._decoder.feed(data)
        try:
            while self._why_lost is None and (item := self._decoder.next()) is not None:
                if isinstance(item, Fault):
                    self.lose(f"the daemon sent something else than frames: {item.message}")
                    return
                self.receive(decode_incoming(item))
        except (UnusableMessageError, msgspec.DecodeError) as error:
            self.lose(f"{type(error).__name__}: {error}")
        except Exception as error:
            _log.exception("the client failed to read")
            self.lose(f"{type(error).__name__}: {error}")


def connection_lost(why: str) -> ConnectionLostError:
    """What whoever waits for an answer is told when there will be none."""
    return ConnectionLostError(
        f"the connection to the daemon was lost ({why}); what was running may have landed: look at the files before "
        "trying again"
    )


def _decoded(raw: msgspec.Raw | msgspec.UnsetType) -> Any:
    return None if isinstance(raw, msgspec.UnsetType) else msgspec.json.decode(raw)


def _remote_error(raw: msgspec.Raw) -> DevToolsError:
    try:
        error = msgspec.json.decode(raw, type=_RemoteError)
        if error.code == DEVTOOLS_ERROR and isinstance(error.data, msgspec.Raw):
            return DevToolsError.from_wire(msgspec.json.decode(error.data, type=dict[str, Any]))
        return ProtocolError(error.message, error.code)
    except msgspec.DecodeError as fault:
        return ProtocolError(f"the daemon's error is not understood: {fault}", INTERNAL_ERROR)
