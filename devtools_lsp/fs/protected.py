"""Where the protected places of one root are: found by asking git and the disk, compared by identity and by path.

Owns the discovery of git directories, of the target of `core.hooksPath`, of the configuration files that git reads,
and of the daemon's own places. Says nothing about whether a write is allowed; `fs.policy` does. Blocks.
"""

from __future__ import annotations

import os
import stat
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools_lsp.fs.names import DENIED_DIRECTORIES, GIT_HOOKS, fold_path
from devtools_lsp.fs.walk import Identity
from devtools_lsp.paths import parent_of

GIT = (
    "git",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "safe.bareRepository=explicit",
)
"""How our own git calls begin, so that reading a repository runs nothing of it. None of them runs a hook."""

_GIT_TIMEOUT_S = 5.0
_SETTLED_S = 0.05
"""How long an answer is taken for current without looking: one call of a tool asks several times."""
_RECHECK_S = 1.0
_GIT_PARTS = ("hooks", "info", "objects", "refs", "modules", "worktrees", "logs")


@dataclass(frozen=True, slots=True)
class Protected:
    """What must not be written: directories by identity, and root-relative folded paths with all below them.

    `names` are folded paths of single files.
    """

    identities: frozenset[Identity] = frozenset()
    prefixes: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()


class ProtectedPlaces:
    """Finds the protected places of a root and notices when they move."""

    def __init__(self, root: str, own_paths: Sequence[str] = ()) -> None:
        """`own_paths` are absolute host paths of the daemon's state, journal, socket and configuration."""
        self._root = os.path.realpath(root)
        self._below_root = self._root.rstrip("/") + "/"
        self._own = [os.path.normpath(os.path.join(self._root, path)) for path in own_paths]
        self._denied = [os.path.join(self._root, name) for name in DENIED_DIRECTORIES]
        self._watched: list[str] = []
        self._seen: tuple[object, ...] = ()
        self._expires = 0.0
        self._checked = float("-inf")
        self._git_places: list[str] = []
        self._top = self._root
        self._hooks: str | None = None
        self._origins: list[str] = []
        self._lock = threading.Lock()
        self._current = Protected()

    def current(self) -> Protected:
        """The places as they are now, give or take 50 ms: asked anew when a file that decides them changed, and at
        least once a second.
        """
        with self._lock:
            now = time.monotonic()
            if now < self._checked + _SETTLED_S:
                return self._current
            self._checked = now
            unchanged = self._expires > 0.0 and self._seen == self._fingerprint()
            if unchanged and now < self._expires:
                return self._current
            if not unchanged:
                self._ask_git()
            self._current = self._collect()
            self._expires = now + _RECHECK_S
            return self._current

    def _fingerprint(self) -> tuple[object, ...]:
        found: list[object] = []
        for path in self._watched:
            try:
                status = os.stat(path)
            except OSError:
                found.append(None)
            else:
                found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(found)

    def _ask_git(self) -> None:
        asked = ("--absolute-git-dir", "--git-common-dir", "--show-toplevel")
        # A bare repository has no top level, and git then answers nothing at all.
        places = _run_git(self._root, "rev-parse", *asked) or _run_git(self._root, "rev-parse", *asked[:2])
        *lines, self._top = [*places.splitlines(), self._root][:3] if places else [self._root]
        # Where git gives no answer (it is absent, or mistrusts the owner) another git may give one later.
        directories = [os.path.normpath(os.path.join(self._root, line)) for line in lines or [".git"]]
        self._git_places = [*directories, *(os.path.join(place, part) for place in directories for part in _GIT_PARTS)]
        self._hooks = None
        self._origins = []
        listing = _run_git(self._root, "config", "--list", "--includes", "--show-origin", "-z")
        fields = listing.split("\0") if listing is not None else []
        for origin, setting in zip(fields[::2], fields[1::2], strict=False):
            # Relative origins are relative to where git was run, which is the root.
            source = os.path.join(self._root, origin[5:]) if origin.startswith("file:") else None
            key, _, value = setting.partition("\n")
            if source is not None:
                self._origins.append(source)
                if _is_include(key) and value:
                    # An included file counts before it exists, and whether or not its condition holds now.
                    self._origins.append(os.path.join(parent_of(source), str(_expanded(value))))
            if key == "core.hookspath" and value:
                self._hooks = os.path.normpath(os.path.join(self._top, str(_expanded(value))))
        self._origins = [os.path.normpath(path) for path in dict.fromkeys(self._origins)]
        watched = [
            os.path.join(self._root, ".git"),
            *(os.path.join(place, name) for place in directories for name in ("config", "HEAD", "commondir")),
            *self._origins,
            str(_expanded("~/.gitconfig")),
        ]
        self._watched = list(dict.fromkeys(watched))
        self._seen = self._fingerprint()

    def _collect(self) -> Protected:
        identities: set[Identity] = set()
        prefixes: set[str] = set()
        names: set[str] = set()
        closed = [*self._git_places, *self._own, *self._origins]
        if self._hooks is not None:
            inside = self._relative(self._hooks)
            if inside == "" or self._root.startswith(self._hooks.rstrip("/") + "/"):
                # The hooks directory holds the whole workspace: only the hooks themselves can be closed.
                names.update(hook if inside == "" else "" for hook in GIT_HOOKS)
                names.discard("")
            else:
                closed.append(self._hooks)
        ground = _Ground()
        for path in closed:
            real, status = ground.look(path)
            for spelling in (path,) if path == real else (path, real):
                inside = self._relative(spelling)
                if inside:
                    prefixes.add(fold_path(inside))
            # What does not exist yet is protected by its path alone, and so is a socket: the one that a killed daemon
            # left is replaced at the start, and its number is soon that of some innocent file.
            if status is not None and not stat.S_ISSOCK(status.st_mode):
                identities.add((status.st_dev, status.st_ino))
        for path in self._denied:
            # Their names are denied anyhow; what counts here is another name of the same directory.
            try:
                status = os.stat(path)
            except OSError:
                continue
            if not stat.S_ISSOCK(status.st_mode):
                identities.add((status.st_dev, status.st_ino))
        if identities:
            root = os.stat(self._root)
            identities.discard((root.st_dev, root.st_ino))
        return Protected(frozenset(identities), frozenset(prefixes), frozenset(names))

    def _relative(self, path: str) -> str | None:
        """The path below the root, `""` for the root itself, None outside."""
        if path == self._root:
            return ""
        return path[len(self._below_root) :] if path.startswith(self._below_root) else None


