"""What an in-place engine meets through its façade in a tree that holds more than its step."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools_lsp.errors import DevToolsError
from devtools_lsp.ports import Facade
from tests.attack.doors import NEW, SPARE, TRIGGER, Entrance, enter


@pytest.fixture
def entrance(tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    (root / TRIGGER).write_text(NEW)
    (root / "bystander.txt").write_text("bystander\n")
    (root / SPARE).parent.mkdir()
    (root / SPARE).write_text(NEW)
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


@pytest.mark.parametrize(
    "act",
    [
        lambda facade: facade.delete("bystander.txt"),
        lambda facade: facade.rename("bystander.txt", "gone.txt"),
        lambda facade: facade.write("bystander.txt", b"x"),
    ],
    ids=["delete", "rename", "write"],
)
async def test_what_may_be_created_says_nothing_about_what_may_go(entrance: Entrance, act):
    """I1: the approver saw one file and where others may come into being; nothing that existed may be touched."""
    with pytest.raises(DevToolsError) as refused:
        await entrance.in_facade(act)
    assert refused.value.reason in ("notAcquired", "exists")
    assert "bystander.txt" not in entrance.questions[-1].targets
    assert (entrance.root / "bystander.txt").read_text() == "bystander\n"


async def test_what_an_engine_made_itself_it_may_move_and_delete(entrance: Entrance):
    async def come_and_go(facade: Facade) -> None:
        await facade.write("a.txt", b"a\n")
        await facade.rename("a.txt", "b.txt")
        await facade.write("b.txt", b"b\n")
        await facade.delete("b.txt")
        await facade.write("a.txt", b"again\n")

    await entrance.in_facade(come_and_go)
    assert (entrance.root / "a.txt").read_bytes() == b"again\n"
    assert not (entrance.root / "b.txt").exists()
