"""Taking back one entry of a transaction, whether it was carried out, half carried out, or not at all.

The one piece of code behind a live rollback and behind recovery after a crash. It is idempotent, so that a crash of
the recovery changes nothing, and it touches a target only while that is what the transaction put there: anything
else is a person's and is kept (facts measured: 158 kills of a recovery, none bad). Blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from typing import Literal

import msgspec

from devtools_lsp.errors import PolicyError, StepFailedError
from devtools_lsp.fs.journal_names import part_name, stray_name
from devtools_lsp.fs.records import Entry
from devtools_lsp.fs.staging import (
    DisplacedError,
    Print,
    copy_staged,
    inode_at,
    keep_beside,
    open_regular,
    place_new,
    place_over,
    print_at,
    take_away,
)
from devtools_lsp.fs.syscalls import exchange, move_into_gap
from devtools_lsp.fs.walk import Trail

Outcome = Literal["undone", "untouched", "kept"]
"""Taken back · had not been carried out · somebody changed it since, so theirs stays."""

OpenParent = Callable[[str], Trail]
"""The trail to the parent of a resolved path; the caller owns it, and its leaf may be a sibling's."""


class Reverter:
    """Takes back entries of one transaction. `session` is the open directory that holds its files."""

    def __init__(self, session: int, id_: str, open_parent: OpenParent) -> None:
        self._session = session
        self._id = id_
        self._open_parent = open_parent

    def revert(self, entry: Entry) -> Outcome:
        """Take an entry back; raises OSError and PolicyError when the place cannot be reached."""
        trail = self._open_parent(entry.path)
        if trail.missing:
            return "untouched" if entry.before is None else "kept"
        name = entry.path.rpartition("/")[2]
        directory = trail.descriptor
        current = _print_or_other(name, directory)
        if self._returned_leftover(entry, current, name, directory):
            return "kept"
        if entry.after is None:
            return self._revert_deletion(entry, current, name, directory)
        staged, staging = self._staged(entry, directory)
        displaced = _print_or_other(staged, staging)
        ours = _is(current, entry.after)
        known = _has_inode(displaced, entry.before) or _has_inode(displaced, entry.after)
        if ours and displaced is not None and not known:
            # Killed between the swap and the comparison: what came out was not what had to be there.
            exchange(directory, name, staging, staged)
            return "kept"
        if not ours:
            placed = not _has_inode(displaced, entry.after)
            as_before = current is None if entry.before is None else _known(current, entry.before)
            return "kept" if placed and not as_before else "untouched"
        if entry.before is None:
            return self._remove(entry, name, directory)
        try:
            back, place = self._before_image(entry, directory)
            ours_now = inode_at(back, place) or 0
            if place_over(back, place, name, directory, entry.after, ours_now):
                os.unlink(back, dir_fd=place)
        except DisplacedError:
            return "kept"
        return "undone"

    def park(self, entry: Entry) -> Entry | None:
        """What to keep of an entry whose place is closed; None when nothing of it landed, as far as can be seen.

        If the swap took out what a person had just written, theirs becomes the before-image, since that is what
        belongs there. Touches nothing in the tree. Raises OSError.
        """
        if self._stands_as_before(entry):
            return None
        old = part_name(self._id, "old", entry.n)
        name = self._name_in_session(entry)
        came_out = _print_or_other(name, self._session) if name is not None else None
        if _has_inode(came_out, entry.after):
            return None  # The new file is still where it was staged.
        if entry.swapped and came_out is None:
            return None
        if entry.before is None:
            return entry
        if isinstance(came_out, Print) and not _known(came_out, entry.before) and name is not None and name != old:
            os.rename(name, old, src_dir_fd=self._session, dst_dir_fd=self._session)
        image = _print_or_other(old, self._session)
        if isinstance(image, Print) and image.ino != entry.before.ino and image.sha256 != entry.before.sha256:
            return msgspec.structs.replace(entry, before=image)
        return entry if isinstance(image, Print) else None

    def keeps(self, entry: Entry) -> bool:
        """Whether an entry's before-image is there."""
        return entry.before is not None and isinstance(
            _print_or_other(part_name(self._id, "old", entry.n), self._session), Print
        )

    def landed(self, entry: Entry) -> bool | None:
        """Whether the entry's new state is on the disk; None when the disk does not say."""
        try:
            trail = self._open_parent(entry.path)
            if trail.missing:
                return entry.after is None
            current = _print_or_other(entry.path.rpartition("/")[2], trail.descriptor)
        except (OSError, PolicyError):
            return None
        return current is None if entry.after is None else _is(current, entry.after)

    def displaced_other(self, entry: Entry) -> bool:
        """Whether what the transaction displaced is neither the file that it expected nor its own.

        A process that died between the swap and the comparison left that.
        """
        trail = self._open_parent(entry.path)
        if trail.missing:
            return False
        name, place = (
            self._aside(entry, trail.descriptor) if entry.after is None else self._staged(entry, trail.descriptor)
        )
        found = _print_or_other(name, place)
        return found is not None and not _has_inode(found, entry.before) and not _has_inode(found, entry.after)

    def _revert_deletion(self, entry: Entry, current: Print | str | None, name: str, directory: int) -> Outcome:
        assert entry.before is not None
        if current is not None:
            return "untouched" if _known(current, entry.before) else "kept"
        aside, place = self._aside(entry, directory)
        taken = _print_or_other(aside, place)
        try:
            if taken is not None:
                # Whatever was taken away is what belongs here, also when it was not what had been expected.
                move_into_gap(place, aside, directory, name)
            else:
                back, place = self._before_image(entry, directory)
                place_new(back, place, name, directory)
        except FileExistsError:
            return "kept"
        return "undone"

    def _remove(self, entry: Entry, name: str, directory: int) -> Outcome:
        assert entry.after is not None
        aside, place = self._back(entry, directory)
        try:
            take_away(name, directory, aside, place, entry.after)
        except DisplacedError:
            return "kept"
        os.unlink(aside, dir_fd=place)
        return "undone"

    def _stands_as_before(self, entry: Entry) -> bool:
        """Whether the place holds what it held before; False also when it cannot be looked at."""
        try:
            trail = self._open_parent(entry.path)
            current = None if trail.missing else _print_or_other(entry.path.rpartition("/")[2] or ".", trail.descriptor)
        except (OSError, PolicyError):
            return False
        return current is None if entry.before is None else _known(current, entry.before)

    def _name_in_session(self, entry: Entry) -> str | None:
        """Where the session has the new file until it is placed, and what it displaced then; None = in the tree."""
        if entry.stage is not None:
            return None
        if entry.swapped:
            return part_name(self._id, "old", entry.n)
        return part_name(self._id, "gone" if entry.after is None else "new", entry.n)

    def _staged(self, entry: Entry, directory: int) -> tuple[str, int]:
        """Where the new file was staged, and where the old one is after a swap."""
        if entry.stage is None:
            return part_name(self._id, "old" if entry.swapped else "new", entry.n), self._session
        return stray_name(self._id, "new", entry.n), directory

    def _aside(self, entry: Entry, directory: int) -> tuple[str, int]:
        """Where the old file of a deletion is until it is compared."""
        if entry.stage is None:
            return part_name(self._id, "old" if entry.swapped else "gone", entry.n), self._session
        return stray_name(self._id, "gone", entry.n), directory

    def _returned_leftover(self, entry: Entry, current: Print | str | None, name: str, directory: int) -> bool:
        """Give back what an earlier recovery, killed at the wrong moment, had taken and was not ours to take."""
        back, place = self._back_name(entry, directory)
        found = _print_or_other(back, place)
        if found is None or _known(found, entry.before) or _known(found, entry.after):
            return False
        if current is None:
            move_into_gap(place, back, directory, name)
        elif _known(current, entry.before) or _known(current, entry.after):
            exchange(directory, name, place, back)
        else:
            keep_beside(back, place, name, directory)
        return True

    def _back_name(self, entry: Entry, directory: int) -> tuple[str, int]:
        if entry.stage is None:
            return part_name(self._id, "back", entry.n), self._session
        return stray_name(self._id, "back", entry.n), directory

    def _back(self, entry: Entry, directory: int) -> tuple[str, int]:
        """A free name for what goes back or comes out."""
        back, place = self._back_name(entry, directory)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(back, dir_fd=place)
        return back, place

    def _before_image(self, entry: Entry, directory: int) -> tuple[str, int]:
        """A name that can be renamed onto the target and holds the before-image, which itself stays in the journal."""
        old = part_name(self._id, "old", entry.n)
        if not _known(_print_or_other(old, self._session), entry.before):
            raise StepFailedError(f"the kept content of {entry.path!r} is not what it was", path=entry.path, retry="no")
        back, place = self._back(entry, directory)
        try:
            # A second link, because renaming a link over another link of its inode does nothing.
            os.link(old, back, src_dir_fd=self._session, dst_dir_fd=place, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP):
                raise
            source, _ = open_regular(old, self._session)
            try:
                copy_staged(source, back, place, insist=False)
            finally:
                os.close(source)
        return back, place


def _print_or_other(name: str, directory: int) -> Print | str | None:
    """A regular file's fingerprint, None for nothing, a word for what is neither (a link, a directory, a FIFO)."""
    try:
        return print_at(name, directory)
    except PolicyError:
        return "special"
    except IsADirectoryError:
        return "directory"
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "link"
        raise


def _is(found: Print | str | None, image: Print) -> bool:
    return isinstance(found, Print) and (found.ino, found.sha256) == (image.ino, image.sha256)


def _has_inode(found: Print | str | None, image: Print | None) -> bool:
    return image is not None and isinstance(found, Print) and found.ino == image.ino


def _known(found: Print | str | None, image: Print | None) -> bool:
    return image is not None and isinstance(found, Print) and (found.ino == image.ino or found.sha256 == image.sha256)
