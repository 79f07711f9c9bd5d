"""Undo: what is taken back, what is left alone and named, and for how long."""

from __future__ import annotations

import os

import pytest

from devtools_lsp.core.workspace import sha256
from devtools_lsp.errors import BadArgumentError, PolicyError
from devtools_lsp.fs import journal
from devtools_lsp.fs.journal import Retention
from devtools_lsp.ports import Mutation

BEFORE = {"edit.txt": b"e0", "drop.sh": b"d0", "move.txt": b"m0", "moved_edited.txt": b"me0", "other.txt": b"o0"}


@pytest.fixture
def handle(tree, opened):
    tree.fill(BEFORE)
    (tree.root / "drop.sh").chmod(0o755)
    return opened()


async def commit(handle, plan, *mutations):
    """As the gauntlet does it: missing parents are made."""
    await handle.file_system.commit_witnessed(plan, mutations, make_parents=True)


async def everything(handle, plan="p"):
    await commit(
        handle,
        plan,
        Mutation("rename", "new/moved.txt", source="move.txt", expect=sha256(b"m0")),
        Mutation("rename", "renamed.txt", source="moved_edited.txt", expect=sha256(b"me0")),
        Mutation("delete", "drop.sh", expect=sha256(b"d0")),
        Mutation("write", "edit.txt", b"e1", expect=sha256(b"e0")),
        Mutation("write", "made.txt", b"n1", expect=None),
        Mutation("write", "renamed.txt", b"me1", expect=sha256(b"me0")),
    )


async def take_back(handle, plan=None, by="u"):
    undo = await handle.file_system.undo_plan(plan)
    if undo.mutations:
        await commit(handle, by, *undo.mutations)
        await handle.file_system.mark_undone(undo.plan, by)
    return undo


async def test_a_plan_is_taken_back_whole(tree, handle):
    await everything(handle)
    inode = (tree.root / "new/moved.txt").stat().st_ino
    undo = await take_back(handle)
    assert undo.plan == "p"
    assert undo.conflicts == {}
    assert tree.files() == BEFORE
    assert (tree.root / "drop.sh").stat().st_mode & 0o777 == 0o755
    assert (tree.root / "move.txt").stat().st_ino == inode
    assert undo.targets == tuple(sorted({*BEFORE, "new/moved.txt", "renamed.txt", "made.txt"} - {"other.txt"}))


async def test_mutations_come_in_writing_order_and_expect_what_the_plan_wrote(handle):
    await everything(handle)
    undo = await handle.file_system.undo_plan("p")
    kinds = ["rename", "rename", "delete", "write", "write", "write", "rmdir"]
    assert [mutation.kind for mutation in undo.mutations] == kinds
    assert all(mutation.expect != "unchecked" for mutation in undo.mutations)


@pytest.mark.parametrize(
    ("path", "change", "left_alone"),
    [
        ("edit.txt", b"a person's", {"edit.txt": "someone changed it since"}),
        ("edit.txt", None, {"edit.txt": "someone deleted it since"}),
        ("made.txt", b"a person's", {"made.txt": "someone changed it since"}),
        ("made.txt", None, {"made.txt": "someone deleted it since"}),
        ("drop.sh", b"a person's", {"drop.sh": "something is there now"}),
        (
            "new/moved.txt",
            b"a person's",
            {
                "new/moved.txt": "someone changed it since",
                "move.txt": "its content is at 'new/moved.txt', which is left alone",
            },
        ),
        (
            "move.txt",
            b"a person's",
            {"move.txt": "something is there now", "new/moved.txt": "it came from 'move.txt', which is left alone"},
        ),
    ],
)
async def test_what_somebody_changed_since_is_left_alone_and_named(tree, handle, path, change, left_alone):
    """SPEC 5.3.4: files that do not hold what the plan wrote are named and not touched; of a move both ends."""
    await everything(handle)
    if change is None:
        (tree.root / path).unlink()
    else:
        (tree.root / path).write_bytes(change)
    as_they_are = tree.files()
    undo = await take_back(handle)
    assert undo.conflicts == left_alone
    files = tree.files()
    for name in left_alone:
        assert files.get(name) == as_they_are.get(name)
    untouched = set(left_alone)
    assert {name: data for name, data in files.items() if name not in untouched} == {
        name: data for name, data in BEFORE.items() if name not in untouched
    }


