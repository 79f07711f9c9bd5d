"""Transactions and single changes on the local disk: what is kept, what is compared, what is left behind."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import struct
import subprocess
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devtools_lsp.core.workspace import sha256
from devtools_lsp.errors import (
    ConflictError,
    DevToolsError,
    InvalidConfigError,
    PolicyError,
    StepFailedError,
    StepUnavailableError,
)
from devtools_lsp.fs import carrying, faults, journal, staging, syscalls
from devtools_lsp.fs.effects import net_plan
from devtools_lsp.fs.journal import Retention
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.walk import RootWalk
from devtools_lsp.ports import UNCHECKED, Mutation


@pytest.fixture(params=["exchange", "no exchange"])
def exchange(request, monkeypatch):
    """With renameat2 and, as on file systems and systems without it, by comparison and plain rename."""
    if request.param == "no exchange":
        monkeypatch.setattr(syscalls, "_rename", None)
    return request.param == "exchange"


async def write(handle, path, data, **options):
    await handle.file_system.commit("p", [Mutation("write", path, data, **options)])


# -- what is kept ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o644, 0o755, 0o600, 0o640, 0o664, 0o444, 0o4755])
@pytest.mark.parametrize("way", ["commit", "write"])
async def test_the_mode_is_kept_without_set_id(tree, opened, exchange, mode, way):
    tree.fill({"f": b"old"})
    (tree.root / "f").chmod(mode)
    handle = opened()
    await (write(handle, "f", b"new") if way == "commit" else handle.file_system.write("f", b"new"))
    assert (tree.root / "f").read_bytes() == b"new"
    assert (tree.root / "f").stat().st_mode & 0o7777 == mode & 0o777


async def test_the_owner_is_kept(tree, opened):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    tree.fill({"f": b"old"})
    os.chown(tree.root / "f", 12345, 23456)
    await write(opened(), "f", b"new")
    status = (tree.root / "f").stat()
    assert (status.st_uid, status.st_gid) == (12345, 23456)


async def test_extended_attributes_are_kept(tree, opened):
    tree.fill({"f": b"old", "g": b"old"})
    try:
        os.setxattr(tree.root / "f", "user.note", b"kept")
    except OSError:
        pytest.skip("the temporary directory's file system has no extended attributes")
    handle = opened()
    await write(handle, "f", b"new")
    assert os.getxattr(tree.root / "f", "user.note") == b"kept"
    moved = [Mutation("rename", "h", source="f"), Mutation("write", "h", b"newer")]
    await handle.file_system.commit("p", moved)
    assert os.getxattr(tree.root / "h", "user.note") == b"kept"


async def test_a_moved_file_is_the_same_inode(tree, opened):
    tree.fill({"f": b"old"})
    (tree.root / "f").chmod(0o751)
    inode = (tree.root / "f").stat().st_ino
    handle = opened()
    moves = [Mutation("mkdir", "d"), Mutation("rename", "d/g", source="f", expect=sha256(b"old"))]
    await handle.file_system.commit("p", moves)
    assert (tree.root / "d/g").stat().st_ino == inode
    assert not (tree.root / "f").exists()


async def test_a_moved_and_edited_file_keeps_its_mode(tree, opened):
    tree.fill({"f": b"old"})
    (tree.root / "f").chmod(0o755)
    handle = opened()
    mutations = [Mutation("rename", "g", source="f"), Mutation("write", "g", b"new")]
    await handle.file_system.commit("p", mutations)
    assert (tree.root / "g").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o640), (0o755, 0o755), (0o4700, 0o700)])
async def test_a_new_file_gets_the_default_mode_or_the_one_asked_for(tree, opened, mode, expected):
    handle = opened()
    old = os.umask(0o027)
    try:
        await write(handle, "new", b"x", expect=None, mode=mode)
    finally:
        os.umask(old)
    assert (tree.root / "new").stat().st_mode & 0o7777 == expected


async def test_a_new_file_takes_the_group_of_a_set_gid_directory(tree, opened):
    if os.geteuid() != 0:
        pytest.skip("only root can make such a directory for a group that it is not in")
    (tree.root / "shared").mkdir()
    os.chown(tree.root / "shared", -1, 23456)
    (tree.root / "shared").chmod(0o2775)
    handle = opened()
    await write(handle, "shared/f", b"x", expect=None)
    mutations = [Mutation("mkdir", "shared/d"), Mutation("write", "shared/d/g", b"x", expect=None)]
    await handle.file_system.commit("p", mutations)
    assert (tree.root / "shared/f").stat().st_gid == 23456
    assert (tree.root / "shared/d/g").stat().st_gid == 23456
    assert tree.litter() == []


async def test_a_new_file_takes_the_default_acl_of_its_directory(tree, opened):
    (tree.root / "shared").mkdir()
    # Version 2; entries (tag, permissions, id): owner, user 12345, group, mask, others.
    entries = [(1, 7, -1), (2, 6, 12345), (4, 5, -1), (16, 7, -1), (32, 5, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(tree.root / "shared", "system.posix_acl_default", acl)
    except OSError:
        pytest.skip("the temporary directory's file system has no access control lists")
    handle = opened()
    await write(handle, "shared/f", b"x", expect=None)
    got = os.getxattr(tree.root / "shared/f", "system.posix_acl_access")
    assert struct.pack("<HHi", 2, 6, 12345) in got
    await write(handle, "shared/f", b"y", expect=sha256(b"x"))
    assert os.getxattr(tree.root / "shared/f", "system.posix_acl_access") == got
    assert tree.litter() == []


async def test_another_mount_below_the_root_works_and_leaves_nothing(tree, opened, mounted, exchange):
    mounted("-t", "tmpfs", "tmpfs", at=tree.root / "m")
    tree.fill({"m/edit": b"e", "m/drop": b"d", "m/move": b"m", "home": b"h", "m/out": b"o"})
    (tree.root / "home").chmod(0o751)
    handle = opened()
    mutations = [
        Mutation("rename", "m/came", source="home"),
        Mutation("rename", "went", source="m/out"),
        Mutation("rename", "m/moved", source="m/move"),
        Mutation("delete", "m/drop"),
        Mutation("mkdir", "m/d"),
        Mutation("write", "m/edit", b"E"),
        Mutation("write", "m/d/new", b"n", expect=None),
    ]
    await handle.file_system.commit("p", mutations)
    assert tree.files() == {
        "m/came": b"h",
        "went": b"o",
        "m/moved": b"m",
        "m/edit": b"E",
        "m/d/new": b"n",
    }
    assert (tree.root / "m/came").stat().st_mode & 0o777 == 0o751
    assert tree.litter() == []
    await write(handle, "m/edit", b"EE", expect=sha256(b"E"))
    undo = await handle.file_system.undo_plan()
    await handle.file_system.commit("u", undo.mutations)
    assert tree.litter() == []
    assert tree.files()["m/edit"] == b"e"


async def test_writing_what_is_there_already_touches_nothing(tree, opened):
    tree.fill({"f": b"same"})
    inode = (tree.root / "f").stat().st_ino
    handle = opened()
    await write(handle, "f", b"same", expect=sha256(b"same"))
    assert (tree.root / "f").stat().st_ino == inode
    assert handle.file_system.journal.records() == []


# -- compare and swap --------------------------------------------------------------------------------------------


@pytest.fixture
def meanwhile(monkeypatch):
    """Do something at the very last moment: after everything was compared, right before the swap itself."""

    def install(action, *, after_comparison=True):
        exchange, same_file, rename = staging.exchange, staging._same_file, os.rename
        fired = []

        def once():
            if not fired:
                fired.append(True)
                action()

        def exchanging(*arguments):
            once()
            return exchange(*arguments)

        def comparing(*arguments):
            if not after_comparison:
                once()
            return same_file(*arguments)

        def renaming(*arguments, **options):
            if arguments[0] == "f":
                once()
            return rename(*arguments, **options)

        monkeypatch.setattr(staging, "exchange", exchanging)
        monkeypatch.setattr(staging, "_same_file", comparing)
        monkeypatch.setattr(staging.os, "rename", renaming)
        return fired

    return install


def replace_it(path):
    """What an editor does on save: another file takes the name."""
    other = path.parent / "editor.tmp"
    other.write_bytes(b"a person's")
    os.rename(other, path)


def overwrite_it(path):
    """What a shell does: the same file with other content."""
    with path.open("r+b") as file:
        file.write(b"A PERSON'S")


@pytest.mark.parametrize("change", [replace_it, overwrite_it, os.unlink], ids=["replaced", "overwritten", "deleted"])
@pytest.mark.parametrize("kind", ["write", "delete", "several"])
async def test_a_change_at_the_last_moment_is_a_conflict_and_survives(tree, opened, meanwhile, change, kind):
    """I5: the swap itself compares. Whatever a person did a moment before stays, and nothing of ours lands."""
    tree.fill({"f": b"old content", "other": b"other"})
    handle = opened()
    fired = meanwhile(lambda: change(tree.root / "f"))
    mutation = Mutation("delete", "f", expect=sha256(b"old content"))
    if kind != "delete":
        mutation = Mutation("write", "f", b"ours", expect=sha256(b"old content"))
    rest = [Mutation("write", "other", b"OTHER", expect=sha256(b"other"))] if kind == "several" else []
    with pytest.raises(ConflictError) as conflict:
        await handle.file_system.commit("p", [mutation, *rest])
    assert fired
    assert conflict.value.paths == ["f"]
    expected = {replace_it: b"a person's", overwrite_it: b"A PERSON'St", os.unlink: None}[change]
    assert tree.files().get("f") == expected
    assert tree.files()["other"] == b"other"
    assert tree.litter() == []


async def test_a_file_that_appears_at_the_last_moment_is_not_overwritten(tree, opened, exchange, monkeypatch):
    handle = opened()
    place_new = carrying.place_new

    def late(staged, staging_fd, name, directory):
        (tree.root / "new").write_bytes(b"a person's")
        place_new(staged, staging_fd, name, directory)

    monkeypatch.setattr(carrying, "place_new", late)
    with pytest.raises(ConflictError) as conflict:
        await write(handle, "new", b"ours", expect=None)
    assert conflict.value.paths == ["new"]
    assert tree.files() == {"new": b"a person's"}
    assert tree.litter() == []


async def test_without_exchange_the_comparison_comes_right_before_the_rename(tree, opened, monkeypatch):
    monkeypatch.setattr(syscalls, "_rename", None)
    tree.fill({"f": b"old content"})
    handle = opened()
    link = os.link

    def late(*arguments, **options):
        link(*arguments, **options)
        replace_it(tree.root / "f")

    monkeypatch.setattr(carrying.os, "link", late)
    with pytest.raises(ConflictError):
        await write(handle, "f", b"ours", expect=sha256(b"old content"))
    assert tree.files() == {"f": b"a person's"}


async def test_the_modification_time_is_not_what_is_compared(tree, opened):
    """P49: staleness is judged by content."""
    tree.fill({"f": b"old"})
    handle = opened()
    os.utime(tree.root / "f", (1, 1))
    await write(handle, "f", b"new", expect=sha256(b"old"))
    stamp = (tree.root / "f").stat()
    (tree.root / "f").write_bytes(b"xyz")
    os.utime(tree.root / "f", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with pytest.raises(ConflictError):
        await write(handle, "f", b"newer", expect=sha256(b"new"))


async def test_two_hundred_racing_edits_lose_none(tree, opened):
    """P31: of two that start from the same content one lands and the other is told; a retry loses nothing."""
    tree.fill({"c": b"0,0"})
    handle = opened()

    async def count_up(position: int) -> None:
        for _ in range(100):
            while True:
                old = await handle.file_system.read("c")
                numbers = [int(number) for number in old.split(b",")]
                numbers[position] += 1
                try:
                    await write(handle, "c", b"%d,%d" % tuple(numbers), expect=sha256(old))
                except ConflictError:
                    continue
                break

    await asyncio.gather(count_up(0), count_up(1))
    assert tree.files() == {"c": b"100,100"}


async def test_two_processes_lose_none_either(tree, opened):
    """The same between two sessions, whose locks know nothing of each other: the swap decides."""
    tree.fill({"c": b"0"})
    first, second = opened(), opened()

    def count_up(handle) -> None:
        for _ in range(60):
            while True:
                old = handle.file_system.disk.read("c")
                change = Mutation("write", "c", b"%d" % (int(old) + 1), expect=sha256(old))
                try:
                    handle.file_system.commit_now("p", [change])
                except ConflictError:
                    continue
                break

    threads = [threading.Thread(target=count_up, args=[handle]) for handle in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tree.files() == {"c": b"120"}


async def test_a_process_that_writes_for_ever_is_not_waited_for_for_ever(tree, opened, monkeypatch):
    monkeypatch.setattr(journal, "_ALONE_S", 0.05)
    tree.fill({"f": b"0"})
    first, second = opened(), opened()
    with (
        first.file_system.journal.alone(),
        pytest.raises(StepFailedError, match="another process of devtools-lsp") as refused,
    ):
        await write(second, "f", b"1")
    assert refused.value.retry == "yes"
    await write(second, "f", b"1")
    assert tree.files() == {"f": b"1"}


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_saves_during_the_way_back_end_with_the_last_one(tree, opened, monkeypatch, times):
    """The swap took out a person's save, and while it is put back they save again and again: none of it is lost."""
    tree.fill({"f": b"0"})
    handle = opened()
    exchange, count = staging.exchange, []

    def save(data: bytes) -> None:
        (tree.root / "editor.tmp").write_bytes(data)
        os.rename(tree.root / "editor.tmp", tree.root / "f")

    def exchanging(*arguments):
        if len(count) <= times:
            save(b"save %d" % len(count))
            count.append(True)
        return exchange(*arguments)

    monkeypatch.setattr(staging, "exchange", exchanging)
    with pytest.raises(ConflictError):
        await write(handle, "f", b"ours", expect=sha256(b"0"))
    files = tree.files()
    assert files["f"] == b"save %d" % times
    # The one that was in our hand when the next was made nobody had replaced knowingly.
    assert [data for path, data in files.items() if path.endswith(".kept")] == [b"save %d" % (times - 1)]


