"""The composition of this room: one call gives a root's file system, policy and gauntlet, recovered and ready."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from devtools_lsp.fs.disk import Symlinks
from devtools_lsp.fs.gauntlet import Stage, WriteGauntlet
from devtools_lsp.fs.journal import Retention
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.policy import DEFAULT_DENY_READ, PathPolicy
from devtools_lsp.fs.recovery import RecoveryReport
from devtools_lsp.fs.translate import RootTranslator


@dataclass(frozen=True, slots=True)
class OpenedRoot:
    """What `open_local` gives. `recovery` says what an earlier process had left undone, and what became of it."""

    file_system: LocalFileSystem
    gauntlet: WriteGauntlet
    policy: PathPolicy
    translator: RootTranslator
    recovery: RecoveryReport

    def close(self) -> None:
        """Give back threads, descriptors and the journal's lock; the kept before-images stay for the next start."""
        self.file_system.close()


def open_local(
    root: str,
    *,
    symlinks: Symlinks = "reject",
    allow_write: Sequence[str] = ("**",),
    deny_write: Sequence[str] = (),
    deny_read: Sequence[str] = DEFAULT_DENY_READ,
    own_paths: Sequence[str] = (),
    journaled: bool = True,
    retention: Retention | None = None,
    on_stage: Callable[[Stage, str], None] | None = None,
) -> OpenedRoot:
    """Open a root and recover it, before anything else writes there. Blocks for some milliseconds.

    `own_paths` are absolute paths of the daemon's state directory, socket, token and configuration; the journal and
    `devtools.toml` are protected without being named. Raises InvalidConfigError naming the key.
    """
    policy = PathPolicy(allow_write, deny_write, deny_read, root=root, own_paths=own_paths)
    file_system = LocalFileSystem(root, symlinks=symlinks, policy=policy, journaled=journaled, retention=retention)
    try:
        # Git is asked here, where blocking is expected, and not by the first call.
        policy.protected()
        recovery = file_system.recover_now()
    except BaseException:
        file_system.close()
        raise
    translator = RootTranslator(root, os.path.realpath(root))
    gauntlet = WriteGauntlet(root, file_system, policy, translator, on_stage=on_stage)
    return OpenedRoot(file_system, gauntlet, policy, translator, recovery)
