"""The local disk below one root, synchronously: reading through the descriptor walk, and single atomic changes.

Owns reads, listings and the plain methods of SPEC 5.1 (one path at a time, no journal). Transactions are
`fs.transaction`, the asyncio face is `fs.local`. Raises FileNotFoundError for an absence and the taxonomy's errors
for everything else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Literal, TypeVar

from devtools_lsp.errors import DevToolsError, PolicyError
from devtools_lsp.fs.effects import conflict
from devtools_lsp.fs.layout import created_below, judge_layouts
from devtools_lsp.fs.names import check_creatable
from devtools_lsp.fs.nearby import MAX_SMALL_BYTES, Nearby
from devtools_lsp.fs.partly import PartlyLandedError
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.protected import Protected
from devtools_lsp.fs.refusals import not_found, not_regular, refusal
from devtools_lsp.fs.staging import (
    DisplacedError,
    open_regular,
    place_new,
    place_over,
    print_at,
    print_of,
    read_all,
    take_away,
    write_staged,
)
from devtools_lsp.fs.walk import LIST_FLAGS, READ_FLAGS, BatchWalk, Identity, RootWalk, Trail
from devtools_lsp.ports import Access, DirectoryEntry, FileKind, FileStat

Symlinks = Literal["reject", "inside"]

_MAX_RACES = 16


class LocalDisk:
    """One root, its symlink rule and its policy."""

    def __init__(self, walk: RootWalk, symlinks: Symlinks, policy: PathPolicy | None) -> None:
        self.walk = walk
        self.symlinks: Symlinks = symlinks
        self.policy = policy
        self.follow = symlinks == "inside"
        """Whether mutations follow links (reads always do, as long as these stay inside)."""
        self.nearby = Nearby(walk.descriptor)

    # -- reading -------------------------------------------------------------------------------------------------

    def stat(self, path: str) -> FileStat:
        """What a path is, links followed."""
        with self._reading("look at", path), self.walk.walk(path, follow=True) as trail:
            return _stat_of(trail, path)

    def stat_many(self, paths: Sequence[str]) -> dict[str, FileStat | Exception]:
        """Many paths; what `stat` would have raised for one stands in its place."""
        with BatchWalk(self.walk) as batch:

            def one(path: str) -> FileStat:
                with self._reading("look at", path):
                    return _stat_of(batch.walk(path, follow=True), path)

            return {path: _attempted(one, path) for path in paths}

    def list(self, path: str) -> list[DirectoryEntry]:
        """The names in a directory. Names that are not UTF-8 cannot be addressed and are left out."""
        with self._reading("list", path):
            descriptor, trail = self.walk.open_directory(path, follow=True)
            with trail:
                try:
                    with os.scandir(descriptor) as entries:
                        return [
                            DirectoryEntry(entry.name, _entry_kind(entry)) for entry in entries if _utf8(entry.name)
                        ]
                finally:
                    os.close(descriptor)

    def read(self, path: str) -> bytes:
        """A regular file's bytes."""
        return self._read(path, 0, None)

    def read_small(self, path: str) -> bytes | None:
        """As `read`, at most MAX_SMALL_BYTES; None for a larger file."""
        data = self._read(path, 0, MAX_SMALL_BYTES + 1)
        return data if len(data) <= MAX_SMALL_BYTES else None

    def read_window(self, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes of a regular file, from byte `offset`."""
        return self._read(path, offset, limit)

    def read_many(self, paths: Sequence[str]) -> dict[str, bytes | Exception]:
        """Many files; what `read` would have raised for one stands in its place."""
        with BatchWalk(self.walk) as batch:

            def one(path: str) -> bytes:
                with self._reading("read", path):
                    data = self._read_at(batch.walk(path, follow=True), path, 0, None)
                    return data if data is not None else self._read(path, 0, None)

            return {path: _attempted(one, path) for path in paths}

    def hash(self, path: str) -> str:
        """The SHA-256 of the regular file at a resolved path, no link followed and no policy asked."""
        with self._reading("read", path), self.walk.walk(path, follow=False) as trail:
            found = None if trail.missing else print_at(trail.name or ".", trail.descriptor)
            if found is None:
                raise not_found(path)
            return found.sha256

    def directory_ino(self, path: str) -> int | None:
        """The inode of the directory at a resolved path; None for anything else, and where there is no way to it."""
        try:
            with self.walk.walk(path, follow=False) as trail:
                found = None if trail.missing else trail.status
        except (OSError, DevToolsError):
            return None
        return found.st_ino if found is not None and stat.S_ISDIR(found.st_mode) else None

    def _read(self, path: str, offset: int, limit: int | None) -> bytes:
        try:
            for _ in range(_MAX_RACES):
                trail = self.walk.walk(path, follow=True)
                try:
                    data = self._read_at(trail, path, offset, limit)
                finally:
                    trail.close()
                if data is not None:
                    return data
        except OSError as error:
            raise _unread(error, "read", path) from error
        raise PolicyError(f"{path!r} keeps turning into a symbolic link", reason="symlink", path=path)

    def _read_at(self, trail: Trail, path: str, offset: int, limit: int | None) -> bytes | None:
        """The bytes at the end of a walk; None when the file became a link since, so that one has to look again."""
        if trail.missing or trail.status is None:
            raise not_found(path)
        if self.policy is not None:
            self.policy.judge(path, "read")
            if trail.path != path:
                self.policy.judge(trail.path, "read")
        if not stat.S_ISREG(trail.status.st_mode):
            if stat.S_ISDIR(trail.status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            raise not_regular("read", path)
        try:
            descriptor = os.open(trail.name, READ_FLAGS, dir_fd=trail.descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise not_regular("read", path)
            return read_all(descriptor, status.st_size, offset, limit)
        finally:
            os.close(descriptor)

    # -- examining -----------------------------------------------------------------------------------------------

    def examine_many(self, paths: Sequence[tuple[str, Access]]) -> list[FileStat | None]:
        """Stages 5 and 6 on the disk: every existing component is opened and judged, up to the first missing one.

        Paths to be written are judged together, too: what would become a repository. Nothing is changed; the first
        refusal is raised. Returns what each path is, None for an absence.
        """
        found: list[FileStat | None] = []
        self.walk.require_in_place()
        protected = self.policy.protected() if self.policy is not None else None
        arriving: dict[str, bool] = {}
        trail: Trail | None = None
        walked, followed = "", True
        what: FileStat | None = None
        with BatchWalk(self.walk) as batch:
            for path, access in paths:
                follow = access == "read" or self.follow
                try:
                    # A walk that was to follow no link and found none stands for one that may follow them.
                    if trail is None or path != walked or (followed and not follow):
                        trail = batch.walk(path, follow=follow)
                        walked, followed = path, follow
                        self.nearby.note(path, trail)
                        what = None if trail.missing or trail.status is None else _stat_of(trail, path)
                    self._judge(trail, path, access, protected)
                except OSError as error:
                    raise _unchanged(error, "look at", path) from error
                found.append(what)
                if access in ("write", "create", "restore"):
                    arriving[trail.path] = what is None
            if self.policy is not None and arriving:
                coming = created_below([path for path, absent in arriving.items() if absent])
                judge_layouts(self.policy, list(arriving), coming, partial(self._stands, batch))
        return found

    def _stands(self, batch: BatchWalk, directory: str, name: str) -> bool:
        path = f"{directory}/{name}" if directory else name
        try:
            trail = batch.walk(path, follow=False)
        except OSError as error:
            raise _unchanged(error, "look at", path) from error
        return not trail.missing and trail.status is not None

    def _judge(self, trail: Trail, path: str, access: Access, protected: Protected | None) -> None:
        """Policy on what a walk to a path went through and found, and what may not be written whatever it says."""
        if self.policy is not None:
            identities: tuple[Identity, ...] = trail.identities
            if trail.status is not None:
                identities = (*identities, (trail.status.st_dev, trail.status.st_ino))
            self.policy.judge(trail.path, access, identities, protected=protected)
            if access != "read" and trail.path != path:
                self.policy.judge_alias(path, trail.path)
        if access == "read":
            return
        if trail.status is None:
            if access != "restore":
                check_creatable((*trail.missing, trail.name), path)
        elif not stat.S_ISREG(trail.status.st_mode) and not stat.S_ISDIR(trail.status.st_mode):
            raise not_regular("write", path)

    # -- single changes ------------------------------------------------------------------------------------------

    def write(self, path: str, data: bytes) -> None:
        """Replace or create one file atomically and durably; its mode, owner and attributes stay."""
        with self._refusing("write", path), self._mutated(path, "write") as trail:
            temporary = f".devtools-lsp-{secrets.token_hex(8)}.tmp"
            try:
                like, status = open_regular(trail.name, trail.descriptor)
            except FileNotFoundError:
                check_creatable([trail.name], path)
                write_staged(temporary, trail.descriptor, data, like=None)
                with self._unless_placed(temporary, trail.descriptor):
                    place_new(temporary, trail.descriptor, trail.name, trail.descriptor)
            else:
                try:
                    before = print_of(like, status)
                    ours = write_staged(temporary, trail.descriptor, data, like=like)
                finally:
                    os.close(like)
                with self._unless_placed(temporary, trail.descriptor):
                    try:
                        place_over(temporary, trail.descriptor, trail.name, trail.descriptor, before, ours)
                    except (DisplacedError, FileNotFoundError) as error:
                        raise conflict({path: "its content is another"}) from error
            with self._done("write", path):
                _remove(temporary, trail.descriptor)
                _sync(trail.descriptor)

    def delete(self, path: str) -> None:
        """Delete one regular file."""
        with self._refusing("delete", path), self._mutated(path, "delete") as trail:
            before = print_at(trail.name, trail.descriptor)
            if before is None:
                raise not_found(path)
            aside = f".devtools-lsp-{secrets.token_hex(8)}.tmp"
            try:
                take_away(trail.name, trail.descriptor, aside, trail.descriptor, before)
            except DisplacedError as error:
                raise conflict({path: "its content is another"}) from error
            with self._done("delete", path):
                os.unlink(aside, dir_fd=trail.descriptor)
                _sync(trail.descriptor)

    def rename(self, source: str, target: str) -> None:
        """Move one regular file to where nothing is."""
        with (
            self._refusing("move", source),
            self._mutated(source, "delete") as old,
            self._mutated(target, "create") as new,
        ):
            os.close(open_regular(old.name, old.descriptor)[0])
            check_creatable([new.name], target)
            place_new(old.name, old.descriptor, new.name, new.descriptor)
            with self._done("move", target):
                _sync(new.descriptor)
                _sync(old.descriptor)

    def mkdir(self, path: str) -> None:
        """Make one directory; its parent exists, and so may it."""
        with self._refusing("make the directory", path), self._mutated(path, "create", directory=True) as trail:
            if trail.status is not None and stat.S_ISDIR(trail.status.st_mode):
                return
            check_creatable([trail.name], path)
            os.mkdir(trail.name, 0o777, dir_fd=trail.descriptor)
            with self._done("make the directory", path):
                _sync(trail.descriptor)

    @contextlib.contextmanager
    def _mutated(self, path: str, access: Access, *, directory: bool = False) -> Generator[Trail]:
        self.walk.require_in_place()
        with self.walk.walk(path, follow=self.follow) as trail:
            if not trail.name:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if self.policy is not None:
                self.policy.judge(trail.path, access, trail.identities, directory=directory)
                self.policy.judge_alias(path, trail.path)
            if trail.missing:
                raise not_found(trail.parent)
            yield trail

    @contextlib.contextmanager
    def _unless_placed(self, temporary: str, directory: int) -> Generator[None]:
        """Leave no temporary behind when it could not be put into place."""
        try:
            yield
        except BaseException:
            _remove(temporary, directory)
            raise

    @contextlib.contextmanager
    def _done(self, doing: str, path: str) -> Generator[None]:
        """What comes after a change that everybody can see already: when it fails, the change is told as landed."""
        try:
            yield
        except OSError as error:
            cause = refusal(error, doing, path)
            failure = PartlyLandedError(
                f"{cause.message}; it was done all the same, but may not outlast a power cut, and a file named "
                ".devtools-lsp-*.tmp may be left beside it",
                path=path,
            )
            failure.landed = frozenset({path})
            raise failure from error

    # -- errors --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reading(self, doing: str, path: str) -> Generator[None]:
        """Keep absences typed and put everything else into the taxonomy."""
        try:
            yield
        except OSError as error:
            raise _unread(error, doing, path) from error

    @contextlib.contextmanager
    def _refusing(self, doing: str, path: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise _unchanged(error, doing, path) from error


def _unread(error: OSError, doing: str, path: str) -> Exception:
    """Why a path could not be read or looked at: an absence stays typed, everything else is put into the taxonomy."""
    return not_found(path) if isinstance(error, FileNotFoundError) else refusal(error, doing, path)


def _unchanged(error: OSError, doing: str, path: str) -> Exception:
    """Why a path could not be changed, or may not be."""
    if isinstance(error, FileExistsError):
        return conflict({path: "something is there now"})
    if isinstance(error, FileNotFoundError):
        return not_found(error.filename if isinstance(error.filename, str) else path)
    return refusal(error, doing, path)


_T = TypeVar("_T")


def _attempted(work: Callable[[str], _T], path: str) -> _T | Exception:
    try:
        return work(path)
    except (OSError, DevToolsError) as error:
        return error


def _stat_of(trail: Trail, path: str) -> FileStat:
    if trail.missing or trail.status is None:
        raise not_found(path)
    return FileStat(_kind(trail.status.st_mode), trail.status.st_size)


def _remove(temporary: str, directory: int) -> None:
    """Remove a temporary, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=directory)


def _sync(directory: int) -> None:
    descriptor = os.open(".", LIST_FLAGS, dir_fd=directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _kind(mode: int) -> FileKind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def _entry_kind(entry: os.DirEntry[str]) -> FileKind:
    if entry.is_symlink():
        return "symlink"
    if entry.is_file(follow_symlinks=False):
        return "file"
    return "directory" if entry.is_dir(follow_symlinks=False) else "other"


def _utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
