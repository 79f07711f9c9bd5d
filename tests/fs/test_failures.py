"""Every file-system call failing in turn, and the conditions of real disks: what was reported is what is there (I6)."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from devtools_lsp.errors import DevToolsError, PolicyError, StepFailedError, StepUnavailableError
from devtools_lsp.fs import carrying, disk, journal, parents, revert, staging, syscalls, transaction, walk
from devtools_lsp.fs.gauntlet import WriteGauntlet
from devtools_lsp.fs.memory import MemoryFileSystem
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.translate import RootTranslator
from devtools_lsp.ports import Mutation, Permit

ANYTHING = Permit("p", 0, "write", frozenset(), ("**", "**/.*"))
BEFORE = {"a.txt": b"a old\n", "src/b.py": b"b old\n", "src/drop.py": b"drop\n", "src/move.py": b"move\n"}
AFTER = {"a.txt": b"a new\n", "src/b.py": b"b new\n", "docs/new.md": b"new\n", "lib/moved.py": b"moved\n"}


@pytest.fixture
def mutations(sha):
    return [
        Mutation("rename", "lib/moved.py", source="src/move.py", expect=sha(b"move\n")),
        Mutation("delete", "src/drop.py", expect=sha(b"drop\n")),
        Mutation("write", "a.txt", b"a new\n", expect=sha(b"a old\n")),
        Mutation("write", "docs/new.md", b"new\n", expect=None),
        Mutation("write", "lib/moved.py", b"moved\n", expect=sha(b"move\n")),
        Mutation("write", "src/b.py", b"b new\n", expect=sha(b"b old\n")),
    ]


class FailingOs:
    """`os` as the disk's modules see it: counts their calls, and fails the n-th, or all from the n-th on."""

    # fmt: off
    CALLS = frozenset((
        "open", "read", "pread", "write", "fsync", "stat", "fstat", "link", "unlink", "rename", "mkdir", "rmdir",
        "readlink", "scandir", "fchmod", "fchown", "listxattr", "getxattr", "setxattr",
    ))
    # fmt: on

    def __init__(self, fail_at: int, *, for_good: bool) -> None:
        self.count = 0
        self._fail_at = fail_at
        self._for_good = for_good

    def __getattr__(self, name):
        found = getattr(os, name)
        return self.wrapped(name, found) if name in self.CALLS else found

    def wrapped(self, name, function):
        def call(*arguments, **options):
            self.count += 1
            if self.count == self._fail_at or (self._for_good and self.count > self._fail_at):
                raise OSError(errno.EIO, f"{os.strerror(errno.EIO)} in {name}")
            return function(*arguments, **options)

        return call


@pytest.fixture
def failing(monkeypatch):
    def install(fail_at: int, *, for_good: bool) -> FailingOs:
        proxy = FailingOs(fail_at, for_good=for_good)
        for module in (carrying, disk, journal, parents, revert, staging, syscalls, transaction, walk):
            monkeypatch.setattr(module, "os", proxy)
        monkeypatch.setattr(syscalls, "_flagged", proxy.wrapped("exchange", syscalls._flagged))
        return proxy

    return install


async def outcome(commit) -> DevToolsError | None:
    try:
        await commit
    except DevToolsError as error:
        return error
    return None


