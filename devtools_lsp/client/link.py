"""One connection to the daemon as a client sees it: requests out, answers, progress and notifications in.

Owns ids, who waits for what, cancellation and the loss of the connection. Knows no method's name or meaning.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Any

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

_log = logging.getLogger(__name__)

CANCEL_S = 12.0
"""How long a cancelled call may take to say what had landed; longer than the daemon's own bound on it."""
CHUNK_BYTES = 256 * 1024
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


class Link:
    """One connection. Requests may run at the same time and be answered in any order."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_notification: NotificationCallback | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_notification = on_notification
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._progress: dict[int, ProgressCallback] = {}
        self._lost: str | None = None
        self._reading = asyncio.get_running_loop().create_task(self._read(), name="devtools-lsp client")

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        progress: ProgressCallback | None = None,
        timeout_s: float,
        signal: Cancellation | None = None,
    ) -> Any:
        """One request and its result. Raises DevToolsError.

        After `timeout_s` seconds it is cancelled in the daemon, and WaitTimeoutError says what had landed. When
        `signal` is turned it is cancelled as well, and the daemon's answer is still waited for: mostly
        CallCancelledError, which says what had landed, and the result of a call that had finished already.
        """
        if self._lost is not None:
            raise _connection_lost(self._lost)
        request_id = next(self._ids)
        if progress is not None:
            params = {**params, "progressToken": request_id}
            self._progress[request_id] = progress
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(Request(id=request_id, method=method, params=params))
                if signal is None:
                    return await asyncio.shield(answer)
                await _either(answer, signal)
            if not answer.done():
                return await self._stopped(request_id, answer, method)
            return answer.result()
        except TimeoutError:
            raise await self._give_up(request_id, answer, f"{method} took longer than {timeout_s:g} s") from None
        except asyncio.CancelledError:
            self._cancel(request_id)
            raise
        finally:
            self._waiting.pop(request_id, None)
            self._progress.pop(request_id, None)
            if answer.done() and not answer.cancelled():
                answer.exception()
            else:
                answer.cancel()

    async def lost(self) -> ConnectionLostError:
        """Wait until the connection has ended, and say why: for who waits for notifications and sends nothing."""
        await asyncio.wait([self._reading])
        return _connection_lost(self._lost or "it ended")

    async def close(self) -> None:
        """Disconnect; what still runs for us is cancelled in the daemon."""
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._lose("the client was closed")
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._writer.wait_closed()

    async def _give_up(self, request_id: int, answer: asyncio.Future[Any], why: str) -> DevToolsError:
        self._cancel(request_id)
        await asyncio.wait([answer], timeout=CANCEL_S)
        fault = answer.exception() if answer.done() and not answer.cancelled() else None
        if isinstance(fault, DevToolsError):
            return WaitTimeoutError(f"{why}: {fault.message}", written=fault.written, paths=fault.paths)
        if answer.done():
            return WaitTimeoutError(f"{why}; it finished nevertheless, look at the files before trying again")
        return WaitTimeoutError(f"{why}; what had landed is not known, look at the files before trying again")

    async def _stopped(self, request_id: int, answer: asyncio.Future[Any], method: str) -> Any:
        """Cancel in the daemon and wait, bounded, for what it says became of the request."""
        self._cancel(request_id)
        await asyncio.wait([answer], timeout=CANCEL_S)
        if answer.done():
            return answer.result()
        raise WaitTimeoutError(
            f"{method} was cancelled, and the daemon did not say within {CANCEL_S:g} s what had landed: look at the "
            "files"
        )

    def _cancel(self, request_id: int) -> None:
        if self._lost is None:
            self._writer.write(encode_frame(encode(Notification(method="$/cancelRequest", params={"id": request_id}))))

    async def _send(self, message: object) -> None:
        try:
            self._writer.write(encode_frame(encode(message)))
            await self._writer.drain()
        except FrameTooLargeError as error:
            raise WorkspaceBoundsError(f"the request is too large: {error}") from None
        except (TypeError, ValueError) as error:
            raise BadArgumentError(f"the request cannot be sent: {error}", reason="malformed") from None
        except ConnectionError as error:
            raise self._lose(str(error)) from None

    async def _read(self) -> None:
        try:
            why = await self._read_until_the_end()
        except (ConnectionError, UnusableMessageError, msgspec.DecodeError) as error:
            why = f"{type(error).__name__}: {error}"
        except Exception as error:
            _log.exception("the client failed to read")
            why = f"{type(error).__name__}: {error}"
        self._lose(why)

    async def _read_until_the_end(self) -> str:
        decoder = FrameDecoder()
        while data := await self._reader.read(CHUNK_BYTES):
            decoder.feed(data)
            while (item := decoder.next()) is not None:
                if isinstance(item, Fault):
                    return f"the daemon sent something else than frames: {item.message}"
                self._receive(decode_incoming(item))
        return "the daemon closed it"

    def _receive(self, message: Incoming) -> None:
        if isinstance(message.method, str):
            if message.id is msgspec.UNSET:
                self._receive_notification(message.method, message.params)
            return
        answer = self._waiting.get(message.id) if isinstance(message.id, int) else None
        if answer is None or answer.done():
            _log.debug("an answer that nobody waits for was dropped: %r", message.id)
            return
        if isinstance(message.error, msgspec.Raw):
            answer.set_exception(_remote_error(message.error))
        else:
            answer.set_result(_decoded(message.result))

    def _receive_notification(self, method: str, params: msgspec.Raw | msgspec.UnsetType) -> None:
        value = _decoded(params)
        try:
            if method == "$/progress":
                callback = self._progress.get(value["token"])
                if callback is not None:
                    callback(value["value"])
            elif self._on_notification is not None:
                self._on_notification(method, value)
        except Exception:
            # A callback of the embedder must not end the connection for its other calls.
            _log.exception("the callback for %s failed", method)

    def _lose(self, why: str) -> ConnectionLostError:
        """Fail everything that waits, at once; the first reason is the one that is told."""
        if self._lost is None:
            self._lost = why or "it broke"
        self._writer.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_connection_lost(self._lost))
        return _connection_lost(self._lost)


async def _either(answer: asyncio.Future[Any], signal: Cancellation) -> None:
    """Wait until there is an answer, or until it is not wanted any more."""
    stopping = asyncio.ensure_future(signal.wait())
    try:
        await asyncio.wait({answer, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()


def _connection_lost(why: str) -> ConnectionLostError:
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
