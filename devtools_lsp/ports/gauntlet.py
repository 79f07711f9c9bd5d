"""The only way to a changed disk, and the proof of approval that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from devtools_lsp.ports.files import FileStat, Mutation

Access = Literal["read", "write", "create", "delete", "restore"]


class Permit(msgspec.Struct, frozen=True):
    """Proof that the gate approved one step: what it may touch. Only the pipeline makes one (I1).

    `targets` are concrete paths, `may_create` patterns or paths that may come into being.
    """

    plan: str
    step_index: int
    step: str
    targets: frozenset[str]
    may_create: tuple[str, ...] = ()


class Gauntlet(Protocol):
    """The only way from the pipeline to a changed disk: the eight stages of SPEC 5.2, in order (I4)."""

    def lexical(self, raw: str) -> str:
        """Stages 2 and 3 on a path that somebody wrote: the root-relative path; raises PolicyError."""
        ...

    async def screen(self, raw: str, access: Access) -> str:
        """Stages 2 to 6 without mutating, for paths that a plan will read or mutate; raises PolicyError.

        Run before the gate is asked, so that what could not land is never asked (SPEC 4.3).
        """
        ...

    async def screen_many(self, raws: Sequence[tuple[str, Access]]) -> list[str]:
        """`screen` for paths that a plan will read or mutate together: what only all of them show is refused, too."""
        ...

    async def look_many(self, raws: Sequence[tuple[str, Access]]) -> Mapping[str, FileStat | None] | None:
        """`screen_many` and what each path below the root is (None where nothing is), in one go; None when the file
        system can only be asked about one path at a time.
        """
        ...

    def judge_text(self, path: str, text: str) -> None:
        """Stage 5 on what a root-relative path would hold, as far as that is known before the gate is asked.

        Raises PolicyError; `commit` judges the bytes again.
        """
        ...

    async def commit(
        self,
        permit: Permit,
        mutations: Sequence[Mutation],
        landed: Callable[[Mutation], None],
        *,
        waiting: Callable[[], None] | None = None,
    ) -> None:
        """All eight stages for each mutation, in the order given; `landed` is called as each reaches the disk.

        On a transactional file system the list lands as a whole or not at all, and `landed` is called for each
        afterwards. Raises PolicyError, ConflictError or StepFailedError; what `landed` reported is then what is
        on the disk (I6). A commit that has begun is finished and reported when its caller is cancelled meanwhile.

        `waiting` is called on the loop, at most once and never after the commit's end, when nothing is left but to
        wait for the disk: a moment for other work. It must not raise. The commit may still fail after it. File
        systems that do not tell never have it called.
        """
        ...

    @property
    def atomic(self) -> bool:
        """Whether `commit` is all or nothing."""
        ...

    @property
    def methods(self) -> frozenset[str]:
        """Which of `delete`, `rename`, `mkdir`, `read_window`, `commit` the file system has."""
        ...