# -- lists of mutations ------------------------------------------------------------------------------------------

PATHS = ["a", "b", "d/a", "d/b", "e/f/a"]
CONTENTS = [b"1", b"2", b"3"]


def model(files: dict[str, bytes], mutations: list[Mutation]) -> dict[str, bytes] | None:
    """What the list does to a dictionary; None where something must refuse it."""
    files = dict(files)
    for mutation in mutations:
        subject = mutation.source or mutation.path
        found = files.get(subject)
        if mutation.expect != UNCHECKED and (sha256(found) if found is not None else None) != mutation.expect:
            return None
        if mutation.kind == "write":
            files[mutation.path] = mutation.data
            continue
        if found is None:
            return None
        if mutation.kind == "delete":
            del files[subject]
        elif subject != mutation.path:
            if mutation.path in files:
                return None
            files[mutation.path] = files.pop(subject)
    return files


hashes = st.sampled_from([UNCHECKED, UNCHECKED, None, *map(sha256, CONTENTS)])
mutation_lists = st.lists(
    st.one_of(
        st.builds(Mutation, st.just("write"), st.sampled_from(PATHS), st.sampled_from(CONTENTS), expect=hashes),
        st.builds(Mutation, st.just("delete"), st.sampled_from(PATHS), expect=hashes),
        st.builds(Mutation, st.just("rename"), st.sampled_from(PATHS), source=st.sampled_from(PATHS), expect=hashes),
    ),
    min_size=1,
    max_size=8,
)
file_sets = st.dictionaries(st.sampled_from(PATHS), st.sampled_from(CONTENTS))