def on_disk(files: dict[str, bytes], mutations: list[Mutation]) -> set[str]:
    """The paths of mutations whose final state is on the disk."""
    return {mutation.path for mutation in mutations if files.get(mutation.path) == AFTER.get(mutation.path)}


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
async def test_every_call_failing_in_turn(tree, opened, failing, monkeypatch, mutations, recover, for_good):
    """I6: `landed` equals the disk. A single failure changes nothing; a disk that stays dead is mended at the start."""
    failures = 0
    for fail_at in range(1, 1000):
        for path in tree.files():
            (tree.root / path).unlink()
        for directory in sorted(tree.directories(), reverse=True):
            (tree.root / directory).rmdir()
        tree.fill(BEFORE)
        handle = opened()
        landed: list[Mutation] = []
        proxy = failing(fail_at, for_good=for_good)
        error = await outcome(handle.gauntlet.commit(ANYTHING, mutations, landed.append))
        monkeypatch.undo()
        if error is None:
            assert landed == mutations
        else:
            failures += 1
            assert error.code == "E_DEV_STEP_FAILED"
            assert str(tree.root) not in error.message
        files = tree.files()
        reported = {mutation.path for mutation in landed}
        assert reported == on_disk(files, mutations), fail_at
        handle.close()
        if not for_good:
            assert files in (BEFORE, AFTER), fail_at
            assert tree.litter() == [], fail_at
        recover()
        assert tree.files() in (BEFORE, AFTER), fail_at
        if landed != mutations:
            assert tree.files() == BEFORE, fail_at
        assert tree.litter() == [], fail_at
        if proxy.count < fail_at:
            break
    else:
        pytest.fail("the commit never ran to its end")
    assert failures > 100


async def test_every_call_failing_in_turn_on_an_adapter_without_transactions(mutations):
    """I6 there: what landed before the failure is reported, in order, and is what the adapter holds."""
    seen_partial = False
    for fail_at in range(1, 200):
        count = 0

        def on_call(method, path, fail_at=fail_at):
            nonlocal count
            count += 1
            if count == fail_at:
                raise OSError(errno.EIO, f"/host/path/{path} is broken")

        fs = MemoryFileSystem(BEFORE, on_call=on_call)
        gauntlet = WriteGauntlet("/root", fs, PathPolicy(), RootTranslator("/root"))
        landed: list[Mutation] = []
        error = await outcome(gauntlet.commit(ANYTHING, mutations, landed.append))
        assert error is None or "/host" not in error.message
        replayed = dict(BEFORE)
        for mutation in landed:
            if mutation.kind == "rename":
                replayed[mutation.path] = replayed.pop(mutation.source)
            elif mutation.kind == "delete":
                del replayed[mutation.path]
            else:
                replayed[mutation.path] = mutation.data
        assert fs.contents == replayed
        seen_partial = seen_partial or 0 < len(landed) < len(mutations)
        if count < fail_at:
            assert landed == mutations
            break
    assert seen_partial


@pytest.mark.parametrize("missing", ["delete", "rename", "mkdir"])
async def test_a_missing_method_is_named_before_anything_changes(mutations, missing):
    class Lacking(MemoryFileSystem):
        pass

    setattr(Lacking, missing, None)
    fs = Lacking(BEFORE)
    gauntlet = WriteGauntlet("/root", fs, PathPolicy(), RootTranslator("/root"))
    assert missing not in gauntlet.methods
    landed: list[Mutation] = []
    with pytest.raises(StepUnavailableError, match=f"'{missing}'"):
        await gauntlet.commit(ANYTHING, mutations, landed.append)
    assert fs.contents == BEFORE
    assert landed == []


async def test_a_stat_error_that_is_no_absence_is_a_refusal():
    """SPEC 5.1: an adapter that cannot say is not taken for "nothing is there"."""
    for error in (PermissionError(errno.EACCES, "no"), OSError("strange"), ValueError("bad key /secret/place")):

        class Broken(MemoryFileSystem):
            async def stat(self, path, error=error):
                raise error

        fs = Broken()
        gauntlet = WriteGauntlet("/root", fs, PathPolicy(), RootTranslator("/root"))
        with pytest.raises(DevToolsError) as refused:
            await gauntlet.commit(ANYTHING, [Mutation("write", "a", b"x", expect=None)], lambda _: None)
        assert "/secret" not in refused.value.message
        assert fs.contents == {}


# -- the conditions of real disks --------------------------------------------------------------------------------