class _Ground:
    """Looks at absolute, normalised paths, all at one time: what is above several of them is looked at once.

    `os.path.realpath` and `os.stat` a path cost ten times as much, and this is done whenever an agent that thought for
    a second makes its next change.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, os.stat_result | None]] = {"": ("", os.stat("/"))}

    def look(self, path: str) -> tuple[str, os.stat_result | None]:
        """The real path, and what is there, links followed; None for what does not exist or may not be looked at."""
        found = self._found.get(path)
        if found is not None:
            return found
        ahead = [path]
        while (above := ahead[-1].rpartition("/")[0]) not in self._found:
            ahead.append(above)
        while ahead:
            place = ahead.pop()
            self._found[place] = self._step(place)
        return self._found[path]

    def _step(self, path: str) -> tuple[str, os.stat_result | None]:
        """What a path is, its parent being known."""
        above, _, name = path.rpartition("/")
        real, status = self._found[above]
        spelling = f"{real.rstrip('/')}/{name}"
        if status is None:
            return spelling, None
        try:
            status = os.lstat(spelling)
        except OSError:
            return spelling, None
        if not stat.S_ISLNK(status.st_mode):
            return spelling, status
        try:
            return os.path.realpath(path), os.stat(path)
        except OSError:
            return os.path.realpath(path), None


def _expanded(path: str) -> Path:
    """With `~` expanded, where that is possible."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _is_include(key: str) -> bool:
    return key == "include.path" or (key.startswith("includeif.") and key.endswith(".path"))


def _run_git(root: str, *arguments: str) -> str | None:
    """Git's answer; None when it has none to give (no git, no repository, a configuration that it refuses)."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(
            [*GIT, *arguments],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return done.stdout.decode("utf-8", "surrogateescape")