@given(files=file_sets, mutations=mutation_lists)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_the_net_plan_does_what_the_list_does(files, mutations):
    """Reducing a list to its effects changes nothing about its outcome, refusals included."""
    expected = model(files, mutations)
    try:
        plan = net_plan(mutations, lambda path: sha256(files[path]) if path in files else None)
    except DevToolsError:
        assert expected is None
        return
    result = dict(files)
    for effect in plan.effects:
        assert effect.before == (sha256(files[effect.path]) if effect.path in files else None)
        result.pop(effect.path, None)
        if effect.after is not None:
            after = effect.after
            result[effect.path] = after.data if after.data is not None else files[after.origin]
            assert after.sha256 == sha256(result[effect.path])
    assert result == expected
    assert all(files.get(effect.path) != result.get(effect.path) or effect.after for effect in plan.effects)


@given(files=file_sets, mutations=mutation_lists, fault=st.none() | st.integers(1, 40))
@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_random_lists_land_whole_or_not_at_all(tree, files, mutations, fault):
    """I6, I7, I8: on the disk, with a failure anywhere; then undone; then nothing is left lying about."""
    subprocess.run(["rm", "-rf", *tree.root.iterdir()], check=True)
    tree.fill(files)
    outside = sorted(path.name for path in tree.root.parent.iterdir())
    expected = model(files, mutations)
    fs = LocalFileSystem(str(tree.root))
    try:
        faults.armed = faults.Fault(f"journal:*#{fault}:EIO") if fault else None
        try:
            fs.commit_now("p", mutations, make_parents=True)
        except DevToolsError:
            assert expected is None or fault
            assert tree.files() == files
            assert tree.directories() == {parent for path in files for parent in above(path)}
        except OSError:
            assert fault  # After the marker only a kill makes sense; what is committed stays.
            assert tree.files() == expected
        else:
            assert tree.files() == expected
            faults.armed = None
            check_undo(fs, tree, files, expected)
    finally:
        faults.armed = None
        fs.close()
    assert tree.litter() == []
    assert sorted(path.name for path in tree.root.parent.iterdir()) == outside