async def test_a_full_disk_changes_nothing(tree, opened, mounted, sha):
    """ENOSPC while staging: the old files stay, the journal holds no leftovers, and it goes on once there is room."""
    root = mounted("-t", "tmpfs", "-o", "size=256k", "tmpfs", at=tree.root)
    tree.fill({"a.txt": b"a" * 1000, "b.txt": b"b" * 1000, "ballast": b"x" * 60_000})
    handle = opened(root)
    big = [
        Mutation("write", "a.txt", b"A" * 1000, expect=sha(b"a" * 1000)),
        Mutation("write", "b.txt", b"B" * 400_000, expect=sha(b"b" * 1000)),
    ]
    for mutations in (big, big[1:]):
        with pytest.raises(StepFailedError, match="no space is left"):
            await handle.gauntlet.commit(ANYTHING, mutations, lambda _: None)
        assert tree.files()["a.txt"] == b"a" * 1000
        assert tree.files()["b.txt"] == b"b" * 1000
        assert tree.litter() == []
    with pytest.raises(StepFailedError, match="no space is left"):
        await handle.file_system.write("c.txt", b"c" * 400_000)
    assert tree.litter() == []
    assert not (root / "c.txt").exists()
    await handle.gauntlet.commit(ANYTHING, big[:1], lambda _: None)
    assert tree.files()["a.txt"] == b"A" * 1000


async def test_a_disk_that_fills_up_at_any_moment_changes_nothing(tree, opened, mounted, sha):
    """ENOSPC wherever it strikes: the room left is varied page by page."""
    root = mounted("-t", "tmpfs", "-o", "size=512k", "tmpfs", at=tree.root)
    handle = None
    outcomes = set()
    for pages in range(24):
        if handle is not None:
            handle.close()
        for path in tree.files():
            (root / path).unlink()
        subprocess.run(["rm", "-rf", root / ".devtools", root / "new"], check=True)
        old = {f"f{number}": b"old%d" % number * 500 for number in range(4)}
        tree.fill(old)
        handle = opened(root)
        free = os.statvfs(root).f_bavail * os.statvfs(root).f_frsize
        (root / "ballast").write_bytes(b"x" * max(0, free - pages * 4096))
        mutations = [Mutation("write", name, data.upper(), expect=sha(data)) for name, data in old.items()]
        mutations.append(Mutation("write", "new/f", b"new", expect=None))
        landed: list[Mutation] = []
        error = await outcome(handle.gauntlet.commit(ANYTHING, mutations, landed.append))
        assert (error is None) == (landed == mutations)
        assert error is None or ("no space is left" in error.message and landed == [])
        files = {name: data for name, data in tree.files().items() if name != "ballast"}
        assert files == ({**{name: data.upper() for name, data in old.items()}, "new/f": b"new"} if landed else old)
        outcomes.add(bool(landed))
    assert outcomes == {True, False}


async def test_a_read_only_disk(tree, opened, mounted, sha):
    """EROFS is said in words; reading goes on."""
    tree.fill({"sub/a.txt": b"a"})
    mounted("--bind", str(tree.root / "sub"), at=tree.root / "sub")
    subprocess.run(["mount", "-o", "remount,bind,ro", tree.root / "sub"], check=True)
    handle = opened()
    assert await handle.file_system.read("sub/a.txt") == b"a"
    attempts = [
        Mutation("write", "sub/a.txt", b"b", expect=sha(b"a")),
        Mutation("write", "sub/new/x", b"b", expect=None),
        Mutation("delete", "sub/a.txt", expect=sha(b"a")),
        Mutation("rename", "sub/b.txt", source="sub/a.txt", expect=sha(b"a")),
    ]
    for mutation in attempts:
        with pytest.raises(StepFailedError, match="read-only"):
            await handle.gauntlet.commit(ANYTHING, [mutation], lambda _: None)
    with pytest.raises(StepFailedError, match="read-only"):
        await handle.file_system.write("sub/a.txt", b"b")
    assert tree.files() == {"sub/a.txt": b"a"}
    assert tree.litter() == []