@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
async def test_something_else_in_the_place_is_left_alone(tree, handle, kind):
    await commit(handle, "p", Mutation("write", "edit.txt", b"e1"))
    (tree.root / "edit.txt").unlink()
    {"directory": os.mkdir, "link": lambda path: os.symlink("other.txt", path), "fifo": os.mkfifo}[kind](
        tree.root / "edit.txt"
    )
    undo = await handle.file_system.undo_plan()
    assert undo.mutations == ()
    said = {"directory": "someone changed it since", "link": "symbolic link", "fifo": "not a regular file"}
    assert list(undo.conflicts) == ["edit.txt"]
    assert said[kind] in undo.conflicts["edit.txt"]


async def test_several_writes_of_one_plan_are_taken_back_as_one(tree, handle):
    await commit(handle, "p", Mutation("write", "edit.txt", b"e1"), Mutation("write", "made.txt", b"n1", expect=None))
    await commit(handle, "p", Mutation("rename", "a.txt", source="move.txt"))
    await commit(handle, "p", Mutation("write", "edit.txt", b"e2"), Mutation("delete", "made.txt"))
    await commit(handle, "p", Mutation("rename", "b.txt", source="a.txt"), Mutation("write", "b.txt", b"m1"))
    undo = await take_back(handle)
    assert undo.conflicts == {}
    assert tree.files() == BEFORE
    assert {mutation.path for mutation in undo.mutations} == {"edit.txt", "move.txt"}


async def test_an_edit_between_two_writes_of_a_plan_is_not_lost(tree, handle):
    await commit(handle, "p", Mutation("write", "edit.txt", b"e1"), Mutation("write", "other.txt", b"o1"))
    (tree.root / "edit.txt").write_bytes(b"a person's")
    await commit(handle, "p", Mutation("write", "edit.txt", b"e2"))
    undo = await take_back(handle)
    assert undo.conflicts == {"edit.txt": "someone changed it between two writes of the plan"}
    assert tree.files() == {**BEFORE, "edit.txt": b"e2"}


async def test_undo_goes_back_plan_by_plan(tree, handle):
    for number in range(1, 4):
        await commit(handle, f"p{number}", Mutation("write", "edit.txt", b"e%d" % number))
    for number in (2, 1, 0):
        assert (await take_back(handle, by=f"u{number}")).plan == f"p{number + 1}"
        assert tree.files()["edit.txt"] == b"e%d" % number
    with pytest.raises(BadArgumentError, match="no plan left") as refused:
        await handle.file_system.undo_plan()
    assert refused.value.reason == "notFound"


async def test_an_undo_can_be_undone_by_name(tree, handle):
    await everything(handle)
    after = tree.files()
    await take_back(handle, by="u")
    await take_back(handle, "u", by="uu")
    assert tree.files() == after


async def test_an_older_plan_is_taken_back_where_later_ones_left_its_files_alone(tree, handle):
    await commit(handle, "p1", Mutation("write", "edit.txt", b"e1"), Mutation("write", "other.txt", b"o1"))
    await commit(handle, "p2", Mutation("write", "other.txt", b"o2"))
    undo = await take_back(handle, "p1")
    assert undo.conflicts == {"other.txt": "someone changed it since"}
    assert tree.files() == {**BEFORE, "other.txt": b"o2"}


async def test_an_unknown_plan_lists_those_that_are_kept(handle):
    await commit(handle, "p1", Mutation("write", "edit.txt", b"e1"))
    await commit(handle, "p2", Mutation("write", "edit.txt", b"e2"))
    with pytest.raises(BadArgumentError) as refused:
        await handle.file_system.undo_plan("nope")
    assert refused.value.alternatives == ["p2", "p1"]
    assert refused.value.step == "undo"


async def test_undo_survives_a_restart(tree, handle, opened):
    await everything(handle)
    await commit(handle, "later", Mutation("write", "other.txt", b"o1"))
    handle.close()
    second = opened()
    assert (await take_back(second, by="u")).plan == "later"
    second.close()
    third = opened()
    assert (await take_back(third)).plan == "p"
    assert tree.files() == BEFORE