def above(path):
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def check_undo(fs, tree, files, expected):
    if not fs.journal.records():
        assert files == expected
        return
    undo = asyncio.run(fs.undo_plan("p"))
    assert undo.conflicts == {}
    fs.commit_now("u", undo.mutations, make_parents=True)
    assert tree.files() == files


# -- construction ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["relative/path", "/nowhere/at/all", "/etc/hostname"])
def test_a_root_that_is_none_is_refused_at_construction(root):
    with pytest.raises(InvalidConfigError, match="root"):
        LocalFileSystem(root)


def test_a_journal_that_cannot_be_one_is_refused_at_construction(tree, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tree.root / ".devtools")
    with pytest.raises(InvalidConfigError, match="journal"):
        LocalFileSystem(str(tree.root))
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_without_a_journal_there_is_no_commit_and_no_undo(tree):
    fs = LocalFileSystem(str(tree.root), journaled=False)
    try:
        assert fs.atomic is False
        for call in (fs.commit("p", []), fs.undo_plan(), fs.mark_undone("p", "q")):
            with pytest.raises(StepUnavailableError, match="without a journal"):
                await call
        assert not (tree.root / ".devtools").exists()
    finally:
        fs.close()


def test_the_journal_is_private_and_ignores_itself(tree, tool):
    fs = LocalFileSystem(str(tree.root))
    fs.close()
    fs.close()
    assert (tree.root / ".devtools").stat().st_mode & 0o777 == 0o700
    subprocess.run([tool("git"), "init", "-q", tree.root], check=True)
    status = subprocess.run(["git", "status", "--porcelain"], cwd=tree.root, capture_output=True, text=True, check=True)
    assert status.stdout == ""


