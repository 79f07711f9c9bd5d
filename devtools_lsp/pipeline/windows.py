"""Windows of files: lines of a text in memory, and of a file too large to load (SPEC 3.3.2).

A window of a file on disk is read in chunks, so that memory stays bounded whatever the file's size.
"""

from __future__ import annotations

import codecs

from devtools_lsp.core.result import Read
from devtools_lsp.errors import BadArgumentError, WorkspaceBoundsError
from devtools_lsp.pipeline.parts import PipelineParts
from devtools_lsp.text import split_lines

CHUNK_BYTES = 1024 * 1024
MAX_WINDOW_BYTES = 2 * 1024 * 1024
"""The most text that one window may hold."""


def window_of_text(path: str, text: str, start: int, end: int | None) -> Read:
    """Lines `start` to `end` (1-based, inclusive) of an LF text; raises BadArgumentError past its end."""
    lines = split_lines(text)
    _check_start(path, start, len(lines))
    last = len(lines) if end is None else min(end, len(lines))
    chosen = lines[start - 1 : last]
    # The last line keeps its missing line end, so that what is read is what the file says.
    tail = "\n" if chosen and (last < len(lines) or text.endswith("\n")) else ""
    return Read(path=path, start=start, end=last, total_lines=len(lines), text="\n".join(chosen) + tail)


async def window_of_file(parts: PipelineParts, path: str, start: int, end: int | None, size: int) -> Read:
    """The same, from disk, holding no more than the window and one chunk in memory."""
    read_window = getattr(parts.file_system, "read_window", None)
    adapter_path = parts.translator.to_adapter(path)
    decoder: codecs.IncrementalDecoder | None = None
    kept: list[str] = []
    kept_size = 0
    line = 1
    carried = ""
    offset = 0
    ended_with_newline = True
    while offset < size:
        if read_window is None:
            data = await parts.file_system.read(adapter_path)
        else:
            data = await read_window(adapter_path, offset, CHUNK_BYTES)
        if not data:
            break
        if decoder is None:
            decoder, data = _decoder_for(data, offset)
        offset += CHUNK_BYTES if read_window is not None else size
        text = carried + _decode(path, decoder, data, final=offset >= size)
        # A CR at a chunk's end may belong to a CRLF, so it waits for the next chunk.
        carried = "\r" if text.endswith("\r") and offset < size else ""
        text = text[: len(text) - len(carried)].replace("\r\n", "\n")
        if not text:
            continue
        ended_with_newline = text.endswith("\n")
        breaks = text.count("\n")
        wanted_here = line + breaks >= start and (end is None or line <= end)
        if wanted_here:
            piece = _slice_lines(text, start - line, None if end is None else end - line)
            kept.append(piece)
            kept_size += len(piece)
            if kept_size > MAX_WINDOW_BYTES:
                raise WorkspaceBoundsError(
                    f"bound window: lines {start} to {end or 'the end'} of {path} are more than the {MAX_WINDOW_BYTES} "
                    "characters that are allowed; ask for fewer lines",
                    path=path,
                )
        line += breaks
    total = line if not ended_with_newline else line - 1
    _check_start(path, start, total)
    return Read(
        path=path, start=start, end=total if end is None else min(end, total), total_lines=total, text="".join(kept)
    )


def _decoder_for(data: bytes, offset: int) -> tuple[codecs.IncrementalDecoder, bytes]:
    assert offset == 0
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark):
            return codecs.getincrementaldecoder(name)(), data[len(mark) :]
    return codecs.getincrementaldecoder("utf-8")(), data


def _decode(path: str, decoder: codecs.IncrementalDecoder, data: bytes, *, final: bool) -> str:
    try:
        text = decoder.decode(data, final)
    except UnicodeDecodeError as error:
        raise BadArgumentError(f"{path} is not text: {error.reason}", reason="notText", path=path) from None
    if "\0" in text:
        raise BadArgumentError(f"{path} is not text: it contains NUL characters", reason="notText", path=path)
    return text


def _slice_lines(text: str, first: int, last: int | None) -> str:
    """Lines `first` to `last` of a chunk, 0-based and inclusive; negative `first` means from its start."""
    begin = 0
    for _ in range(max(first, 0)):
        found = text.find("\n", begin)
        if found < 0:
            return ""
        begin = found + 1
    if last is None:
        return text[begin:]
    position = begin
    for _ in range(last - max(first, 0) + 1):
        found = text.find("\n", position)
        if found < 0:
            return text[begin:]
        position = found + 1
    return text[begin:position]


def _check_start(path: str, start: int, total: int) -> None:
    if start > max(total, 1):
        raise BadArgumentError(
            f"read_lines: {path} has {total} lines, so there is no line {start}", step="read_lines", path=path
        )
