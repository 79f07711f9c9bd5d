"""The frame decoder: what it yields does not depend on how the bytes were cut, and no claim makes it grow."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.wire.framing import (
    MAX_FRAME_BYTES,
    Fault,
    FrameDecoder,
    FrameTooLargeError,
    encode_frame,
)


def everything(decoder: FrameDecoder) -> list[bytes | Fault]:
    items: list[bytes | Fault] = []
    while (item := decoder.next()) is not None:
        items.append(item)
    return items


def decoded(data: bytes, cuts: list[int] | None = None) -> list[bytes | Fault]:
    decoder = FrameDecoder(max_frame_bytes=2000, max_header_bytes=200, max_skipped_bytes=9000)
    items: list[bytes | Fault] = []
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or [])})
    for start, end in itertools.pairwise(edges):
        decoder.feed(data[start:end])
        items += everything(decoder)
    return items


HEADERS = st.sampled_from(
    [b"Content-Length: %d\r\n\r\n", b"content-length:%d\n\n", b"X-Other: 1\r\nCONTENT-LENGTH:  %d \r\n\r\n"]
)
CHUNKS = st.one_of(
    st.tuples(HEADERS, st.binary(max_size=60)).map(lambda pair: pair[0] % len(pair[1]) + pair[1]),
    st.integers(2001, 5000).map(lambda size: b"Content-Length: %d\r\n\r\n" % size + b'{"id":7,' + b"x" * (size - 8)),
    st.binary(max_size=30),
)


@settings(max_examples=300, derandomize=True)
@given(st.lists(CHUNKS, max_size=6).map(b"".join), st.lists(st.integers(0, 10_000), max_size=12))
def test_the_same_bytes_give_the_same_items_however_they_are_cut(data: bytes, cuts: list[int]):
    assert decoded(data, cuts) == decoded(data)
    assert decoded(data, list(range(len(data)))) == decoded(data)


@settings(max_examples=100, derandomize=True)
@given(st.lists(st.binary(max_size=300), max_size=5))
def test_what_is_encoded_is_decoded(bodies: list[bytes]):
    assert decoded(b"".join(encode_frame(body) for body in bodies)) == bodies


FATAL = [
    ("negative", b"Content-Length: -5\r\n\r\n", "number of bytes"),
    ("words", b"Content-Length: many\r\n\r\n", "number of bytes"),
    ("not ASCII digits", "Content-Length: ٣\r\n\r\n".encode(), "number of bytes"),
    ("underscores", b"Content-Length: 1_0\r\n\r\n", "number of bytes"),
    ("hundred digits", b"Content-Length: " + b"9" * 100 + b"\r\n\r\n", "number of bytes"),
    ("absurd", b"Content-Length: 99999999999\r\n\r\n", "99999999999 is refused"),
    ("none", b"X-Other: 1\r\n\r\n", "no Content-Length"),
    ("two", b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "two different"),
    ("no header", b'{"jsonrpc": "2.0"}', "a header line was expected"),
    ("a word", b"hello\n", "a header line was expected"),
    ("HTTP", b"GET / HTTP/1.1\r\n", "a header line was expected"),
    ("endless name", b"a" * 201, "longer than 200"),
    ("endless lines", b"A: b\r\n" * 50, "longer than 200"),
]


@pytest.mark.parametrize(("name", "data", "says"), FATAL, ids=[case[0] for case in FATAL])
def test_a_header_that_leaves_the_next_frame_unknown_is_fatal(name: str, data: bytes, says: str):
    decoder = FrameDecoder(max_header_bytes=200)
    decoder.feed(data)
    (fault,) = everything(decoder)
    assert isinstance(fault, Fault)
    assert fault.fatal
    assert says in fault.message
    decoder.feed(encode_frame(b"{}"))
    assert everything(decoder) == []
    assert not decoder.inside_frame


@pytest.mark.parametrize(
    ("body", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":17,"method":"devtools/call","params":"', 17),
        (b'{"jsonrpc": "2.0", "method": "devtools/call", "id": "a-b", "params": "', "a-b"),
        (b'{ "id" : -3 , "x":"', -3),
        # An id that is not the request's own must not be taken for it.
        (b'{"jsonrpc":"2.0","params":{"id":17,"x":"', None),
        (b'{"jsonrpc":"2.0","id":1.5,"x":"', None),
        (b'{"jsonrpc":"2.0","id":"\\u0041","x":"', None),
        (b'[{"id":17,"x":"', None),
    ],
)
def test_a_frame_above_the_cap_is_skipped_and_its_sender_told(body: bytes, request_id: object):
    decoder = FrameDecoder(max_frame_bytes=2000)
    body += b"y" * 3000
    decoder.feed(b"Content-Length: %d\r\n\r\n" % len(body) + body + encode_frame(b"next"))
    fault, following = everything(decoder)
    assert isinstance(fault, Fault)
    assert not fault.fatal
    assert fault.request_id == request_id
    assert following == b"next"


def test_a_skipped_frame_is_never_held():
    decoder = FrameDecoder()
    size = 40 * 1024 * 1024
    decoder.feed(b"Content-Length: %d\r\n\r\n" % size)
    items: list[bytes | Fault] = []
    for _ in range(size // 65536):
        decoder.feed(b"z" * 65536)
        items += everything(decoder)
        assert len(decoder._buffer) < 200_000
    decoder.feed(encode_frame(b"after"))
    items += everything(decoder)
    assert [isinstance(item, Fault) for item in items] == [True, False]
    assert items[1] == b"after"


@pytest.mark.parametrize("sent", [b"Content-Le", b"Content-Length: 5\r\n", b"Content-Length: 5\r\n\r\nabc"])
def test_a_stream_that_stops_inside_a_frame_is_a_fault(sent: bytes):
    decoder = FrameDecoder()
    decoder.feed(sent)
    assert everything(decoder) == []
    assert decoder.inside_frame
    fault = decoder.interrupted("the stream ended")
    assert fault is not None
    assert fault.fatal
    assert "incomplete: the stream ended" in fault.message


def test_a_stream_that_stops_between_frames_is_none():
    decoder = FrameDecoder()
    decoder.feed(encode_frame(b"{}"))
    assert everything(decoder) == [b"{}"]
    assert decoder.interrupted("the stream ended") is None


def test_a_body_that_does_not_fit_is_not_encoded():
    assert encode_frame(b"x" * MAX_FRAME_BYTES).endswith(b"xx")
    with pytest.raises(FrameTooLargeError, match="8388609 bytes"):
        encode_frame(b"x" * (MAX_FRAME_BYTES + 1))