@pytest.mark.parametrize("kind", ["directory", "file", "link", "another mount"])
def test_the_journal_goes_into_a_git_directory_of_the_roots_own(tree, tool, kind, tmp_path, mounted):
    if kind == "another mount":
        mounted("-t", "tmpfs", "tmpfs", at=tree.root / ".git")
    subprocess.run([tool("git"), "init", "-q", tree.root], check=True)
    if kind in ("file", "link"):
        os.rename(tree.root / ".git", tmp_path / "elsewhere.git")
    if kind == "file":
        (tree.root / ".git").write_text(f"gitdir: {tmp_path / 'elsewhere.git'}\n")
    if kind == "link":
        os.symlink(tmp_path / "elsewhere.git", tree.root / ".git")
    fs = LocalFileSystem(str(tree.root))
    fs.commit_now("p", [Mutation("write", "a", b"x", expect=None)])
    fs.close()
    assert (tree.root / ".git/devtools-lsp").is_dir() is (kind == "directory")
    assert (tree.root / ".devtools").is_dir() is (kind != "directory")
    assert not (tmp_path / "elsewhere.git/devtools-lsp").exists()


async def test_a_strange_name_that_exists_can_be_edited_and_built_upon(tree, opened):
    """Only what comes into being is held to the rules for names."""
    tree.fill({"odd\\dir/f\n": b"0"})
    handle = opened()
    await write(handle, "odd\\dir/f\n", b"1", expect=sha256(b"0"))
    await write(handle, "odd\\dir/plain", b"1", expect=None)
    with pytest.raises(PolicyError):
        await write(handle, "odd\\dir/new\\one", b"1", expect=None)
    assert tree.files() == {"odd\\dir/f\n": b"1", "odd\\dir/plain": b"1"}


