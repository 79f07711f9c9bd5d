"""The two renames that Python's `os` lacks: exchange, and move without replacing.

Owns the ctypes call and the knowledge of where it exists. Every name is relative to a directory descriptor and
has no slash in it; symbolic links are never followed by a rename.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Callable

_UNSUPPORTED = frozenset((errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP))
_LINUX_NOREPLACE = 1
_LINUX_EXCHANGE = 2
_MACOS_SWAP = 2
_MACOS_EXCL = 4
_ENCODING = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
"""As `os.fsencode` does it."""

_Rename = Callable[[int, bytes, int, bytes, int], int]


def _load() -> tuple[_Rename, int, int] | None:
    """The C function with its flags for exchange and for no replacement, where the C library has one."""
    library = ctypes.CDLL(None, use_errno=True)
    name, flags = (
        ("renameatx_np", (_MACOS_SWAP, _MACOS_EXCL))
        if sys.platform == "darwin"
        else ("renameat2", (_LINUX_EXCHANGE, _LINUX_NOREPLACE))
    )
    try:
        function = getattr(library, name)
    except AttributeError:
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    function.restype = ctypes.c_int
    return function, *flags


_rename = _load()


def exchange(directory: int, name: str, other_directory: int, other_name: str) -> bool:
    """Swap two existing names atomically; False where the system or file system cannot. Raises OSError."""
    return _rename is not None and _flagged(_rename[1], directory, name, other_directory, other_name)


def move_into_gap(directory: int, name: str, other_directory: int, other_name: str) -> None:
    """Move a file to a name where nothing is; raises FileExistsError, and other OSErrors, having moved nothing."""
    if _rename is not None and _flagged(_rename[2], directory, name, other_directory, other_name):
        return
    os.link(name, other_name, src_dir_fd=directory, dst_dir_fd=other_directory, follow_symlinks=False)
    with contextlib.suppress(OSError):
        # It is where it should be. A second name that cannot be removed is litter for the journal's next sweep.
        os.unlink(name, dir_fd=directory)


def _flagged(flag: int, directory: int, name: str, other_directory: int, other_name: str) -> bool:
    assert _rename is not None
    old, new = name.encode(*_ENCODING), other_name.encode(*_ENCODING)
    if _rename[0](directory, old, other_directory, new, flag) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), other_name)
