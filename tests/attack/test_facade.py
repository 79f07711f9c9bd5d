"""What an in-place engine meets through its façade in a tree that holds more than its step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack.doors import NEW, TRIGGER, Entrance, enter


@pytest.fixture
def entrance(tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    (root / TRIGGER).write_text(NEW)
    (root / "bystander.txt").write_text("bystander\n")
    entrance = enter(root)
    yield entrance
    entrance.close()


async def test_a_scope_that_holds_closed_files_breaks_nothing_down(entrance: Entrance):
    """Secrets, and files whose permissions keep them shut, lie in every wide scope: they are left alone."""
    secret = entrance.root / "key.pem"
    secret.write_text("secret\n")
    await entrance.in_facade(lambda facade: facade.write("made.txt", b"made\n"))
    assert (entrance.root / "made.txt").read_bytes() == b"made\n"
    assert secret.read_bytes() == b"secret\n"


async def test_a_closed_file_that_an_engine_makes_is_told_without_its_content(entrance: Entrance):
    entrance.in_place = lambda facade: facade.write("made.pem", b"secret\n")
    result = (await entrance.call("format", paths=[TRIGGER])).result
    assert [(entry.path, entry.kind) for entry in result.written] == [("made.pem", "added")]
    assert [entry.path for entry in result.unreadable] == ["made.pem"]
