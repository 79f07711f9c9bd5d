"""What a command printed: cleaning, streaming, head and tail."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.agent.shell_output import OutputCapture, clean


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain \xc3\xa9 text\tand tab", b"plain \xc3\xa9 text\tand tab"),
        (b"\x1b[31mred\x1b[0m", b"red"),
        (b"\x1b[38;2;1;2;3mtrue colour\x1b[m", b"true colour"),
        (b"\xc2\x9b31mone-character introducer", b"one-character introducer"),
        (b"\x1b]0;title\x07after", b"after"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", b"link"),
        (b"\x1b]unterminated title", b"unterminated title"),
        (b"\x1bP1$r0m\x1b\\device string", b"device string"),
        (b"\x1b(B\x1b=\x1b>charset", b"charset"),
        (b"lone escape at the end\x1b", b"lone escape at the end"),
        (b"10%\r50%\r100%", b"100%"),
        (b"10%\r100%\r", b"100%"),
        (b"\x1b[31mred\x1b[0m\r10%\r100%", b"100%"),
        (b"b\x08bo\x08ol\x08ld\x08d", b"bold"),
        (b"_\x08\xc3\xa9", b"\xc3\xa9"),
        (b"\xc3\xa9\x08e", b"e"),
        (b"bell\x07 nul\x00 del\x7f", b"bell nul del"),
        (b"form\x0cfeed is content", b"form\x0cfeed is content"),
        (b"one\r\ntwo\x1b[1m\r\nthree", b"one\ntwo\nthree"),
    ],
)
def test_clean(raw: bytes, shown: bytes):
    assert clean(raw) == shown


@pytest.mark.parametrize("unit", [b"\x1b]", b"\x1b[", b"\x1b[1", b"\x1b", b"a\x08", b"\r", b"\x1bP", b"\xc2\x9b"])
def test_cleaning_takes_time_in_proportion(unit: bytes):
    """Hostile output does not hold the loop: 32 times as much takes nowhere near 32 x 32 times as long."""

    def cost(repeat: int) -> float:
        data = unit * repeat
        return min(_timed(data) for _ in range(3))

    def _timed(data: bytes) -> float:
        began = time.process_time()
        clean(data)
        return time.process_time() - began

    assert cost(64_000) < 32 * 8 * max(cost(2_000), 0.0002)


def capture(max_bytes: int = 10_000, **options) -> OutputCapture:
    return OutputCapture(max_bytes, **options)


def test_lines_are_streamed_without_their_ends_and_with_their_stream():
    told: list[tuple[str, str]] = []
    output = capture(on_output=lambda stream, text: told.append((stream, text)))
    output.feed("stdout", b"one\r\ntw", 0)
    output.feed("stderr", b"oops\n", 0)
    output.feed("stdout", b"o\nunfinished", 0)
    assert told == [("stdout", "one"), ("stderr", "oops"), ("stdout", "two")]
    done = output.finish(0)
    assert told[3:] == [("stdout", "unfinished")]
    assert done.text == "one\noops\ntwo\nunfinished"
    assert (done.stdout, done.stderr) == ("one\ntwo\nunfinished", "oops\n")
    assert (done.total_bytes, done.dropped_bytes) == (len(done.text), 0)


def test_a_burst_is_streamed_as_one_text():
    told: list[str] = []
    output = capture(on_output=lambda _, text: told.append(text))
    output.feed("stdout", b"line\n" * 100, 0)
    assert told == ["\n".join(["line"] * 100)]


def test_streaming_is_bounded_and_says_what_it_left_out():
    told: list[str] = []
    output = capture(1_000, on_output=lambda _, text: told.append(text))
    for _ in range(100):
        output.feed("stdout", b"x" * 99 + b"\n", now=0.0)
    assert len(told) == 10
    output.feed("stdout", b"later\n", now=60.0)
    assert told[10:] == ["[9,000 bytes came too fast to be streamed]", "later"]


def test_progress_that_never_ends_its_line_does_not_grow():
    output = capture()
    for step in range(100_000):
        output.feed("stdout", f"\r{step} of 100000".encode(), 0)
    done = output.finish(0)
    assert done.text == "99999 of 100000"
    assert done.total_bytes == len(done.text)


@pytest.mark.parametrize("chunk", [1, 7, 4096])
def test_an_endless_line_is_passed_on_in_pieces_that_cut_nothing_in_half(chunk: int):
    told: list[str] = []
    text = "é\x1b[31m€" * 40_000
    output = capture(1 << 20, on_output=lambda _, piece: told.append(piece))
    data = text.encode()
    for start in range(0, len(data), chunk * 64):
        output.feed("stdout", data[start : start + chunk * 64], 0)
    assert told
    done = output.finish(0)
    assert "".join(told) == done.text == "é€" * 40_000


def test_head_and_tail_are_kept_and_the_rest_is_counted():
    output = capture(2_000)
    for number in range(1_000):
        output.feed("stdout", f"line {number:04}\n".encode(), 0)
    done = output.finish(0)
    lines = done.stdout.splitlines()
    assert lines[0] == "line 0000"
    assert lines[-1] == "line 0999"
    marker = next(line for line in lines if line.startswith("[…"))
    assert f"{done.dropped_bytes:,} bytes of stdout dropped" in marker
    kept = [line for line in lines if line.startswith("line ")]
    assert all(len(line) == 9 for line in kept), "no line is cut in half"
    assert done.total_bytes == 10_000 == done.dropped_bytes + 10 * len(kept)
    assert len(done.text.encode()) <= 2_000


def test_a_flood_on_one_stream_does_not_push_out_the_others_last_words():
    output = capture(4_000)
    output.feed("stdout", b"o" * 99 + b"\n", 0)
    for _ in range(20):
        output.feed("stdout", (b"o" * 99 + b"\n") * 100, 0)
        output.feed("stderr", b"the reason\n", 0)
    done = output.finish(0)
    assert done.stderr == "the reason\n" * 20
    assert "bytes of stdout dropped" in done.stdout


def test_what_fits_is_whole():
    output = capture(1_000)
    output.feed("stdout", b"a" * 999 + b"\n", 0)
    assert output.finish(0).stdout == "a" * 999 + "\n"


def test_many_tiny_interleaved_pieces_are_bounded_too():
    output = capture(100_000)
    for number in range(50_000):
        output.feed("stdout" if number % 2 else "stderr", b"x\n", 0)
    kept = output.finish(0)
    segments = kept.text.count("x")
    assert segments < 2_500, "each piece is charged for the room that it takes"
    assert kept.dropped_bytes > 0


def test_redaction_covers_what_is_streamed_and_what_spans_lines_at_the_end():
    told: list[str] = []
    secrets = ("s3cr3t", "BEGIN KEY\nabc\nEND KEY")

    def redact(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "[redacted]")
        return text

    output = capture(on_output=lambda _, text: told.append(text), redact=redact)
    for piece in (b"token s3c", b"r3t\nBEGIN KEY\n", b"abc\nEND KEY\n"):
        output.feed("stdout", piece, 0)
    done = output.finish(0)
    assert told[0] == "token [redacted]"
    assert done.text == "token [redacted]\n[redacted]\n" == done.stdout


def test_a_cut_leaves_no_half_of_a_secret():
    secret = "abcdefghijklmnopqrstuvwxyz0123456789"
    for size in range(200, 1_200, 7):
        output = capture(size, redact=lambda text: text.replace(secret, "[redacted]"))
        output.feed("stdout", f"KEY={secret} filler filler\n".encode() * 200, 0)
        text = output.finish(0).text
        assert secret[:8] not in text, size
        assert secret[-8:] not in text, size


OUTPUT = st.lists(
    st.tuples(
        st.sampled_from(["stdout", "stderr"]),
        st.text(alphabet="ab é\t\r\n\x1b[1m\x08€", max_size=40).map(lambda text: text.encode()),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(OUTPUT, st.integers(1, 9))
def test_how_output_is_chunked_changes_nothing(pieces: list[tuple[str, bytes]], chunk: int):
    """Each stream's text depends on its bytes alone."""
    whole, split = capture(), capture()
    for stream in ("stdout", "stderr"):
        data = b"".join(piece for name, piece in pieces if name == stream)
        whole.feed(stream, data, 0)
        for start in range(0, len(data), chunk):
            split.feed(stream, data[start : start + chunk], 0)
    first, second = whole.finish(0), split.finish(0)
    assert (first.stdout, first.stderr) == (second.stdout, second.stderr)
    assert "\x1b" not in first.text


@settings(max_examples=150, deadline=None)
@given(OUTPUT, st.integers(200, 600))
def test_the_cap_holds_and_the_count_is_right(pieces: list[tuple[str, bytes]], cap: int):
    output = capture(cap)
    for stream, piece in pieces:
        output.feed(stream, piece * 10, 0)
    done = output.finish(0)
    assert len(done.text.replace("�", "?").encode()) <= cap
    assert (done.dropped_bytes > 0) == ("bytes of std" in done.text)
    if not done.dropped_bytes:
        assert len(done.stdout) + len(done.stderr) == len(done.text)
