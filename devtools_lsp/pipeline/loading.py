"""The files that a plan acquires, read and decoded, once the gate has said yes (SPEC 3.2).

What they are was settled by names in `acquire.py`; what is no text is refused here, or left out and said.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.core.summary import first_names
from devtools_lsp.core.workspace import DiskFile, FileText, sha256
from devtools_lsp.errors import BadArgumentError
from devtools_lsp.pipeline.acquire import READ_A_WINDOW, Resolved, check_bound, check_total, left_out, refusing
from devtools_lsp.pipeline.off_loop import ENTRY, off_loop
from devtools_lsp.pipeline.parts import PipelineParts
from devtools_lsp.ports import batching
from devtools_lsp.text import NotTextError, decode


class Loaded(msgspec.Struct, frozen=True):
    """The files as texts, and those that are none and were left out, with what is said of them."""

    files: dict[str, DiskFile]
    not_text: tuple[str, ...]
    notices: tuple[Diagnostic, ...]


async def load(parts: PipelineParts, resolved: Resolved, targets: Sequence[str], named: Collection[str]) -> Loaded:
    """Read and decode. What is no text is left out, and said, where only patterns brought it in.

    `named` are the files that steps name. Raises BadArgumentError (`notText`, `notFound`) or WorkspaceBoundsError.
    """
    contents = await _read_all(parts, targets)
    weight = sum(map(len, contents.values())) + ENTRY * len(contents)
    return await off_loop(weight, _decoded, parts, resolved, contents, named)


def _decoded(parts: PipelineParts, resolved: Resolved, contents: Mapping[str, bytes], named: Collection[str]) -> Loaded:
    files: dict[str, DiskFile] = {}
    not_text: list[str] = []
    optional = resolved.patterned.difference(named)
    sizes: dict[str, int] = {}
    for path, data in contents.items():
        check_bound(
            len(data),
            parts.bounds.max_bytes_per_file,
            "max_bytes_per_file",
            path,
            f"{path} has {len(data)} bytes",
            "bytes",
            READ_A_WINDOW,
        )
        sizes[path] = len(data)
        try:
            files[path] = decode_file(path, data)
        except BadArgumentError:
            if path not in optional:
                raise
            not_text.append(path)
    check_total(sizes, parts.bounds)
    for pattern, found in resolved.by_pattern.items():
        if found.issubset(not_text):
            raise BadArgumentError(
                f"pattern {pattern!r} matches no text file; what it matches is not text: {first_names(sorted(found))}",
                reason="notText",
                path=pattern,
            )
    told = left_out(not_text, "they are not text") if not_text else ()
    return Loaded(files, tuple(not_text), tuple(told))


def decode_file(path: str, data: bytes) -> DiskFile:
    """Bytes to a known disk state; raises BadArgumentError `notText`."""
    try:
        text, form = decode(data)
    except NotTextError as error:
        raise BadArgumentError(f"{path} is not text: {error}", reason="notText", path=path) from None
    return DiskFile(sha256(data), len(data), FileText(text, form))


async def read_present(parts: PipelineParts, paths: Sequence[str]) -> dict[str, bytes]:
    """The bytes of those of the paths that are there."""
    found: dict[str, bytes] = {}
    for path in paths:
        try:
            with refusing(parts, path):
                found[path] = await parts.file_system.read(parts.translator.to_adapter(path))
        except FileNotFoundError:
            continue
    return found


async def _read_all(parts: PipelineParts, targets: Sequence[str]) -> dict[str, bytes]:
    adapter_paths = {parts.translator.to_adapter(path): path for path in targets}
    batch = batching(parts.file_system) if len(targets) > 1 else None
    if batch is not None:
        found = await batch.read_many(list(adapter_paths))
        contents: dict[str, bytes] = {}
        for adapter_path, path in adapter_paths.items():
            content = found[adapter_path]
            if isinstance(content, BaseException):
                raise _vanished(path) if isinstance(content, FileNotFoundError) else content
            contents[path] = content
        return contents
    contents = {}
    for adapter_path, path in adapter_paths.items():
        try:
            with refusing(parts, path):
                contents[path] = await parts.file_system.read(adapter_path)
        except FileNotFoundError:
            raise _vanished(path) from None
    return contents


def _vanished(path: str) -> BadArgumentError:
    return BadArgumentError(f"{path} disappeared before it could be read", reason="notFound", path=path)
