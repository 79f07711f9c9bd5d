"""Content-Length frames, whole and in pieces, and what cannot be one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools_lsp.engines.frames import MAX_BODY_BYTES, FrameError, FrameReader, frame


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(1, 50))
def test_any_bodies_in_any_pieces_come_out_again(bodies: list[bytes], size: int) -> None:
    stream = b"".join(frame(body) for body in bodies)
    reader = FrameReader()
    found = []
    for start in range(0, len(stream), size):
        reader.feed(stream[start : start + size])
        while (body := reader.next()) is not None:
            found.append(body)
    assert found == bodies


@pytest.mark.parametrize(
    "stream",
    [
        b"content-length: 2\r\n\r\n{}",
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Length:2\r\n\r\n{}",
    ],
)
def test_headers_in_other_spellings(stream: bytes) -> None:
    reader = FrameReader()
    reader.feed(stream)
    assert reader.next() == b"{}"


@pytest.mark.parametrize(
    "stream",
    [
        b"Welcome to the server\n",
        b"Content-Length: many\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
        b"Content-Type: x\r\n\r\n",
        b"Content-" + b"x" * 10_000,
        b"\r\n\r\n",
    ],
)
def test_what_is_no_frame_is_refused(stream: bytes) -> None:
    reader = FrameReader()
    reader.feed(stream)
    with pytest.raises(FrameError):
        reader.next()