async def test_undo_reaches_plans_of_a_session_that_ended_meanwhile(tree, handle, opened):
    """A reloaded configuration opens the root anew beside the old session, which ends later."""
    await commit(handle, "before", Mutation("write", "edit.txt", b"e1"))
    second = opened()
    await commit(second, "after", Mutation("write", "other.txt", b"o1"))
    with pytest.raises(BadArgumentError):
        await second.file_system.undo_plan("before")
    handle.close()
    assert (await take_back(second, "before")).plan == "before"
    assert tree.files() == {**BEFORE, "other.txt": b"o1"}
    assert (await take_back(second, by="u2")).plan == "after"


async def test_a_before_image_changed_through_another_hard_link_is_not_written_back(tree, handle, tmp_path):
    """The old file has a second name, and somebody writes through it: that is not what the plan replaced."""
    os.link(tree.root / "edit.txt", tmp_path / "second name")
    await commit(handle, "p", Mutation("write", "edit.txt", b"e1"))
    with (tmp_path / "second name").open("r+b") as file:
        file.write(b"XX")
    undo = await handle.file_system.undo_plan()
    assert undo.mutations == ()
    assert undo.conflicts == {"edit.txt": "its old content is not kept unchanged any more"}


# -- retention ---------------------------------------------------------------------------------------------------


def kept(handle):
    return [record.plan for record in handle.file_system.journal.records()]


async def settled(handle):
    """Wait for the sweeping that nobody waits for: it runs in the file system's own threads, one after the other."""
    await handle.file_system._change(lambda: None)
    await handle.file_system._change(lambda: None)


async def test_the_last_plans_are_kept(tree, opened):
    tree.fill(BEFORE)
    handle = opened(retention=Retention(plans=5))
    for number in range(60):
        await commit(handle, f"p{number}", Mutation("write", "edit.txt", b"%d" % number))
    await settled(handle)
    assert 5 <= len(kept(handle)) <= 5 + 17
    assert kept(handle)[-5:] == [f"p{number}" for number in range(55, 60)]
    handle.close()
    again = opened(retention=Retention(plans=5))
    assert kept(again) == [f"p{number}" for number in range(55, 60)]
    names = [path.name for path in (tree.root / ".devtools").glob("*/*")]
    assert len(names) == 5 + 2  # A before-image each, the ledger and the lock.


async def test_old_plans_go(tree, opened):
    tree.fill(BEFORE)
    handle = opened()
    await commit(handle, "p", Mutation("write", "edit.txt", b"1"))
    handle.close()
    again = opened(retention=Retention(age_s=0.0))
    assert kept(again) == []
    with pytest.raises(BadArgumentError):
        await again.file_system.undo_plan()


async def test_the_size_of_what_is_kept_is_bounded(tree, opened):
    handle = opened(retention=Retention(size=100_000))
    for number in range(12):
        await commit(handle, f"p{number}", Mutation("write", "big", b"%d" % (number % 10) * 30_000))
    await settled(handle)
    images = list((tree.root / ".devtools").glob("*/*.old.*"))
    assert sum(path.stat().st_size for path in images) <= 130_000
    assert kept(handle)[-1] == "p11"
    undo = await handle.file_system.undo_plan()
    assert undo.mutations[0].data == b"0" * 30_000


async def test_a_plan_bigger_than_the_bound_still_lands(tree, opened):
    tree.fill({"big": b"0" * 50_000})
    handle = opened(retention=Retention(size=1000))
    await commit(handle, "p", Mutation("write", "big", b"1" * 50_000))
    await settled(handle)
    assert tree.files()["big"] == b"1" * 50_000
    assert kept(handle) == []


# -- the ledger --------------------------------------------------------------------------------------------------


def ledger_of(tree):
    [path] = (tree.root / ".devtools").glob("*/ledger")
    return path


async def test_a_torn_line_spoils_no_other(tree, handle, opened):
    """As a full disk or a crash leaves it: half a line, then whole ones."""
    await commit(handle, "p1", Mutation("write", "edit.txt", b"e1"))
    with ledger_of(tree).open("ab") as file:
        file.write(b'\n{"is":"prepared","record":{"format":1,"id":"0179')
    await commit(handle, "p2", Mutation("write", "other.txt", b"o1"))
    with ledger_of(tree).open("ab") as file:
        file.write(b"\n\0\0\0\n[]\n{}")
    handle.close()
    again = opened()
    assert again.recovery.clean
    assert kept(again) == ["p1", "p2"]
    await take_back(again, "p1", by="u1")
    await take_back(again, "p2", by="u2")
    assert tree.files() == BEFORE