def test_no_permission(tree, tmp_path):
    """EACCES, seen by a process that is not root: said in words, nothing changed, no leftovers."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody who has no permission")
    tree.fill({"mine.txt": b"m", "closed/a.txt": b"a", "sealed/b.txt": b"b", "unreadable.txt": b"u"})
    tree.fill({"theirs.txt": b"t"})
    script = textwrap.dedent(
        """
        import asyncio, concurrent.futures.thread, os, sys
        from devtools_lsp.errors import DevToolsError
        from devtools_lsp.fs.opening import open_local
        from devtools_lsp.ports import Mutation, Permit

        # Everything is imported by now: where it is installed may be closed to others.
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

        async def main():
            handle = open_local(sys.argv[1])
            permit = Permit("p", 0, "write", frozenset(), ("**",))
            async def attempt(*mutations):
                try:
                    await handle.gauntlet.commit(permit, list(mutations), lambda _: None)
                except DevToolsError as error:
                    print(error.code, error.message)
                else:
                    print("landed")
            await attempt(Mutation("write", "closed/a.txt", b"x"))
            await attempt(Mutation("write", "closed/new.txt", b"x", expect=None))
            await attempt(Mutation("delete", "closed/a.txt"))
            await attempt(Mutation("write", "sealed/b.txt", b"x"))
            await attempt(Mutation("write", "unreadable.txt", b"x"))
            await attempt(Mutation("write", "mine.txt", b"x"), Mutation("write", "closed/a.txt", b"x"))
            await attempt(Mutation("write", "mine.txt", b"x"), Mutation("delete", "theirs.txt"))
            print((await handle.file_system.read("mine.txt")).decode())
            undo = await handle.file_system.undo_plan()
            await attempt(*undo.mutations)
            handle.close()

        asyncio.run(main())
        """
    )
    for path in (tree.root, tree.root / "mine.txt"):
        os.chown(path, 65534, 65534)
    (tree.root / "closed").chmod(0o555)
    (tree.root / "sealed").chmod(0o000)
    (tree.root / "unreadable.txt").chmod(0o000)
    tmp_path.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", script, str(tree.root)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["E_DEV_STEP_FAILED"] * 6 + ["landed", "x", "landed"]
    assert all("permissions" in line for line in lines[:6]), lines
    assert (tree.root / "mine.txt").read_bytes() == b"m"
    # An undo brings back the bytes also where it cannot give them back to their owner.
    assert (tree.root / "theirs.txt").read_bytes() == b"t"
    (tree.root / "sealed").chmod(0o755)
    assert tree.files()["closed/a.txt"] == b"a"
    assert tree.files()["sealed/b.txt"] == b"b"
    assert tree.litter() == []


async def test_a_fifo_hangs_nothing(tree, opened):
    os.mkfifo(tree.root / "pipe")
    handle = opened()
    signal.alarm(10)
    try:
        for call in (handle.file_system.read("pipe"), handle.file_system.read_window("pipe", 0, 5)):
            with pytest.raises(PolicyError, match="not a regular file"):
                await call
        with pytest.raises(PolicyError):
            await handle.gauntlet.commit(ANYTHING, [Mutation("write", "pipe", b"x")], lambda _: None)
        with pytest.raises(PolicyError):
            await handle.gauntlet.commit(ANYTHING, [Mutation("delete", "pipe")], lambda _: None)
        assert (await handle.file_system.stat("pipe")).kind == "other"
    finally:
        signal.alarm(0)


@pytest.mark.parametrize(
    ("mutation", "reason"),
    [
        (Mutation("write", "dir", b"x"), "isDirectory"),
        (Mutation("delete", "dir"), "isDirectory"),
        (Mutation("delete", "absent"), "notFound"),
        (Mutation("rename", "to", source="absent"), "notFound"),
        (Mutation("rename", "to", source="dir"), "isDirectory"),
        (Mutation("write", "file/below", b"x"), "notFound"),
        (Mutation("mkdir", "file"), "exists"),
    ],
)
async def test_what_cannot_be_done_says_why_and_where(tree, opened, mutation, reason):
    tree.fill({"file": b"f", "dir/x": b"x"})
    handle = opened()
    with pytest.raises(StepFailedError) as failed:
        await handle.gauntlet.commit(ANYTHING, [mutation], lambda _: None)
    assert failed.value.reason == reason
    assert failed.value.path in (mutation.path, mutation.source)
    assert tree.files() == {"file": b"f", "dir/x": b"x"}
