"""The requests of one connection that are running: one answer each, cancellation, progress, and bounds.

I13 is a type here: an `Answer` is made for every request and sends once. Knows nothing of what a method does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import msgspec

from devtools_lsp.daemon.doors import AgentDoor, CallScope, Channel, Peer
from devtools_lsp.errors import CallCancelledError, DevToolsError, WorkspaceBoundsError
from devtools_lsp.wire.framing import FrameTooLargeError
from devtools_lsp.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ErrorAnswer,
    Output,
    Progress,
    ProgressParams,
    ProgressToken,
    Report,
    RequestId,
    ResultAnswer,
    RpcError,
    error_object,
)

_log = logging.getLogger(__name__)
_abandoned: set[asyncio.Task[None]] = set()
"""Tasks that ignored both cancellations; held so that they are not collected while they run."""


@dataclass(frozen=True, slots=True)
class CallBounds:
    """What one connection may have running, and how long an end may take. Durations in seconds, sizes in bytes."""

    max_calls: int = 1024
    max_bytes: int = 64 * 1024 * 1024
    cancel_grace_s: float = 5.0
    progress_interval_s: float = 8.0


class Answer(msgspec.Struct, eq=False):
    """The one answer of one request: the first outcome is sent, a later one is logged as a bug and dropped."""

    channel: Channel
    request_id: RequestId
    method: str
    given: bool = False

    def result(self, value: object) -> None:
        """Answer with a result; one that cannot be sent becomes an error that says so."""
        if self.given:
            self._drop()
            return
        self.given = True
        try:
            self.channel.send(ResultAnswer(id=self.request_id, result=value))
        except FrameTooLargeError as error:
            self._send_error(_too_large(error, value))
        except (TypeError, ValueError, RecursionError):
            _log.exception("the result of %s cannot be encoded", self.method)
            self._send_error(internal_error(self.method, "its result cannot be encoded"))

    def error(self, error: RpcError | DevToolsError) -> None:
        """Answer with an error."""
        if self.given:
            self._drop()
            return
        self.given = True
        self._send_error(error)

    def _drop(self) -> None:
        _log.error("a second answer to %s %r was dropped", self.method, self.request_id)

    def _send_error(self, error: RpcError | DevToolsError) -> None:
        try:
            self.channel.send(ErrorAnswer(id=self.request_id, error=error_object(error)))
        except (FrameTooLargeError, TypeError, ValueError, RecursionError):
            _log.exception("the error of %s cannot be sent as it is", self.method)
            fallback = internal_error(self.method, "its error cannot be sent")
            self.channel.send(ErrorAnswer(id=self.request_id, error=error_object(fallback)))


class _ProgressReporter:
    """Progress of one call: sent when it comes, and the last report repeated so that silence means death."""

    def __init__(self, channel: Channel, token: ProgressToken, method: str, interval_s: float) -> None:
        self._channel = channel
        self._token = token
        self._interval_s = interval_s
        self._last = Report(message=f"{method} is running")
        self._due = time.monotonic() + interval_s
        self.done = False
        """Nothing is sent any more."""

    async def report(self, value: Progress) -> None:
        """Send it, unless the answer is out already; waits for a slow reader."""
        if self.done:
            return
        if isinstance(value, Report):
            self._last = value
        self._due = time.monotonic() + self._interval_s
        self._send(value)
        await self._channel.drain()

    def beat(self, now: float) -> float:
        """Repeat the last report if nothing was sent for an interval; returns when the next time may be."""
        if self._due <= now:
            self._due = now + self._interval_s
            self._send(self._last)
        return self._due

    def _send(self, value: Progress) -> None:
        try:
            self._channel.notify("$/progress", ProgressParams(token=self._token, value=value))
        except FrameTooLargeError as error:
            size = len(value.text) if isinstance(value, Output) else error.size
            note = Report(message=f"{size} characters of output are too many to show at once")
            self._channel.notify("$/progress", ProgressParams(token=self._token, value=note))


class _TokenPeek(msgspec.Struct, rename="camel"):
    """The one member of any params that the connection itself reads."""

    progress_token: ProgressToken | None = None


def _progress_token(params: msgspec.Raw) -> ProgressToken | None:
    """The `progressToken` of any params; malformed ones are left to the method, which names the field."""
    try:
        return msgspec.json.decode(params, type=_TokenPeek).progress_token
    except (msgspec.DecodeError, RecursionError):
        return None


class _Running(msgspec.Struct, eq=False):
    answer: Answer
    scope: CallScope
    reporter: _ProgressReporter | None
    size: int
    task: asyncio.Task[None] | None = None
    ending: asyncio.TimerHandle | None = None


class Calls:
    """The running requests of one peer."""

    def __init__(self, door: AgentDoor, peer: Peer, channel: Channel, bounds: CallBounds) -> None:
        self._door = door
        self._peer = peer
        self._channel = channel
        self._bounds = bounds
        self._running: dict[RequestId, _Running] = {}
        self._bytes = 0
        self._closed = False
        self._heart: asyncio.TimerHandle | None = None

    def start(self, request_id: RequestId, method: str, params: msgspec.Raw) -> None:
        """Run one request as a task of its own; its answer is sent exactly once, whatever happens (I13)."""
        answer = Answer(self._channel, request_id, method)
        size = len(memoryview(params))
        refusal = self._refusal(request_id, size)
        if refusal is not None:
            answer.error(refusal)
            return
        token = _progress_token(params) if b'"progressToken"' in bytes(params) else None
        if token is None:
            reporter, scope = None, CallScope(request_id)
        else:
            reporter = _ProgressReporter(self._channel, token, method, self._bounds.progress_interval_s)
            scope = CallScope(request_id, report=reporter.report)
            if self._heart is None:
                self._heart = asyncio.get_running_loop().call_later(self._bounds.progress_interval_s, self._beat)
        running = _Running(answer, scope, reporter, size)
        self._running[request_id] = running
        self._bytes += size
        work = self._serve(running, method, params)
        running.task = asyncio.get_running_loop().create_task(work, name=f"{self._peer.connection} {method}")

    def cancel(self, request_id: RequestId, reason: str = "cancelled by the caller") -> bool:
        """Turn the call's switch, and stop its task when it has not ended after a grace. False when none runs."""
        running = self._running.get(request_id)
        if running is None:
            return False
        running.scope.signal.cancel(reason)
        if running.ending is None:
            running.ending = self._later(lambda: self._stop(request_id, running))
        return True

    async def close(self, reason: str) -> None:
        """Cancel everything and return when all has ended or was given up; no call starts afterwards."""
        self._closed = True
        tasks = [running.task for running in self._running.values() if running.task is not None]
        for request_id in list(self._running):
            self.cancel(request_id, reason)
        if tasks:
            # Twice the grace, as in `_stop` and `_give_up`, and a little for the loop itself.
            await asyncio.wait(tasks, timeout=2 * self._bounds.cancel_grace_s + 1)
        if self._heart is not None:
            self._heart.cancel()

    def _refusal(self, request_id: RequestId, size: int) -> RpcError | DevToolsError | None:
        if self._closed:
            return CallCancelledError("the connection is ending; connect again")
        if request_id in self._running:
            return RpcError(INVALID_REQUEST, f"a request with id {request_id!r} is still running; use a fresh id")
        if len(self._running) >= self._bounds.max_calls:
            return WorkspaceBoundsError(
                f"{self._bounds.max_calls} requests of this connection are running, and no more are taken; "
                "wait for answers"
            )
        if self._bytes and self._bytes + size > self._bounds.max_bytes:
            return WorkspaceBoundsError(
                f"the running requests of this connection hold {self._bytes} bytes; with this one of {size} they "
                f"would cross {self._bounds.max_bytes}; wait for answers"
            )
        return None

    async def _serve(self, running: _Running, method: str, params: msgspec.Raw) -> None:
        answer, scope = running.answer, running.scope
        result: object = None
        failure: RpcError | DevToolsError | None = None
        try:
            result = await self._door.call(self._peer, method, params, scope)
        except (RpcError, DevToolsError) as error:
            failure = error
        except asyncio.CancelledError:
            reason = scope.signal.reason or "the daemon stopped it"
            failure = CallCancelledError(f"{method} was stopped: {reason}; look at the files before trying again")
        except (Exception, SystemExit) as error:
            _log.exception("%s failed", method)
            failure = internal_error(method, type(error).__name__)
        finally:
            self._forget(running)
        if answer.given:
            return
        if failure is not None:
            answer.error(failure)
        else:
            answer.result(result)

    def _forget(self, running: _Running) -> None:
        if running.reporter is not None:
            running.reporter.done = True
        if running.ending is not None:
            running.ending.cancel()
        if self._running.get(running.scope.request_id) is running:
            del self._running[running.scope.request_id]
            self._bytes -= running.size

    def _beat(self) -> None:
        """Let nobody be silent for too long: one timer for all calls, because most end before it is over."""
        now = time.monotonic()
        dues = [running.reporter.beat(now) for running in self._running.values() if running.reporter is not None]
        self._heart = asyncio.get_running_loop().call_later(min(dues) - now, self._beat) if dues else None

    def _later(self, action: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._bounds.cancel_grace_s, action)

    def _stop(self, request_id: RequestId, running: _Running) -> None:
        """The call did not look at its switch."""
        if running.task is not None:
            running.task.cancel()
        running.ending = self._later(lambda: self._give_up(request_id, running))

    def _give_up(self, request_id: RequestId, running: _Running) -> None:
        """The call ignored its task's cancellation as well: answer in its place and let go of it."""
        _log.error("%s: request %r ignores its cancellation and is abandoned", self._peer.connection, request_id)
        if running.task is not None:
            _abandoned.add(running.task)
            running.task.add_done_callback(_abandoned.discard)
        self._forget(running)
        running.answer.error(
            CallCancelledError("the call was cancelled but does not end; look at the files before trying again")
        )


def _too_large(error: FrameTooLargeError, result: object) -> WorkspaceBoundsError:
    """The refusal of a result that fits no frame; what it would have said was written is said all the same."""
    written = _written_in(result)
    landed = f"; {len(written)} file(s) were written" if written else ""
    return WorkspaceBoundsError(
        f"the result has {error.size} bytes; a frame holds at most {error.limit}: ask for less at once{landed}",
        written=written or None,
    )


class _WrittenPeek(msgspec.Struct):
    """What is read of a result that was encoded beforehand."""

    written: list[dict[str, str]] = msgspec.field(default_factory=list[dict[str, str]])


def _written_in(result: object) -> list[dict[str, str]]:
    if isinstance(result, msgspec.Raw):
        return msgspec.json.decode(result, type=_WrittenPeek).written
    if not isinstance(result, Mapping):
        return []
    written: object = cast("Mapping[str, object]", result).get("written", [])
    return msgspec.convert(msgspec.to_builtins(written), list[dict[str, str]])


def internal_error(method: str, what: str) -> RpcError:
    """What a caller is told of a bug of ours: its kind; the traceback goes to the log only."""
    return RpcError(INTERNAL_ERROR, f"{method} failed inside the daemon ({what}); the daemon's log has the details")