async def test_a_lost_ledger_costs_the_undo_and_nothing_else(tree, handle, opened):
    await commit(handle, "p1", Mutation("write", "edit.txt", b"e1"))
    handle.close()
    ledger_of(tree).unlink()
    again = opened()
    assert again.recovery.clean
    assert kept(again) == []
    assert tree.files()["edit.txt"] == b"e1"
    assert not list((tree.root / ".devtools").glob("*/*.old.*"))


async def test_a_long_ledger_is_written_anew(tree, opened, monkeypatch):
    tree.fill(BEFORE)
    monkeypatch.setattr(journal, "_LONG_LEDGER", 20_000)
    handle = opened(retention=Retention(plans=8))
    await commit(handle, "whole", Mutation("write", "edit.txt", b"x"), Mutation("write", "other.txt", b"x"))
    for number in range(200):
        await commit(handle, f"p{number}", Mutation("write", "edit.txt", b"%d" % number))
    await settled(handle)
    assert ledger_of(tree).stat().st_size < 30_000
    expected = [f"p{number}" for number in range(192, 200)]
    assert kept(handle)[-8:] == expected
    await take_back(handle, by="u")
    handle.close()
    again = opened(retention=Retention(plans=8))
    assert kept(again) == [*expected[1:], "u"]
    assert (await again.file_system.undo_plan()).plan == "p198"


async def test_undo_of_a_created_and_of_a_deleted_file(tree, handle, opened):
    """Single changes keep their before-images by the swap itself."""
    await commit(handle, "made", Mutation("write", "deep/new.txt", b"n", expect=None))
    await commit(handle, "dropped", Mutation("delete", "drop.sh", expect=sha256(b"d0")))
    handle.close()
    again = opened()
    await take_back(again, "dropped", by="u1")
    await take_back(again, "made", by="u2")
    assert tree.files() == BEFORE
    assert (tree.root / "drop.sh").stat().st_mode & 0o777 == 0o755


# -- directories that a plan made --------------------------------------------------------------------------------


async def made_deep(handle, plan="p"):
    await commit(
        handle,
        plan,
        Mutation("write", "docs/deep/new.md", b"n", expect=None),
        Mutation("write", "docs/top.md", b"t", expect=None),
        Mutation("rename", "lib/x/moved.txt", source="move.txt", expect=sha256(b"m0")),
        Mutation("write", "edit.txt", b"e1", expect=sha256(b"e0")),
    )


async def test_the_directories_that_a_plan_made_go_with_their_files(tree, handle):
    (tree.root / "empty").mkdir()
    (tree.root / "old").mkdir()
    await made_deep(handle)
    await commit(handle, "q", Mutation("write", "old/new.md", b"n", expect=None))
    await take_back(handle, "q", by="u1")
    await take_back(handle, "p", by="u2")
    assert tree.files() == BEFORE
    assert tree.directories() == {"empty", "old"}
    assert tree.litter() == []
    await take_back(handle, "u2", by="u3")
    assert set(tree.files()) >= {"docs/deep/new.md", "docs/top.md", "lib/x/moved.txt"}


async def test_a_single_new_file_takes_its_directories_along(tree, handle):
    await commit(handle, "p", Mutation("write", "a/b/c/f.txt", b"x", expect=None))
    await take_back(handle)
    assert tree.files() == BEFORE
    assert tree.directories() == set()


async def test_a_directory_that_somebody_uses_stays(tree, handle):
    await made_deep(handle)
    (tree.root / "docs/deep/theirs.md").write_bytes(b"a person's")
    (tree.root / "lib/x/empty").mkdir()
    await take_back(handle)
    assert tree.files() == {**BEFORE, "docs/deep/theirs.md": b"a person's"}
    assert tree.directories() == {"docs", "docs/deep", "lib", "lib/x", "lib/x/empty"}


