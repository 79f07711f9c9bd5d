"""A JSON-RPC client that shares no code with ours: `socket`, `json`, `threading`, and nothing of the package.

Frames go out as they are given, so that tests can also send what no client should. Everything that comes in is
kept in order; whoever waits for something says what, and for how long at most.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

WAIT_S = 30.0

Message = dict[str, Any]


class Wire:
    """One connection over a pair of byte streams. `closed` is set when the other end has closed."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO, end: Callable[[], None] = lambda: None) -> None:
        self.messages: list[Message] = []
        self.closed = False
        self.answers: dict[str, Callable[[Any], Any]] = {}
        self._incoming, self._outgoing, self._end = incoming, outgoing, end
        self._connection: socket.socket | None = None
        self._news = threading.Condition()
        self._count = 0
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @classmethod
    def to_socket(cls, path: str) -> Wire:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(WAIT_S)
        connection.connect(path)
        connection.settimeout(None)
        wire = cls(connection.makefile("rb"), connection.makefile("wb"), lambda: connection.shutdown(socket.SHUT_WR))
        wire._connection = connection
        return wire

    # -- out -----------------------------------------------------------------------------------------------------

    def raw(self, data: bytes) -> None:
        self._outgoing.write(data)
        self._outgoing.flush()

    def send(self, message: Any) -> None:
        body = json.dumps(message).encode()
        self.raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def start(self, method: str, params: Any = None) -> int:
        """Send a request and return its id without waiting for the answer."""
        self._count += 1
        self.send({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        return self._count

    # -- in ------------------------------------------------------------------------------------------------------

    def wait(self, wanted: Callable[[Message], Any], what: str, after: int = 0, timeout_s: float = WAIT_S) -> Message:
        """The first message from position `after` on that is wanted; fails when none comes in time."""

        def found() -> Message | None:
            return next((message for message in self.messages[after:] if wanted(message)), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None or self.closed, timeout_s)
            message = found()
        assert message is not None, f"no {what}{' before the end' if self.closed else ''}: {str(self.messages)[-2000:]}"
        return message

    def answer(self, request: int, timeout_s: float = WAIT_S) -> Message:
        return self.wait(lambda m: "method" not in m and m.get("id") == request, f"answer to {request}", 0, timeout_s)

    def result(self, request: int, timeout_s: float = WAIT_S) -> Any:
        answer = self.answer(request, timeout_s)
        assert "error" not in answer, answer
        return answer["result"]

    def error(self, request: int, timeout_s: float = WAIT_S) -> Message:
        answer = self.answer(request, timeout_s)
        assert "error" in answer, answer
        return answer["error"]

    def request(self, method: str, params: Any = None, timeout_s: float = WAIT_S) -> Any:
        return self.result(self.start(method, params), timeout_s)

    def refused(self, method: str, params: Any = None, timeout_s: float = WAIT_S) -> Message:
        return self.error(self.start(method, params), timeout_s)

    def told(self, method: str, after: int = 0) -> list[Any]:
        return [message["params"] for message in self.messages[after:] if message.get("method") == method]

    def wait_told(
        self, method: str, wanted: Callable[[Any], Any] = lambda _: True, after: int = 0, timeout_s: float = WAIT_S
    ) -> Any:
        return self.wait(lambda m: m.get("method") == method and wanted(m["params"]), method, after, timeout_s)[
            "params"
        ]

    def wait_closed(self, timeout_s: float = WAIT_S) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.closed, timeout_s), "the other end did not close"

    def close(self) -> None:
        """Say that nothing more comes, and wait until the other end has let go."""
        with contextlib.suppress(OSError):
            self._end()
        self._reading.join(WAIT_S)
        for stream in (self._incoming, self._outgoing, self._connection):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()

    def vanish(self) -> None:
        """Be gone as a process is that was killed."""
        assert self._connection is not None
        self._connection.shutdown(socket.SHUT_RDWR)
        self.close()

    def _read(self) -> None:
        try:
            while (message := self._read_one()) is not None:
                with self._news:
                    self.messages.append(message)
                    self._news.notify_all()
                if "method" in message and "id" in message and message["method"] in self.answers:
                    result = self.answers[message["method"]](message.get("params"))
                    self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        except (OSError, ValueError):
            pass
        finally:
            with self._news:
                self.closed = True
                self._news.notify_all()

    def _read_one(self) -> Message | None:
        length = None
        while line := self._incoming.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if length is None:
            return None
        return json.loads(self._incoming.read(length))
