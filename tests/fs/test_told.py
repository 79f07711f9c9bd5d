"""What a failed commit says of the disk and of the next start, held against the disk and the next start."""

from __future__ import annotations

import errno
import os

import pytest

from devtools_lsp.core.workspace import sha256
from devtools_lsp.errors import StepFailedError
from devtools_lsp.fs import carrying, journal
from devtools_lsp.fs.partly import PartlyLandedError
from devtools_lsp.fs.revert import Reverter
from devtools_lsp.ports import Mutation

BEFORE = {"a.txt": b"a old\n", "src/b.py": b"b old\n"}
AFTER = {"a.txt": b"a new\n", "src/b.py": b"b new\n"}
BOTH = [
    Mutation("write", "a.txt", b"a new\n", expect=sha256(b"a old\n")),
    Mutation("write", "src/b.py", b"b new\n", expect=sha256(b"b old\n")),
]


def broken(*arguments, **options):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def breaking(monkeypatch):
    """Break parts of the disk: the sync of the marker, its removal, taking back some of the files."""

    def install(handle, *, sync=False, unmark=False, stuck=(), place=None):
        own = handle.file_system.journal
        fsync, rename, revert = os.fsync, os.rename, Reverter.revert
        marked = []

        def syncing(descriptor):
            if sync and marked and os.fstat(descriptor).st_ino == os.fstat(own.descriptor).st_ino:
                broken()
            fsync(descriptor)

        def renaming(old, new, **options):
            if unmark and old.endswith(".done"):
                broken()
            rename(old, new, **options)
            marked.extend([new] if new.endswith(".done") else [])

        def reverting(self, entry):
            return broken() if entry.path in stuck else revert(self, entry)

        def pointing(name):
            if place is not None and name == place:
                broken()

        monkeypatch.setattr(journal.os, "fsync", syncing)
        monkeypatch.setattr(journal.os, "rename", renaming)
        monkeypatch.setattr(Reverter, "revert", reverting)
        monkeypatch.setattr(carrying, "point", pointing)

    return install


async def failing(handle, mutations=BOTH) -> StepFailedError:
    with pytest.raises(StepFailedError) as failed:
        await handle.file_system.commit("p", mutations)
    return failed.value


async def test_a_marker_that_cannot_be_synced_is_no_landing(tree, opened, breaking, monkeypatch):
    tree.fill(BEFORE)
    handle = opened()
    breaking(handle, sync=True)
    error = await failing(handle)
    monkeypatch.undo()
    assert not isinstance(error, PartlyLandedError)
    assert "confirm in the journal" in error.message
    assert "cannot write" not in error.message
    assert tree.files() == BEFORE
    assert tree.litter() == []
    handle.close()
    assert opened().recovery.clean


async def test_a_marker_that_cannot_be_taken_off_again_leaves_no_plan_that_never_was(
    tree, opened, breaking, monkeypatch
):
    tree.fill(BEFORE)
    handle = opened()
    breaking(handle, sync=True, unmark=True)
    await failing(handle)
    monkeypatch.undo()
    assert tree.files() == BEFORE
    handle.close()
    again = opened()
    assert again.recovery.clean
    assert again.file_system.journal.records() == []


@pytest.mark.parametrize("unmark", [False, True], ids=["prepared", "marked"])
async def test_what_stays_is_named_and_the_next_start_does_what_was_said(tree, opened, breaking, monkeypatch, unmark):
    """One file cannot be taken back: it is on the disk, the other is not, and the journal decides what comes next."""
    tree.fill(BEFORE)
    handle = opened()
    breaking(handle, sync=True, unmark=unmark, stuck=["src/b.py"])
    error = await failing(handle)
    monkeypatch.undo()
    assert isinstance(error, PartlyLandedError)
    assert error.landed == {"src/b.py"} == set(error.paths or [])
    assert tree.files() == {**BEFORE, "src/b.py": b"b new\n"}
    assert "of 2 changes these are on the disk: src/b.py." in error.message
    handle.close()
    again = opened()
    if unmark:
        assert "the next start of the daemon leaves them, and undo can take them back" in error.message
        assert tree.files() == {**BEFORE, "src/b.py": b"b new\n"}
        undo = await again.file_system.undo_plan("p")
        await again.file_system.commit("u", undo.mutations)
    else:
        assert "The next start of the daemon takes them back" in error.message
    assert tree.files() == BEFORE


async def test_a_single_change_that_stays_is_said_to_stay(tree, opened, breaking, monkeypatch):
    tree.fill(BEFORE)
    handle = opened()
    breaking(handle, place="journal:sync", stuck=["a.txt"])
    error = await failing(handle, BOTH[:1])
    monkeypatch.undo()
    assert isinstance(error, PartlyLandedError)
    assert "takes what it finds then for written, and undo can take it back" in error.message
    handle.close()
    again = opened()
    assert tree.files() == {**BEFORE, "a.txt": b"a new\n"}
    assert again.recovery.plans[0].outcome == "new"
    undo = await again.file_system.undo_plan("p")
    await again.file_system.commit("u", undo.mutations)
    assert tree.files() == BEFORE


async def test_a_journal_that_is_gone_promises_nothing(tree, opened, breaking, monkeypatch):
    tree.fill(BEFORE)
    handle = opened()
    breaking(handle, place="journal:sync", stuck=["a.txt", "src/b.py"])
    monkeypatch.setattr(type(handle.file_system.journal), "is_gone", lambda self: True)
    monkeypatch.setattr(handle.file_system, "_another_journal", lambda lost: lost)
    error = await failing(handle)
    assert "nothing takes them back by itself" in error.message
    assert tree.files() == AFTER
