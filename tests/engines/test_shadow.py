"""The private copy: any state of the workspace, and nothing of it ever reaches the project."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools_lsp.engines.scratch import remove_scratch, scratch_directory
from devtools_lsp.engines.shadow import Shadow
from devtools_lsp.engines.tree import ProjectTree


@pytest.fixture
def shadow() -> Iterator[Shadow]:
    made = Shadow("test")
    yield made
    made.close()


async def test_states_are_laid_and_taken_away(shadow: Shadow, tmp_path: Path) -> None:
    for path, text in {"a.py": "a", "sub/b.py": "b", ".env": "secret", "key.pem": "secret"}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "x.js").write_text("x")
    tree = ProjectTree(tmp_path)
    await tree.sweep()
    shadow.lay(tree, {"a.py": "changed", "new/c.py": "c"}, {"sub/b.py"})
    assert shadow.read("a.py") == b"changed"
    assert shadow.read("new/c.py") == b"c"
    assert shadow.read("sub/b.py") is None
    assert shadow.read(".env") is None
    assert shadow.read("key.pem") is None
    assert shadow.read("node_modules/x.js") == b"x"
    shadow.lay(tree, {}, ())
    assert shadow.read("a.py") == b"a"
    assert shadow.read("sub/b.py") == b"b"
    assert shadow.read("new/c.py") is None
    assert (tmp_path / "a.py").read_text() == "a"


async def test_what_did_not_change_is_not_written_again(shadow: Shadow, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a")
    tree = ProjectTree(tmp_path)
    await tree.sweep()
    shadow.lay(tree, {"b.py": "b"}, ())
    before = {name: (shadow.root / name).stat().st_ino for name in ("a.py", "b.py")}
    shadow.lay(tree, {"b.py": "b"}, ())
    assert {name: (shadow.root / name).stat().st_ino for name in ("a.py", "b.py")} == before
    (shadow.root / "a.py").write_text("a tool wrote here")
    shadow.touched(["a.py"])
    shadow.lay(tree, {}, ())
    assert shadow.read("a.py") == b"a"
    assert (tmp_path / "a.py").read_text() == "a"


def test_only_this_user_may_enter_and_nothing_stays(shadow: Shadow) -> None:
    assert shadow.root.stat().st_mode & 0o077 == 0
    shadow.close()
    assert not shadow.root.exists()


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = subprocess.Popen(["true"])
    gone.wait()
    kept = tmp_path / "node_modules"
    kept.mkdir()
    (kept / "x").write_text("")
    abandoned = tmp_path / f"devtools-lsp-engine-{gone.pid}-shadow-x"
    abandoned.mkdir()
    (abandoned / "node_modules").symlink_to(kept)
    ours = tmp_path / f"devtools-lsp-engine-{os.getpid()}-other"
    ours.mkdir()
    made = scratch_directory("test")
    assert not abandoned.exists()
    assert ours.exists()
    assert (kept / "x").exists()
    remove_scratch(made)
    assert not made.exists()