async def test_a_directory_that_somebody_made_anew_stays(tree, handle):
    """The same name and empty in the end, but not the one that the plan made."""
    await commit(handle, "p", Mutation("write", "docs/new.md", b"n", expect=None))
    (tree.root / "docs").rename(tree.root / "theirs")
    (tree.root / "docs").mkdir()
    (tree.root / "theirs/new.md").rename(tree.root / "docs/new.md")
    await take_back(handle)
    assert tree.files() == BEFORE
    assert tree.directories() == {"docs", "theirs"}


async def test_what_a_later_plan_kept_alive_goes_with_that_plan(tree, handle):
    """Undone out of order: the first plan's directory cannot go with it, so it goes with what was in the way."""
    await commit(handle, "p", Mutation("write", "docs/new.md", b"n", expect=None))
    await commit(handle, "q", Mutation("write", "docs/other.md", b"o", expect=None))
    await take_back(handle, "p", by="u1")
    assert tree.directories() == {"docs"}
    await take_back(handle, "q", by="u2")
    assert tree.directories() == set()


async def test_the_removal_of_a_directory_says_which_one(handle):
    with pytest.raises(BadArgumentError, match="which directory"):
        await commit(handle, "p", Mutation("rmdir", "docs"))


async def test_only_empty_directories_are_removed(tree, handle):
    await made_deep(handle)
    inodes = {path: str((tree.root / path).stat().st_ino) for path in ("docs", "docs/deep", "lib", "lib/x")}
    mutations = [Mutation("rmdir", path, expect=ino) for path, ino in inodes.items()]
    await commit(handle, "q", *mutations, Mutation("rmdir", "nowhere", expect="1"))
    assert tree.directories() == set(inodes)


async def test_a_kill_at_every_step_of_an_undo_leaves_no_directory_alone(tree, sha, crasher, opened):
    """I7: with the files the directories go, and without them they stay."""
    for count in range(1, 80):
        tree.fill(BEFORE)
        handle = opened()
        await made_deep(handle, f"p{count}")
        after, directories = tree.files(), tree.directories()
        undo = await handle.file_system.undo_plan(f"p{count}")
        handle.close()
        request = {"do": "commit", "root": tree.root, "plan": f"u{count}", "mutations": list(undo.mutations)}
        status = crasher.run(**request, fault=f"journal:*#{count}:kill")
        handle = opened()
        assert (tree.files(), tree.directories()) in ((BEFORE, set()), (after, directories)), count
        assert tree.litter() == []
        if tree.files() != BEFORE:
            await take_back(handle, f"p{count}", by=f"v{count}")
        assert (tree.files(), tree.directories()) == (BEFORE, set())
        handle.close()
        if status == 0:
            break
    else:
        pytest.fail("the undo never came to its end")


# -- names and metadata ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["odd\\name", "a\nb", "tab\t", "trail ", "x" * 255])
async def test_a_strange_name_comes_back(tree, handle, name):
    """Nobody may make such a name, but an undo must not be refused the one that the plan took away."""
    tree.fill({f"{name}/deep/{name}": b"in", name + ".d" if len(name) < 250 else "y" * 255: b"moved"})
    before = tree.files()
    [moving] = [path for path in before if before[path] == b"moved"]
    await commit(
        handle,
        "p",
        Mutation("delete", f"{name}/deep/{name}", expect=sha256(b"in")),
        Mutation("rename", "plain.txt", source=moving, expect=sha256(b"moved")),
    )
    await take_back(handle)
    assert tree.files() == before
    with pytest.raises(PolicyError):
        await commit(handle, "q", Mutation("write", "new\\name", b"x", expect=None))


async def test_a_deleted_file_comes_back_with_what_belonged_to_it(tree, handle):
    path = tree.root / "drop.sh"
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("the temporary directory's file system has no extended attributes")
    if os.geteuid() == 0:
        os.chown(path, 12345, 23456)
    owner = (path.stat().st_uid, path.stat().st_gid)
    await commit(handle, "p", Mutation("delete", "drop.sh", expect=sha256(b"d0")))
    await take_back(handle)
    assert path.read_bytes() == b"d0"
    assert os.getxattr(path, "user.note") == b"kept"
    assert (path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o777) == (*owner, 0o755)
