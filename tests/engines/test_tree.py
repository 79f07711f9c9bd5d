"""The project's files and what happens to them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.engines import tree as tree_module
from devtools_lsp.engines.spec import spec_from_table
from devtools_lsp.engines.tree import FileEvent, ProjectTree


async def swept(root: Path) -> ProjectTree:
    tree = ProjectTree(root)
    await tree.sweep()
    return tree


async def test_what_is_not_part_of_a_project(tmp_path: Path) -> None:
    for path in (
        "a.py",
        "sub/b.py",
        ".git/config",
        "node_modules/x/y.js",
        "env/pyvenv.cfg",
        "env/lib/z.py",
        ".ruff.toml",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    tree = await swept(tmp_path)
    assert sorted(tree.files) == [".ruff.toml", "a.py", "sub/b.py"]
    assert tree.with_extensions(frozenset({"py"})) == ["a.py", "sub/b.py"]


async def test_a_sweep_tells_what_came_changed_and_went(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("1")
    tree = await swept(tmp_path)
    assert tree.events_since(0) == []
    (tmp_path / "a").write_text("22")
    (tmp_path / "b").unlink()
    (tmp_path / "new").mkdir()
    (tmp_path / "new/c").write_text("")
    await tree.sweep()
    assert tree.events_since(0) == [
        FileEvent("new", "created"),
        FileEvent("b", "deleted"),
        FileEvent("new/c", "created"),
        FileEvent("a", "changed"),
    ]
    revision = tree.revision
    await tree.sweep()
    assert tree.events_since(revision) == []


async def test_what_was_announced_is_not_told_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    tree = await swept(tmp_path)
    (tmp_path / "a").write_text("22")
    (tmp_path / "new").mkdir()
    (tmp_path / "new/b").write_text("1")
    tree.note([FileEvent("a", "changed"), FileEvent("new/b", "created"), FileEvent("new", "created")])
    await tree.sweep()
    assert tree.events_since(0) == [
        FileEvent("a", "changed"),
        FileEvent("new", "created"),
        FileEvent("new/b", "created"),
    ]


async def test_an_announcement_is_checked_against_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    tree = await swept(tmp_path)
    tree.note([FileEvent("a", "deleted"), FileEvent("never", "created")])
    assert tree.events_since(0) == []
    (tmp_path / "a").unlink()
    tree.note([FileEvent("a", "changed")])
    assert tree.events_since(0) == [FileEvent("a", "deleted")]


async def test_a_sweep_that_began_before_is_not_enough(tmp_path: Path) -> None:
    tree = await swept(tmp_path)
    first = asyncio.create_task(tree.sweep())
    await asyncio.sleep(0)
    (tmp_path / "late").write_text("")
    await tree.sweep()
    await first
    assert "late" in tree.files


async def test_too_many_events_are_not_told_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "MAX_EVENTS_KEPT", 3)
    tree = await swept(tmp_path)
    for number in range(5):
        (tmp_path / f"f{number}").write_text("")
    await tree.sweep()
    assert tree.events_since(0) is None
    assert tree.events_since(tree.revision - 3) is not None


async def test_a_file_that_changes_again_and_again_is_one_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks seldom is not told that too much happened, and nothing is kept of every edit."""
    monkeypatch.setattr(tree_module, "MAX_EVENTS_KEPT", 4)
    (tmp_path / "a").write_text("")
    tree = await swept(tmp_path)
    for number in range(1, 8):
        (tmp_path / "a").write_text("x" * number)
        tree.note([FileEvent("a", "changed")])
        if number == 4:
            asked = tree.revision
    assert tree.events_since(0) == [FileEvent("a", "changed")]
    assert tree.events_since(asked) == [FileEvent("a", "changed")]
    assert tree.events_since(tree.revision) == []
    # What it was before and after matters: a new file is told as one, whatever happened to it then.
    (tmp_path / "a").unlink()
    tree.note([FileEvent("a", "deleted")])
    (tmp_path / "a").write_text("new")
    tree.note([FileEvent("a", "created")])
    born = tree.revision
    for number in range(5):
        (tmp_path / "a").write_text("y" * number)
        tree.note([FileEvent("a", "changed")])
    kinds = ["deleted", "created", "changed"]
    assert tree.events_since(0) == [FileEvent("a", kind) for kind in kinds]  # type: ignore[arg-type]
    assert tree.events_since(born) == [FileEvent("a", "changed")]
    # Others push it out, and a later change of it is told like any other.
    for name in ("b", "c", "d", "e"):
        (tmp_path / name).write_text("")
        tree.note([FileEvent(name, "created")])
    assert tree.events_since(born) is None
    (tmp_path / "a").write_text("last one")
    tree.note([FileEvent("a", "changed")])
    assert tree.events_since(tree.revision - 1) == [FileEvent("a", "changed")]


async def test_only_text_is_read(tmp_path: Path) -> None:
    tree = await swept(tmp_path)
    (tmp_path / "crlf").write_bytes(b"\xef\xbb\xbfa\r\nb")
    (tmp_path / "latin").write_bytes(b"\xe9")
    assert tree.read("crlf") == "a\nb"
    assert tree.read("latin") is None
    assert tree.read("absent") is None
    assert tree.read(".") is None


async def test_a_root_that_vanished_is_empty(tmp_path: Path) -> None:
    tree = await swept(tmp_path / "gone")
    assert tree.files == {}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A project of more than four files is too large."""
    monkeypatch.setattr(tree_module, "MAX_FILES", 4)


@pytest.mark.usefixtures("small")
async def test_what_lies_beyond_the_limit_is_said_and_what_was_known_is_never_gone(tmp_path: Path) -> None:
    for path in ("a.py", "b.py", "deep/er/c.py", "deep/d.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    tree = await swept(tmp_path)
    assert tree.limited is None
    (tmp_path / "new.py").write_text("")
    await tree.sweep()
    assert tree.events_since(0) == [FileEvent("new.py", "created")]
    assert sorted(tree.files) == ["a.py", "b.py", "deep/d.py", "deep/er/c.py", "new.py"]
    assert tree.limited is not None
    assert "more than 4 files" in tree.limited
    (tmp_path / "deep/er/c.py").unlink()
    (tmp_path / "new.py").unlink()
    (tmp_path / "b.py").unlink()
    await tree.sweep()
    assert {event.path for event in tree.events_since(1) or ()} == {"b.py", "new.py", "deep/er/c.py"}
    assert tree.limited is None


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("preset", ["ty", "mypy"])
async def test_a_checker_of_a_project_too_large_says_what_it_did_not_look_at(
    make_scene: Any, tool: Any, preset: str
) -> None:
    tool({"ty": "ty", "mypy": "dmypy"}[preset])
    files = {"lib.py": "def f() -> int:\n    return 1\n", **{f"m{n}.py": "from lib import f\n" for n in range(9)}}
    scene = make_scene(spec_from_table(preset, {"preset": preset}), files=files)
    verdict = await scene.compare(changes={"lib.py": "def g() -> int:\n    return 1\n"})
    assert any("more than 4 files" in reason for reason in verdict.pending.values()), verdict.pending
    assert any("more than 4 files" in words for words in scene.registry.skipped())
    removed = await scene.compare(changes={"lib.py": None})
    assert removed.pending
