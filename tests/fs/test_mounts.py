"""What is remembered of mounts, and what makes it forgotten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devtools_lsp.fs import mounts
from devtools_lsp.fs.mounts import Mounts
from devtools_lsp.fs.walk import mount_of


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that the system was asked about."""
    found: list[int] = []

    def asking(descriptor: int) -> object:
        found.append(descriptor)
        return mount_of(descriptor)

    monkeypatch.setattr(mounts, "mount_of", asking)
    return found


def look(known: Mounts, directory: Path) -> object:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        return known.of("sub", descriptor)
    finally:
        os.close(descriptor)


def test_a_directory_is_asked_about_once(tmp_path: Path, asked: list[int]):
    known = Mounts()
    first = look(known, tmp_path)
    assert [look(known, tmp_path) for _ in range(5)] == [first] * 5
    assert len(asked) == 1
    known.close()
    known.close()


def test_another_directory_of_that_name_is_another(tmp_path: Path, asked: list[int]):
    known = Mounts()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    look(known, tmp_path / "a")
    look(known, tmp_path / "b")
    assert len(asked) == 2
    known.close()


def test_a_mount_that_comes_is_noticed(tmp_path: Path, mounted, asked: list[int]):
    """A bind mount shows the very directory that was there, under the same name."""
    known = Mounts()
    sub = tmp_path / "sub"
    sub.mkdir()
    before = look(known, sub)
    mounted("--bind", str(sub), at=sub)
    assert look(known, sub) != before
    known.close()


def test_without_a_table_every_question_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[int]):
    def missing(*_arguments: object) -> int:
        raise FileNotFoundError

    with monkeypatch.context() as without:
        without.setattr(mounts.os, "open", missing)
        known = Mounts()
    look(known, tmp_path)
    look(known, tmp_path)
    assert len(asked) == 2
    known.close()
