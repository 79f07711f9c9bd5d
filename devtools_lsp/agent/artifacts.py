"""Full results behind handles: spooled to files outside the root, bounded, read back in pages (SPEC 7.5).

A reply to an agent carries a summary; what it leaves out stays here for a while. Files are JSON, 0600 in a 0700
directory of the user's own, under names that nobody can guess. Spooling costs the caller a few microseconds: a
writer thread encodes and writes, a moment later so that it is not in the way of the reply, and until it has, the
result is served from memory. Knows nothing of how replies are cut.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import re
import stat
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from devtools_lsp.errors import BadArgumentError, InvalidConfigError
from devtools_lsp.ports import Clock

_log = logging.getLogger(__name__)
_HANDLE = re.compile(r"[A-Za-z0-9_-]{22}")
_SUFFIX = ".json"
MAX_PAGE = 1000
LAZY_S = 0.05
"""How long a result may wait for its file: those that come in quick succession are written together."""


class SpooledJsonArtifact(msgspec.Struct, frozen=True):
    """A spooled result: its `handle`, and how many diagnostics (`total`) `page` serves of it."""

    handle: str
    total: int


class _Diagnosed(msgspec.Struct):
    """The part of a spooled result that pages are made of."""

    diagnostics: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])


@dataclass(slots=True)
class _Entry:
    """One artifact: `result` is held until the writer is done; `size` is known from then on."""

    born: float
    size: int = 0
    result: object = None


class ArtifactStore:
    """The spool of one daemon or embedder.

    Bounds: `max_count` artifacts, `max_age_s` seconds, `max_bytes` in all; the oldest go first. One that is larger
    than `max_bytes` by itself is not kept, and asking for it says so. Artifacts of an earlier process are served
    until they are too old. Raises InvalidConfigError when the directory is not private to this user. Safe to call
    from several threads.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        clock: Clock,
        max_count: int = 200,
        max_age_s: float = 24 * 3600.0,
        max_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self._directory = Path(directory)
        self._clock = clock
        self._max_count = max_count
        self._max_age_s = max_age_s
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._too_large: OrderedDict[str, int] = OrderedDict()
        self._size = 0
        self._unwritten: deque[tuple[str, _Entry]] = deque()
        self._writing = False
        self._closing = threading.Event()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="artifact-writer")
        self._prepare()

    def spool(self, result: msgspec.Struct | Mapping[str, Any]) -> SpooledJsonArtifact:
        """Keep a result; its `diagnostics` become the items. The caller must not change it afterwards."""
        artifact = self.name(result)
        self.keep(artifact, result)
        return artifact

    def name(self, result: msgspec.Struct | Mapping[str, Any]) -> SpooledJsonArtifact:
        """What a result will be called; nothing is there under that handle until it is kept."""
        diagnostics: Sized = (
            result.get("diagnostics", ()) if isinstance(result, Mapping) else getattr(result, "diagnostics", ())
        )
        handle = base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()
        return SpooledJsonArtifact(handle, len(diagnostics))

    def keep(self, artifact: SpooledJsonArtifact, result: msgspec.Struct | Mapping[str, Any]) -> None:
        """Keep a result under its name."""
        entry = _Entry(born=self._clock.time(), result=result)
        with self._lock:
            self._entries[artifact.handle] = entry
            # The caller is the event loop: what exceeds a bound by this one is removed by the thread that writes.
            self._unwritten.append((artifact.handle, entry))
            if not self._writing:
                self._writer.submit(self._write_waiting)
                self._writing = True

    async def read(self, handle: str) -> bytes:
        """The whole result as JSON; raises BadArgumentError for a handle that is unknown or has expired."""
        return await asyncio.to_thread(self._read, handle)

    async def page(
        self,
        handle: str,
        path: str | None = None,
        severity: str | None = None,
        engine_id: str | msgspec.UnsetType | None = msgspec.UNSET,
        offset: int = 0,
        limit: int | None = 100,
    ) -> dict[str, Any]:
        """Diagnostics of an artifact: {items, offset, total, nextOffset?}; `total` counts what passes the filters.

        `engine_id` None asks for the runtime's own notices. Raises BadArgumentError for an unknown or expired
        handle and for numbers out of range.
        """
        wanted = 100 if limit is None else limit
        if offset < 0:
            raise BadArgumentError(f"offset is {offset}; it starts at 0", reason="malformed")
        if not 1 <= wanted <= MAX_PAGE:
            raise BadArgumentError(f"limit is {wanted}; it must be from 1 to {MAX_PAGE}", reason="malformed")
        return await asyncio.to_thread(self._page, handle, path, severity, engine_id, offset, wanted)

    def close(self) -> None:
        """Finish writing; later calls of `spool` fail."""
        self._closing.set()
        self._writer.shutdown(wait=True)

    # -- reading

    def _read(self, handle: str) -> bytes:
        with self._lock:
            evicted = self._evict()
            entry = self._entries.get(handle) if _HANDLE.fullmatch(handle) else None
            result = entry.result if entry is not None else None
        self._remove(evicted)
        if entry is None:
            raise self._gone(handle)
        if result is not None:
            return msgspec.json.encode(result)
        try:
            return self._path(handle).read_bytes()
        except FileNotFoundError as error:
            raise self._gone(handle) from error

    def _page(
        self,
        handle: str,
        path: str | None,
        severity: str | None,
        engine_id: str | msgspec.UnsetType | None,
        offset: int,
        limit: int,
    ) -> dict[str, Any]:
        diagnostics = msgspec.json.decode(self._read(handle), type=_Diagnosed).diagnostics
        items = [
            item
            for item in diagnostics
            if (path is None or item.get("path") == path)
            and (severity is None or item.get("severity") == severity)
            and (engine_id is msgspec.UNSET or item.get("engineId") == engine_id)
        ]
        page: dict[str, Any] = {"items": items[offset : offset + limit], "offset": offset, "total": len(items)}
        if offset + limit < len(items):
            page["nextOffset"] = offset + limit
        return page

    def _gone(self, handle: str) -> BadArgumentError:
        size = self._too_large.get(handle)
        if size is not None:
            return BadArgumentError(
                f"artifact {handle!r} was not kept: it had {size:,} bytes and the spool holds {self._max_bytes:,}; run "
                "the tool again on fewer files",
                reason="notFound",
            )
        return BadArgumentError(
            f"artifact {handle[:40]!r} is unknown or has expired (kept: the last {self._max_count}, for "
            f"{self._max_age_s / 3600:g} h); run the tool again",
            reason="notFound",
        )

    # -- writing

    def _write_waiting(self) -> None:
        self._closing.wait(LAZY_S)
        while True:
            with self._lock:
                if not self._unwritten:
                    self._writing = False
                    return
                handle, entry = self._unwritten.popleft()
            self._write(handle, entry)

    def _write(self, handle: str, entry: _Entry) -> None:
        try:
            data = msgspec.json.encode(entry.result)
            if len(data) <= self._max_bytes:
                self._store(handle, data)
        except (OSError, TypeError, ValueError):
            # Kept in memory then: the handle is out, and bounds by count and age still hold.
            _log.exception("an artifact could not be written to %s; it is kept in memory", self._directory)
            with self._lock:
                evicted = self._evict()
            self._remove(evicted)
            return
        evicted: list[str] = []
        with self._lock:
            if len(data) > self._max_bytes:
                self._entries.pop(handle, None)
                self._too_large[handle] = len(data)
                while len(self._too_large) > self._max_count:
                    self._too_large.popitem(last=False)
                return
            entry.size = len(data)
            entry.result = None
            if handle in self._entries:
                self._size += entry.size
            else:
                evicted.append(handle)
            evicted += self._evict()
        self._remove(evicted)

    def _store(self, handle: str, data: bytes) -> None:
        staged = self._path(f".{handle}")
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        staged.rename(self._path(handle))

    def _evict(self) -> list[str]:
        """Forget what exceeds a bound, oldest first; the files are the caller's to remove, outside the lock."""
        oldest_allowed = self._clock.time() - self._max_age_s
        evicted: list[str] = []
        while self._entries:
            handle, entry = next(iter(self._entries.items()))
            if len(self._entries) <= self._max_count and self._size <= self._max_bytes and entry.born >= oldest_allowed:
                break
            del self._entries[handle]
            self._size -= entry.size
            evicted.append(handle)
        return evicted

    def _remove(self, handles: list[str]) -> None:
        for handle in handles:
            with contextlib.suppress(FileNotFoundError):
                self._path(handle).unlink()

    def _path(self, handle: str) -> Path:
        return self._directory / f"{handle}{_SUFFIX}"

    # -- starting

    def _prepare(self) -> None:
        """Make the directory, refuse one that others can reach, and take over what an earlier process left."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self._directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise InvalidConfigError(
                f"the artifact directory {self._directory} must be a directory of this user's with mode 0700; remove it"
            )
        found: list[tuple[float, int, str]] = []
        for file in self._directory.iterdir():
            handle = file.name.removesuffix(_SUFFIX)
            if file.name.startswith("."):
                # A write that an earlier process did not finish.
                file.unlink(missing_ok=True)
            elif _HANDLE.fullmatch(handle):
                status = file.lstat()
                found.append((status.st_mtime, status.st_size, handle))
        for born, size, handle in sorted(found):
            self._entries[handle] = _Entry(born, size)
            self._size += size
        self._remove(self._evict())