def test_a_transaction_over_many_directories_needs_few_descriptors(tree, sha):
    """600 files in 300 directories with room for 250 more descriptors."""
    names = [f"d{number // 2}/sub/f{number}" for number in range(600)]
    tree.fill(dict.fromkeys(names, b"0"))
    fs = LocalFileSystem(str(tree.root), policy=PathPolicy())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 250, hard))
    try:
        mutations = [Mutation("write", name, b"1", expect=sha256(b"0")) for name in names[:400]]
        mutations += [Mutation("rename", name + ".moved", source=name) for name in names[400:]]
        fs.commit_now("p", [*mutations, Mutation("write", "new/deep/f", b"1", expect=None)], make_parents=True)
        undo = asyncio.run(fs.undo_plan("p"))
        fs.commit_now("u", undo.mutations)
        assert set(fs.disk.read_many(names).values()) == {b"0"}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        fs.close()
    assert set(tree.files()) == set(names)


def test_descriptors_are_given_back(tree, sha):
    """A thousand commits, refusals and reads later the process has no more descriptors than before."""
    tree.fill({"a": b"0", "d/b": b"0"})
    fs = LocalFileSystem(str(tree.root), retention=Retention(plans=2))
    for number in range(200):
        if number == 20:
            before = len(os.listdir("/proc/self/fd"))
        data = b"%d" % number
        for path in ("a", "d/b"):
            old = fs.disk.read(path)
            fs.commit_now(f"p{number}", [Mutation("write", path, data + b"x", expect=sha256(old))])
        for bad in (
            Mutation("write", "a", b"", expect="0"),
            Mutation("delete", "nowhere"),
            Mutation("write", "d", b""),
        ):
            with pytest.raises(DevToolsError):
                fs.commit_now("bad", [bad])
        with pytest.raises(FileNotFoundError):
            fs.disk.read("nowhere/at/all")
        fs.disk.list("d")
    assert len(os.listdir("/proc/self/fd")) == before
    fs.close()


# -- what people do to a tree meanwhile --------------------------------------------------------------------------


async def test_a_cleaned_tree_takes_the_journal_and_not_the_service(tree, opened):
    """`git clean -fdx` removes an ignored `.devtools`; the next commit makes another."""
    tree.fill({"f": b"0"})
    handle = opened()
    await write(handle, "f", b"1")
    shutil.rmtree(tree.root / ".devtools")
    await write(handle, "f", b"2", expect=sha256(b"1"))
    several = [Mutation("write", "f", b"3", expect=sha256(b"2")), Mutation("write", "g", b"3", expect=None)]
    await handle.file_system.commit("p3", several)
    assert tree.files() == {"f": b"3", "g": b"3"}
    assert (await handle.file_system.undo_plan()).plan == "p3"
    assert (tree.root / ".devtools/.gitignore").read_bytes() == b"*\n"


