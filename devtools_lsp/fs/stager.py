"""Bringing the files of a transaction into being beside their places: before-images, new contents, files that move.

A second name is taken where the file system gives one, a copy is made where not. Owns no order and no names.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping

import msgspec

from devtools_lsp.errors import PolicyError
from devtools_lsp.fs.effects import Content, conflict
from devtools_lsp.fs.journal import Journal
from devtools_lsp.fs.parents import OpenParents
from devtools_lsp.fs.staging import Print, copy_staged, inode_at, open_regular, print_of, write_staged

_NO_LINK = frozenset((errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP))


class Stager:
    """Makes files under names in open directories. `prints` are the fingerprints of what was looked at, by path.

    `syncing` is called once, before the first new content is made durable.
    """

    def __init__(
        self,
        parents: OpenParents,
        journal: Journal,
        prints: Mapping[str, Print],
        syncing: Callable[[], None] | None = None,
    ) -> None:
        self._parents = parents
        self._journal = journal
        self._prints = prints
        self._syncing = syncing

    def keep(self, path: str, known: Print, name: str, directory: int) -> None:
        """Make a before-image. Raises ConflictError when the file is not what it was."""
        if not self._linked(path, known, name, directory):
            # For the bytes: what the daemon's user may not copy of the rest must not keep a file from being deleted.
            self._copy(path, known, name, directory, insist=False)

    def stage(self, after: Content, name: str, directory: int) -> Print:
        """Make what is going to be placed. Raises ConflictError when the file that moves is not what it was."""
        if after.data is not None:
            return self._stage_data(after, after.data, name, directory)
        assert after.origin is not None
        known = self._prints[after.origin]
        if self._linked(after.origin, known, name, directory):
            return known
        return msgspec.structs.replace(known, ino=self._copy(after.origin, known, name, directory))

    def _stage_data(self, after: Content, data: bytes, name: str, directory: int) -> Print:
        syncing, self._syncing = self._syncing, None
        if after.origin is None:
            kept = self._before_image(after.restores) if after.restores else None
            try:
                ino = write_staged(name, directory, data, like=kept, mode=after.mode, insist=False, syncing=syncing)
            finally:
                if kept is not None:
                    os.close(kept)
            return Print(ino, after.sha256, len(data), after.mode or 0)
        known = self._prints[after.origin]
        like = self._parents.known(after.origin, known.ino)
        ino = write_staged(name, directory, data, like=like, syncing=syncing)
        return Print(ino, after.sha256, len(data), known.mode)

    def _before_image(self, name: str) -> int | None:
        """What the journal keeps under a name, opened; None when that is nothing."""
        try:
            return open_regular(name, self._journal.descriptor)[0]
        except (FileNotFoundError, PolicyError):
            return None

    def _linked(self, path: str, known: Print, name: str, directory: int) -> bool:
        """Give a file that was looked at a second name; False where that is not possible."""
        trail = self._parents.of(path)
        leaf = path.rpartition("/")[2]
        try:
            os.link(leaf, name, src_dir_fd=trail.descriptor, dst_dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError as error:
            raise conflict({path: "it is gone"}) from error
        except OSError as error:
            if error.errno in _NO_LINK:
                return False
            raise
        if inode_at(name, directory) != known.ino:
            raise conflict({path: "its content is another"})
        return True

    def _copy(self, path: str, known: Print, name: str, directory: int, *, insist: bool = True) -> int:
        source = self._parents.known(path, known.ino)
        ino = copy_staged(source, name, directory, insist=insist)
        if print_of(source, os.fstat(source)).sha256 != known.sha256:
            raise conflict({path: "its content is another"})
        return ino
