"""One connection of an attacker to the socket: blocking, raw, and sharing no code with ours.

Everything that comes in is searched for the marks of what lies outside before it is even parsed, so that a leak is
noticed in whatever part of whatever message it hides.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
from typing import Any

WAIT_S = 30.0

Message = dict[str, Any]


class Gone(Exception):
    """The other end closed the connection: the daemon died."""


class Wire:
    """Requests one at a time, or several begun and awaited in any order."""

    def __init__(self, path: str, *, marks: tuple[bytes, ...] = ()) -> None:
        self.leaks: list[bytes] = []
        self._marks = marks
        self._ids = itertools.count(1)
        self._answers: dict[int, Message] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(WAIT_S)
        self._socket.connect(path)
        self._incoming = self._socket.makefile("rb")

    def begin(self, method: str, params: Any) -> int:
        """Send a request; returns its id."""
        number = next(self._ids)
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        try:
            self._socket.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        except OSError as error:
            raise Gone(str(error)) from None
        return number

    def answer(self, number: int) -> Message:
        """The answer to a request; raises Gone when the daemon dies first."""
        while number not in self._answers:
            message = self._receive()
            if "id" in message and "method" not in message:
                self._answers[message["id"]] = message
        return self._answers.pop(number)

    def ask(self, method: str, params: Any) -> Message:
        """Send a request and wait for its answer, `result` or `error`."""
        return self.answer(self.begin(method, params))

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._incoming.close()
        self._socket.close()

    def _receive(self) -> Message:
        try:
            length = 0
            while (line := self._incoming.readline()).strip():
                name, _, value = line.partition(b":")
                if name.strip().lower() == b"content-length":
                    length = int(value)
            body = self._incoming.read(length) if line else b""
        except TimeoutError:
            raise AssertionError(f"no answer within {WAIT_S:g} s") from None
        except OSError as error:
            raise Gone(str(error)) from None
        if not body or len(body) < length:
            raise Gone("the connection ended")
        if any(mark in body for mark in self._marks):
            self.leaks.append(body[:2000])
        return json.loads(body)


class Agent:
    """A client that has introduced itself, and words for what it does."""

    def __init__(self, wire: Wire, surface: str = "granular", name: str = "attacker", role: str = "agent") -> None:
        self.wire = wire
        introduction = {"client": {"name": name, "version": "1"}, "surface": surface, "role": role}
        self.greeting = wire.ask("devtools/initialize", introduction)["result"]

    def try_call(self, tool: str, arguments: Any, surface: str | None = None) -> Message:
        """Call a tool; the whole answer."""
        params = {"name": tool, "arguments": arguments}
        return self.wire.ask("devtools/call", params if surface is None else {**params, "surface": surface})

    def call(self, tool: str, arguments: Any, surface: str | None = None) -> Message:
        """Call a tool that has to succeed."""
        answer = self.try_call(tool, arguments, surface)
        assert "error" not in answer, answer
        return answer["result"]

    def refused(self, tool: str, arguments: Any, surface: str | None = None) -> Message:
        """Call a tool that has to be refused; the error's data."""
        return refusal(self.try_call(tool, arguments, surface))

    def ask(self, method: str, params: Any = None) -> Message:
        """Any other request that has to succeed."""
        answer = self.wire.ask(method, params or {})
        assert "error" not in answer, answer
        return answer["result"]


def refusal(answer: Message) -> Message:
    """The data of an error answer, which must be one of ours."""
    assert "error" in answer, answer
    assert answer["error"]["code"] == -32050, answer
    return answer["error"]["data"]


def envelope(*lines: str) -> str:
    """A patch in the envelope dialect."""
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])