async def test_a_git_directory_that_is_moved_away_does_not_take_the_journal_along(tree, tool, opened):
    """What is written after that would be looked for in vain by a start after a crash."""
    subprocess.run([tool("git"), "init", "-q", tree.root], check=True)
    tree.fill({"f": b"0"})
    handle = opened()
    await write(handle, "f", b"1")
    (tree.root / ".git").rename(tree.root / "aside")
    await write(handle, "f", b"2", expect=sha256(b"1"))
    assert (await handle.file_system.undo_plan()).mutations[0].data == b"1"
    assert [path.name for path in (tree.root / ".devtools").glob("*/*.old.0")] != []
    assert len(list((tree.root / "aside/devtools-lsp").glob("*/*.old.0"))) == 1


@pytest.mark.parametrize("what", ["moved", "removed", "replaced"])
async def test_a_root_that_is_not_there_any_more_is_not_written(tree, opened, what):
    """The descriptor would still reach the old one, which is not what anybody means."""
    tree.fill({"f": b"0"})
    handle = opened()
    if what == "removed":
        shutil.rmtree(tree.root)
    else:
        os.rename(tree.root, tree.root.parent / "moved away")
    if what == "replaced":
        tree.root.mkdir()
    attempts = [
        write(handle, "f", b"1"),
        handle.file_system.write("f", b"1"),
        handle.file_system.delete("f"),
        handle.gauntlet.screen("f", "read"),
    ]
    for attempt in attempts:
        with pytest.raises(StepFailedError, match="root was moved, removed or replaced"):
            await attempt
    if what != "removed":
        assert (tree.root.parent / "moved away" / "f").read_bytes() == b"0"
    handle.close()


async def test_a_link_to_a_file_that_always_asks_is_not_written_by_its_other_name(tree, opened):
    """A rule that allows `notes.txt` must not change package.json."""
    tree.fill({"package.json": b"{}", "lib/setup.py": b"", "plain.txt": b"0"})
    for name, target in [("notes.txt", "package.json"), ("docs", "lib"), ("other.txt", "plain.txt")]:
        os.symlink(target, tree.root / name)
    handle = opened(symlinks="inside")
    for call in (
        write(handle, "notes.txt", b"x"),
        handle.file_system.write("notes.txt", b"x"),
        handle.gauntlet.screen("notes.txt", "write"),
    ):
        with pytest.raises(PolicyError, match="is asked about by that name"):
            await call
    assert await handle.file_system.read("notes.txt") == b"{}"
    await write(handle, "docs/setup.py", b"y")  # It asks by this name as well.
    await write(handle, "other.txt", b"1")
    assert tree.files() == {"package.json": b"{}", "lib/setup.py": b"y", "plain.txt": b"1"}


async def test_what_stands_above_a_new_directory_does_not_stand_in_it(tree, opened):
    """A look into a directory that does not exist yet must not end in the one above it."""
    tree.fill({"HEAD": b"no repository's\n", "refs/x": b""})
    handle = opened()
    mutations = [Mutation("write", "sub/objects/f", b"x", expect=None)]
    await handle.file_system.commit_witnessed("p", mutations, make_parents=True)
    assert tree.files()["sub/objects/f"] == b"x"


def test_a_walk_to_a_directory_that_is_missing_says_so(tree):
    walk = RootWalk(str(tree.root))
    (tree.root / "a").mkdir()
    for path, missing in [("a/b/.", ("b",)), ("a/b/c/.", ("b", "c")), ("b/.", ("b",)), ("a/.", ())]:
        with walk.walk(path, follow=False) as trail:
            assert (trail.missing, trail.name, trail.path) == (missing, "", path.removesuffix("/."))
    walk.close()
