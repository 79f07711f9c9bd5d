"""The conformance suite on everything that ships, and on a four-method adapter."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from devtools_lsp.fs.conformance import (
    BatchConformance,
    CompleteConformance,
    DeleteConformance,
    FileSystemConformance,
    MkdirConformance,
    RenameConformance,
    WindowConformance,
)
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.memory import MemoryFileSystem
from devtools_lsp.ports import DirectoryEntry, FileStat


class _OnDisk:
    journaled = True
    symlinks = "reject"

    def make(self):
        self.directory = tempfile.mkdtemp()
        return LocalFileSystem(self.directory, journaled=self.journaled, symlinks=self.symlinks)

    def close(self, file_system):
        file_system.close()
        shutil.rmtree(self.directory)


class TestLocal(_OnDisk, CompleteConformance, BatchConformance):
    pass


class TestLocalFollowingLinks(_OnDisk, CompleteConformance, BatchConformance):
    symlinks = "inside"


class TestLocalWithoutJournal(
    _OnDisk,
    FileSystemConformance,
    MkdirConformance,
    DeleteConformance,
    RenameConformance,
    WindowConformance,
    BatchConformance,
):
    journaled = False


class TestMemory(FileSystemConformance, MkdirConformance, DeleteConformance, RenameConformance, WindowConformance):
    def make(self):
        return MemoryFileSystem()


class TestAtomicMemory(CompleteConformance):
    def make(self):
        return MemoryFileSystem(atomic=True)


class FourMethods:
    """The least that an adapter has: written as an embedder would, over pathlib, with its own errors."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def stat(self, path):
        found = self._directory / path
        if found.is_dir():
            return FileStat("directory")
        return FileStat("file", found.stat().st_size)

    async def list(self, path):
        return [
            DirectoryEntry(entry.name, "directory" if entry.is_dir() else "file")
            for entry in (self._directory / path).iterdir()
        ]

    async def read(self, path):
        return (self._directory / path).read_bytes()

    async def write(self, path, data):
        (self._directory / path).write_bytes(data)


class TestFourMethods(FileSystemConformance):
    def make(self):
        self.directory = Path(tempfile.mkdtemp())
        return FourMethods(self.directory)

    def close(self, file_system):
        shutil.rmtree(self.directory)

    async def make_directory(self, file_system, path):
        (self.directory / path).mkdir()


class _Lossy(MemoryFileSystem):
    """Breaks the contract in four ways."""

    async def stat(self, path):
        if path not in self.contents and path:
            raise ValueError("no such key")
        return await super().stat(path)

    async def write(self, path, data):
        await super().write(path, data.rstrip(b"\n"))

    async def rename(self, source, target, signal=None):
        self.contents[target] = self.contents.pop(source)

    async def commit(self, plan, mutations):
        for mutation in mutations:
            if mutation.kind == "write":
                self.contents[mutation.path] = mutation.data


class _OfLossy(CompleteConformance):
    def make(self):
        return _Lossy(atomic=True)


@pytest.mark.parametrize(
    "name",
    [
        "test_an_absent_path_is_file_not_found",
        "test_write_then_read_gives_the_same_bytes",
        "test_rename_never_overwrites",
        "test_commit_takes_nothing_when_one_expectation_fails",
    ],
)
def test_the_suite_fails_an_adapter_that_breaks_the_contract(name):
    with pytest.raises((AssertionError, ValueError, FileNotFoundError)):
        getattr(_OfLossy(), name)()


def test_an_optional_method_that_the_suite_does_not_cover_is_an_error():
    class Forgetful(FileSystemConformance):
        def make(self):
            return MemoryFileSystem()

    with pytest.raises(AssertionError, match="delete"):
        Forgetful().test_every_optional_method_is_covered()
