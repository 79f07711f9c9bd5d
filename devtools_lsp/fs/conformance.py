"""A suite that any author of a file system adapter can run: what the pipeline relies on, as tests.

Subclass what fits in a test module, say how to make an empty adapter, and let pytest collect it::

    class TestMine(FileSystemConformance, DeleteConformance, RenameConformance):
        def make(self):
            return MyFileSystem(...)

`FileSystemConformance` covers the four methods that every adapter has, each other class what is optional, and
`CompleteConformance` all but the batches. An optional method that the adapter has and the class does not cover is an
error, so that nothing stays untested by oversight. Each test gets a fresh adapter and runs on an event loop of its own;
no pytest plugin is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from devtools_lsp.core.workspace import sha256
from devtools_lsp.errors import ConflictError, DevToolsError
from devtools_lsp.ports import Cancellation, Mutation

_OPTIONAL = ("mkdir", "delete", "rename", "read_window", "stat_many", "read_many", "commit")
_E = TypeVar("_E", bound=BaseException)


class AdapterScenes:
    """How the tests below get an adapter and a loop; combine with the classes that fit."""

    covers: frozenset[str] = frozenset()
    """The optional methods that a class tests."""

    def make(self) -> Any:
        """A fresh adapter over an empty root."""
        raise TypeError(f"{type(self).__name__} does not say how an empty adapter is made: override make()")

    def close(self, file_system: Any) -> None:
        """Give back what `make` took; nothing by default."""

    async def make_directory(self, file_system: Any, path: str) -> None:
        """Bring one directory into being; by `mkdir` unless the adapter has other means."""
        await file_system.mkdir(path, signal=Cancellation())

    def _run(self, scene: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        file_system = self.make()
        try:
            asyncio.run(scene(file_system))
        finally:
            self.close(file_system)


class FileSystemConformance(AdapterScenes):
    """The contract of SPEC 5.1 for `stat`, `list`, `read` and `write`, one test a sentence."""

    def test_every_optional_method_is_covered(self) -> None:
        """What the adapter offers beyond the four methods is tested, too."""

        async def scene(fs: Any) -> None:
            offered = {name for name in _OPTIONAL if callable(getattr(fs, name, None))}
            if getattr(fs, "atomic", False) is not True:
                offered.discard("commit")
            covered = frozenset[str]().union(*(getattr(kind, "covers", ()) for kind in type(self).__mro__))
            assert offered == covered, f"the adapter offers {sorted(offered)}, the suite covers {sorted(covered)}"

        self._run(scene)

    def test_write_then_read_gives_the_same_bytes(self) -> None:
        """Bytes are bytes: NUL, invalid UTF-8 and no final newline included."""

        async def scene(fs: Any) -> None:
            for data in (b"", b"x", b"a\r\nb\n", bytes(range(256)), b"\xff\xfe" * 3000):
                await fs.write("f.bin", data)
                assert await fs.read("f.bin") == data

        self._run(scene)

    def test_write_replaces_the_whole_file(self) -> None:
        """A shorter content leaves nothing of the longer one."""

        async def scene(fs: Any) -> None:
            await fs.write("f", b"long content")
            await fs.write("f", b"s")
            assert await fs.read("f") == b"s"

        self._run(scene)

    def test_stat_tells_kind_and_size(self) -> None:
        """`stat` of a file and of the root."""

        async def scene(fs: Any) -> None:
            await fs.write("f.txt", b"12345")
            found = await fs.stat("f.txt")
            assert (found.kind, found.size) == ("file", 5)
            assert (await fs.stat("")).kind == "directory"

        self._run(scene)

    def test_an_absent_path_is_file_not_found(self) -> None:
        """The typed absence, from `stat` and `read`."""

        async def scene(fs: Any) -> None:
            await _raises(FileNotFoundError, fs.stat("absent"))
            await _raises(FileNotFoundError, fs.read("absent"))
            await _raises(FileNotFoundError, fs.stat("absent/deeper"))

        self._run(scene)

    def test_list_gives_every_name_with_its_kind(self) -> None:
        """`list` of the root."""

        async def scene(fs: Any) -> None:
            await fs.write("a", b"")
            await fs.write("ü.txt", b"")
            names = {(entry.name, entry.kind) for entry in await fs.list("")}
            assert {("a", "file"), ("ü.txt", "file")} <= names

        self._run(scene)

    def test_list_of_an_absent_directory_is_file_not_found(self) -> None:
        """The typed absence, from `list`."""

        async def scene(fs: Any) -> None:
            await _raises(FileNotFoundError, fs.list("absent"))

        self._run(scene)

    def test_reading_a_directory_is_an_error_and_not_an_absence(self) -> None:
        """Whatever the error is, it must not read as "not found"."""

        async def scene(fs: Any) -> None:
            await self.make_directory(fs, "d")
            await _refuses(fs.read("d"))

        self._run(scene)

    def test_names_are_not_interpreted(self) -> None:
        """Blanks, brackets, wildcards and non-ASCII letters are characters of a name."""

        async def scene(fs: Any) -> None:
            for name in ("with blank.txt", "[id].tsx", "a*b", "naïve.md", "日本.txt", "-rf", "#x"):
                await fs.write(name, name.encode())
                assert await fs.read(name) == name.encode()

        self._run(scene)


class MkdirConformance(AdapterScenes):
    """The optional `mkdir`."""

    covers = frozenset(("mkdir",))

    def test_mkdir_makes_a_place_for_files(self) -> None:
        """`mkdir`, twice: an existing directory is no matter."""

        async def scene(fs: Any) -> None:
            await fs.mkdir("d", signal=Cancellation())
            await fs.mkdir("d/e", signal=Cancellation())
            await fs.write("d/e/f", b"1")
            assert await fs.read("d/e/f") == b"1"
            assert (await fs.stat("d/e")).kind == "directory"
            assert [entry.name for entry in await fs.list("d")] == ["e"]

        self._run(scene)


class DeleteConformance(AdapterScenes):
    """The optional `delete`."""

    covers = frozenset(("delete",))

    def test_delete_removes_the_file(self) -> None:
        """`delete`, and its typed absence."""

        async def scene(fs: Any) -> None:
            await fs.write("f", b"1")
            await fs.delete("f", signal=Cancellation())
            await _raises(FileNotFoundError, fs.stat("f"))
            await _raises(FileNotFoundError, fs.delete("f", signal=Cancellation()))

        self._run(scene)

    def test_a_turned_signal_stops_a_change_before_it_begins(self) -> None:
        """The cancellation signal of `delete`, `rename` and `mkdir`."""

        async def scene(fs: Any) -> None:
            await fs.write("f", b"1")
            signal = Cancellation()
            signal.cancel()
            await _raises(asyncio.CancelledError, fs.delete("f", signal=signal))
            assert await fs.read("f") == b"1"

        self._run(scene)


class RenameConformance(AdapterScenes):
    """The optional `rename`."""

    covers = frozenset(("rename",))

    def test_rename_moves_the_file(self) -> None:
        """`rename`, and its typed absence."""

        async def scene(fs: Any) -> None:
            await fs.write("a", b"1")
            await fs.rename("a", "b", signal=Cancellation())
            assert await fs.read("b") == b"1"
            await _raises(FileNotFoundError, fs.stat("a"))
            await _raises(FileNotFoundError, fs.rename("a", "c", signal=Cancellation()))

        self._run(scene)

    def test_rename_never_overwrites(self) -> None:
        """A move onto an existing file fails and leaves both."""

        async def scene(fs: Any) -> None:
            await fs.write("a", b"1")
            await fs.write("b", b"2")
            await _refuses(fs.rename("a", "b", signal=Cancellation()))
            assert (await fs.read("a"), await fs.read("b")) == (b"1", b"2")

        self._run(scene)


class WindowConformance(AdapterScenes):
    """The optional `read_window`."""

    covers = frozenset(("read_window",))

    def test_read_window_reads_a_part(self) -> None:
        """`read_window` inside, across and beyond the end."""

        async def scene(fs: Any) -> None:
            await fs.write("f", b"0123456789")
            assert await fs.read_window("f", 2, 3) == b"234"
            assert await fs.read_window("f", 8, 100) == b"89"
            assert await fs.read_window("f", 50, 4) == b""
            assert await fs.read_window("f", 0, 0) == b""

        self._run(scene)


class BatchConformance(AdapterScenes):
    """The optional `stat_many` and `read_many`: see `ports.BatchFileSystem`."""

    covers = frozenset(("stat_many", "read_many"))

    def test_many_are_looked_at_in_one_go(self) -> None:
        """`stat_many` answers for each path; an absence stands at its own path and fails nothing else."""

        async def scene(fs: Any) -> None:
            await fs.write("a", b"1")
            await fs.write("b", b"22")
            found = await fs.stat_many(["a", "missing", "b"])
            assert set(found) == {"a", "missing", "b"}
            assert (found["a"], found["b"]) == (await fs.stat("a"), await fs.stat("b"))
            assert isinstance(found["missing"], FileNotFoundError)
            assert await fs.stat_many([]) == {}

        self._run(scene)

    def test_many_are_read_in_one_go(self) -> None:
        """`read_many` gives whole contents; what cannot be read stands at its own path."""

        async def scene(fs: Any) -> None:
            await fs.write("a", b"1\r\n\0")
            await fs.write("b", b"")
            found = await fs.read_many(["b", "missing", "a"])
            assert set(found) == {"a", "missing", "b"}
            assert (found["a"], found["b"]) == (b"1\r\n\0", b"")
            assert isinstance(found["missing"], FileNotFoundError)
            assert isinstance((await fs.read_many([""]))[""], Exception), "a directory is no file"

        self._run(scene)


class TransactionConformance(AdapterScenes):
    """The optional `commit`, for adapters that declare `atomic`."""

    covers = frozenset(("commit",))

    def test_commit_lands_everything(self) -> None:
        """Writes, creations, moves and deletions of one list."""

        async def scene(fs: Any) -> None:
            await fs.write("edit", b"1")
            await fs.write("move", b"2")
            await fs.write("drop", b"3")
            await fs.commit(
                "plan",
                [
                    Mutation("rename", "moved", source="move", expect=sha256(b"2")),
                    Mutation("delete", "drop", expect=sha256(b"3")),
                    Mutation("mkdir", "new"),
                    Mutation("write", "edit", b"one", expect=sha256(b"1")),
                    Mutation("write", "new/file", b"four", expect=None),
                ],
            )
            assert await fs.read("edit") == b"one"
            assert await fs.read("moved") == b"2"
            assert await fs.read("new/file") == b"four"
            await _raises(FileNotFoundError, fs.stat("move"))
            await _raises(FileNotFoundError, fs.stat("drop"))

        self._run(scene)

    def test_commit_takes_nothing_when_one_expectation_fails(self) -> None:
        """A conflict names every path that is not as expected, and changes none."""

        async def scene(fs: Any) -> None:
            await fs.write("a", b"1")
            await fs.write("b", b"2")
            mutations = [
                Mutation("write", "a", b"x", expect=sha256(b"1")),
                Mutation("write", "b", b"x", expect=sha256(b"other")),
                Mutation("write", "c", b"x", expect=sha256(b"absent")),
            ]
            assert (await _raises(ConflictError, fs.commit("plan", mutations))).paths == ["b", "c"]
            assert (await fs.read("a"), await fs.read("b")) == (b"1", b"2")
            await _raises(FileNotFoundError, fs.stat("c"))

        self._run(scene)

    def test_commit_never_creates_over_something(self) -> None:
        """`expect=None` means that nothing is there."""

        async def scene(fs: Any) -> None:
            await fs.write("a", b"1")
            await _raises(ConflictError, fs.commit("plan", [Mutation("write", "a", b"x", expect=None)]))
            await fs.write("b", b"2")
            moves = [Mutation("rename", "a", source="b", expect=sha256(b"2"))]
            await _raises(ConflictError, fs.commit("plan", moves))
            assert (await fs.read("a"), await fs.read("b")) == (b"1", b"2")

        self._run(scene)

    def test_commit_compares_in_the_order_of_the_list(self) -> None:
        """What an earlier mutation leaves is what a later one expects."""

        async def scene(fs: Any) -> None:
            await fs.write("a", b"1")
            await fs.commit(
                "plan",
                [
                    Mutation("rename", "b", source="a", expect=sha256(b"1")),
                    Mutation("write", "b", b"2", expect=sha256(b"1")),
                    Mutation("write", "a", b"3", expect=None),
                ],
            )
            assert (await fs.read("a"), await fs.read("b")) == (b"3", b"2")

        self._run(scene)


class CompleteConformance(
    FileSystemConformance,
    MkdirConformance,
    DeleteConformance,
    RenameConformance,
    WindowConformance,
    TransactionConformance,
):
    """Every method that changes what an adapter can do, and `atomic`; `BatchConformance` is a matter of speed."""


async def _raises(kind: type[_E], call: Coroutine[Any, Any, Any]) -> _E:
    try:
        await call
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, and nothing was raised")


async def _refuses(call: Coroutine[Any, Any, Any]) -> None:
    """Any error but an absence."""
    try:
        await call
    except FileNotFoundError:
        raise
    except (OSError, DevToolsError):
        return
    raise AssertionError("expected a refusal, and nothing was raised")
