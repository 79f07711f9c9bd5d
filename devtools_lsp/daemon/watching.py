"""Changes that somebody else makes on disk, in batches (SPEC 8.0.12), by watchfiles.

Owns what is watched, what is ignored, how a burst becomes one batch, and the fallback when the system has no more
watches: polling, which is slower and is said. What a change means is its listeners' business.

Directories that hold nothing of a person's are not even watched where they are top-level (a `node_modules` alone
would use up every watch), and their changes are dropped elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from watchfiles import Change, watch

from devtools_lsp.engines.tree import FileEvent

_log = logging.getLogger(__name__)

IGNORED_DIRECTORIES = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".jj",
        ".devtools",
        ".venv",
        ".tox",
        ".nox",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
        ".gradle",
        ".next",
        ".turbo",
        "__pycache__",
        "node_modules",
        "target",
    }
)
"""Names of directories whose content is made by tools; none of ours belongs to what people and agents edit."""

BURST_MS = 400
"""The longest that changes are gathered before they are told."""
STEP_MS = 50
"""A burst ends when nothing happened for this long."""
POLL_MS = 3000
"""How often the fallback looks."""
WAIT_MS = 5000
"""How long one call into watchfiles lasts when nothing happens."""
IDLE_S = 0.25
"""How often a thread without directories looks whether it should end."""
JOIN_S = 10.0
RETRY_S = 30.0
STAGING_PREFIX = ".devtools-lsp-"
"""Our own temporaries, which exist for the blink between writing and renaming."""
MAX_WALKED = 5000
"""A directory that appears is walked for this many files; what is beyond them is told as the directory alone."""

Listener = Callable[[Sequence[FileEvent]], None]
Announce = Callable[[str], None]
Batches = Iterable[set[tuple[Change, str]]]


class Watcher:
    """Watches one root in threads of its own and tells a listener on the event loop, in batches.

    A path that is gone may have been a directory: it stands for all that was below it. `announce` is given a
    sentence for people when the fallback begins; `polling` says whether it did.
    """

    def __init__(
        self,
        root: Path,
        listener: Listener,
        *,
        announce: Announce = lambda _message: None,
        ignored: frozenset[str] = IGNORED_DIRECTORIES,
        force_polling: bool = False,
        poll_ms: int = POLL_MS,
        watch: Callable[..., Batches] = watch,
    ) -> None:
        self._root = os.path.realpath(root)
        self._listener = listener
        self._announce = announce
        self._ignored = ignored
        self._poll_ms = poll_ms
        self._watch = watch
        self.polling = force_polling
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._below: _Watch | None = None
        self._threads: set[threading.Thread] = set()

    @property
    def closing(self) -> bool:
        """Whether it is being closed."""
        return self._closing.is_set()

    async def start(self) -> None:
        """Begin; returns once the watches stand, so that what happens from here on is seen."""
        self._loop = asyncio.get_running_loop()
        top = _Watch(self, [self._root], recursive=False)
        self._run(top)
        below = self._watch_below()
        await asyncio.to_thread(top.stands.wait)
        await asyncio.to_thread(below.stands.wait)

    async def close(self) -> None:
        """Stop; nothing is told afterwards."""
        self._closing.set()
        with self._lock:
            self._loop = None
            threads = list(self._threads)
            if self._below is not None:
                self._below.stop.set()
        for thread in threads:
            await asyncio.to_thread(thread.join, JOIN_S)

    # -- in the watching threads ---------------------------------------------------------------------------------

    def _run(self, work: _Watch) -> None:
        thread = threading.Thread(target=self._serve, args=(work,), name="devtools-lsp watch", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _watch_below(self) -> _Watch:
        """Watch the top-level directories that there are now, and only then let go of those watched before."""
        below = _Watch(self, self._top_directories(), recursive=True)
        with self._lock:
            below.replaces, self._below = self._below, below
        self._run(below)
        return below

    def _top_directories(self) -> list[str]:
        try:
            with os.scandir(self._root) as entries:
                return sorted(
                    entry.path
                    for entry in entries
                    if entry.name not in self._ignored and entry.is_dir(follow_symlinks=False)
                )
        except OSError:
            return []

    def _serve(self, work: _Watch) -> None:
        try:
            while not self._over(work):
                try:
                    for batch in self._batches(work):
                        self._tell(work, batch)
                        if self._over(work):
                            break
                except FileNotFoundError:
                    # A directory went away while the watch was made; what is left is watched instead.
                    work.paths = [path for path in work.paths if Path(path).is_dir()]
                    work.stop.wait(STEP_MS / 1000)
                except (OSError, RuntimeError) as error:
                    self._fall_back(work, error)
        except Exception:
            _log.exception("watching %s ended; changes made by others are not noticed any more", self._root)
        finally:
            work.now_stands()
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _over(self, work: _Watch) -> bool:
        return self._closing.is_set() or work.stop.is_set()

    def _batches(self, work: _Watch) -> Batches:
        if not work.paths:
            work.now_stands()
            while not work.stop.wait(IDLE_S) and not self._closing.is_set():
                pass
            return ()
        return self._watch(
            *work.paths,
            watch_filter=None,
            debounce=BURST_MS,
            step=STEP_MS,
            stop_event=work,
            rust_timeout=WAIT_MS,
            raise_interrupt=False,
            force_polling=self.polling,
            poll_delay_ms=self._poll_ms,
            recursive=work.recursive,
            ignore_permission_denied=True,
        )

    def _fall_back(self, work: _Watch, error: Exception) -> None:
        if self.polling:
            # Polling failed as well: nothing better is left than to try again, slowly.
            _log.warning("watching failed: %s", error)
            work.stop.wait(RETRY_S)
            return
        self.polling = True
        _log.warning("the system refuses to watch %s: %s", self._root, error)
        self._call(
            lambda: self._announce(
                f"File changes are noticed by polling, every {self._poll_ms / 1000:g} s, because the system has no "
                f"watches left ({error}). Raise fs.inotify.max_user_watches to be told at once."
            )
        )

    def _tell(self, work: _Watch, batch: set[tuple[Change, str]]) -> None:
        events, directories = self._events(batch)
        if not work.recursive and directories:
            # Its own watch stands before it is walked, so that nothing made meanwhile is missed.
            self._watch_below().stands.wait(JOIN_S)
            events += [event for directory in directories for event in self._walk(directory)]
        if events:
            self._call(lambda: self._listener(events))

    def _events(self, batch: set[tuple[Change, str]]) -> tuple[list[FileEvent], list[str]]:
        """What happened to files, and the top-level directories that came or went."""
        watched = self._below.paths if self._below is not None else []
        kinds: dict[str, set[Change]] = {}
        for change, host in batch:
            kinds.setdefault(host, set()).add(change)
        events: list[FileEvent] = []
        directories: list[str] = []
        for host, seen in sorted(kinds.items()):
            path = self._relative(host)
            if path is None:
                continue
            top = "/" not in path
            try:
                mode = os.lstat(host).st_mode
            except (OSError, ValueError):
                events.append(FileEvent(path, "deleted"))
                if top and host in watched:
                    directories.append(host)
                continue
            if stat.S_ISDIR(mode):
                if Change.added in seen:
                    if top:
                        directories.append(host)
                    else:
                        events += self._walk(host)
            else:
                events.append(FileEvent(path, "created" if Change.added in seen else "changed"))
        return events, directories

    def _relative(self, host: str) -> str | None:
        if not host.startswith(self._root + "/"):
            return None
        path = host[len(self._root) + 1 :]
        parts = path.split("/")
        if not self._ignored.isdisjoint(parts) or parts[-1].startswith(STAGING_PREFIX):
            return None
        return path

    def _walk(self, directory: str) -> list[FileEvent]:
        """Every file of a directory that appeared at once: moved here, or unpacked before its watch stood."""
        found: list[FileEvent] = []
        for current, names, files in os.walk(directory):
            names[:] = [name for name in names if name not in self._ignored]
            for name in files:
                path = self._relative(os.path.join(current, name))
                if path is not None:
                    found.append(FileEvent(path, "created"))
            if len(found) > MAX_WALKED:
                relative = self._relative(directory)
                return [FileEvent(relative, "created")] if relative is not None else []
        return found

    def _call(self, told: Callable[[], None]) -> None:
        with self._lock:
            loop = self._loop
            if loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(told)


class _Watch:
    """One set of watched directories. Also the event that watchfiles looks at to stop."""

    def __init__(self, watcher: Watcher, paths: list[str], *, recursive: bool) -> None:
        self._watcher = watcher
        self.paths = paths
        self.recursive = recursive
        self.stop = threading.Event()
        self.stands = threading.Event()
        self.replaces: _Watch | None = None

    def now_stands(self) -> None:
        """It sees everything from here on, so that the one before it is not needed any more."""
        if not self.stands.is_set():
            self.stands.set()
            if self.replaces is not None:
                self.replaces.stop.set()
                self.replaces = None

    def is_set(self) -> bool:
        """Whether to stop. watchfiles asks several times a second, and for the first time once the watch is made."""
        self.now_stands()
        return self.stop.is_set() or self._watcher.closing
