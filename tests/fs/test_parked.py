"""What a recovery may not put back is kept: named at every start, and undone when the way is free again."""

from __future__ import annotations

import os
import re
import time

import pytest

from devtools_lsp.core.workspace import sha256
from devtools_lsp.fs.journal import Retention
from devtools_lsp.fs.recovery import parked_plans
from devtools_lsp.ports import Mutation

BEFORE = {"plain.txt": b"plain\n", "src/edit.py": b"edit\n", "src/drop.py": b"drop\n", "src/move.py": b"move\n"}
AFTER = {"plain.txt": b"PLAIN\n", "src/edit.py": b"EDIT\n", "lib/moved.py": b"move\n", "src/made.py": b"made\n"}


def several():
    return [
        Mutation("rename", "lib/moved.py", source="src/move.py", expect=sha256(b"move\n")),
        Mutation("delete", "src/drop.py", expect=sha256(b"drop\n")),
        Mutation("write", "plain.txt", b"PLAIN\n", expect=sha256(b"plain\n")),
        Mutation("write", "src/edit.py", b"EDIT\n", expect=sha256(b"edit\n")),
        Mutation("write", "src/made.py", b"made\n", expect=None),
    ]


@pytest.fixture
def interrupted(tree, crasher):
    """A tree in which all of the plan `p` landed, but for its commit marker."""
    tree.fill(BEFORE)
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": several()}
    assert crasher.run(**request, fault="journal:commit:kill") == -9
    assert tree.files() == AFTER
    return tree


async def take_back(handle, plan=None, by="u"):
    undo = await handle.file_system.undo_plan(plan)
    await handle.file_system.mark_undone(undo.plan, by)
    await handle.file_system.commit_witnessed(by, undo.mutations, make_parents=True)
    return undo


async def test_what_the_policy_closed_meanwhile_is_kept_and_undone_later(interrupted, opened):
    handle = opened(deny_write=["src/**"])
    [plan] = handle.recovery.plans
    assert (plan.outcome, plan.refused) == ("old", ("src/drop.py", "src/edit.py", "src/made.py", "src/move.py"))
    assert interrupted.files() == {"plain.txt": b"plain\n", "src/edit.py": b"EDIT\n", "src/made.py": b"made\n"}
    handle.close()
    again = opened(deny_write=["src/**"])
    assert again.recovery.plans == ()
    assert list(again.recovery.parked[0].paths) == ["src/drop.py", "src/edit.py", "src/made.py", "src/move.py"]
    again.close()
    free = opened()
    assert interrupted.files()["src/edit.py"] == b"EDIT\n"  # A start that comes later changes nothing by itself.
    undo = await take_back(free)
    assert (undo.plan, undo.conflicts) == ("p", {})
    assert interrupted.files() == BEFORE
    assert interrupted.litter() == []
    free.close()
    assert opened().recovery.parked == ()


async def test_what_a_link_hides_is_kept_and_undone_later(interrupted, opened, tmp_path):
    """Somebody moved the directory away and put a link in its place before the next start."""
    (tmp_path / "outside").mkdir()
    src = interrupted.root / "src"
    src.rename(tmp_path / "away")
    src.symlink_to(tmp_path / "outside")
    handle = opened()
    [plan] = handle.recovery.plans
    assert plan.outcome == "old"
    assert interrupted.files() == {"plain.txt": b"plain\n"}
    assert list((tmp_path / "outside").iterdir()) == []
    undo = await handle.file_system.undo_plan("p")
    assert undo.mutations == ()
    assert all("link" in why for why in undo.conflicts.values()), undo.conflicts
    src.unlink()
    (tmp_path / "away").rename(src)
    assert (await take_back(handle)).conflicts == {}
    assert interrupted.files() == BEFORE


async def test_every_start_says_where_the_old_contents_are(interrupted, opened):
    for _ in range(2):
        handle = opened(deny_write=["src/**"])
        said = "\n".join(handle.recovery.describe())
        assert "devtools-lsp undo p" in said
        assert "'src/**'" in said or "deny_write" in said
        places = dict(re.findall(r"(src/\w+\.py)[^\n]*? is kept in (\S+)", said))
        assert {path: (interrupted.root / place).read_bytes() for path, place in places.items()} == {
            path: data for path, data in BEFORE.items() if path.startswith("src/")
        }
        handle.close()


async def test_it_can_be_looked_up_without_taking_anything_over(interrupted, opened):
    """For `doctor`, which runs beside a daemon or without one."""
    assert parked_plans(str(interrupted.root)) == []
    handle = opened(deny_write=["src/**"])
    known = list(handle.recovery.parked)
    assert parked_plans(str(interrupted.root)) == known
    handle.close()
    assert parked_plans(str(interrupted.root)) == known
    await take_back(opened())
    assert parked_plans(str(interrupted.root)) == []


async def test_a_root_without_a_journal_has_nothing_parked(tree):
    assert parked_plans(str(tree.root)) == []
    assert list(tree.root.iterdir()) == []


async def test_what_a_plan_had_not_done_yet_is_not_kept(tree, crasher, opened):
    """Killed before the first file was placed: the policy closes all, and nothing is to be had back."""
    tree.fill(BEFORE)
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": several()}
    assert crasher.run(**request, fault="journal:place:kill") == -9
    handle = opened(deny_write=["**"])
    assert handle.recovery.plans[0].outcome == "old"
    assert handle.recovery.parked == ()
    assert handle.file_system.journal.records() == []
    assert tree.files() == BEFORE


@pytest.mark.parametrize("change", ["replace", "delete", "create"])
@pytest.mark.parametrize("obstacle", ["policy", "link"])
async def test_a_single_change_is_kept_too(tree, crasher, opened, tmp_path, change, obstacle):
    tree.fill(BEFORE)
    path, mutation = {
        "replace": ("src/edit.py", Mutation("write", "src/edit.py", b"EDIT\n", expect=sha256(b"edit\n"))),
        "delete": ("src/drop.py", Mutation("delete", "src/drop.py", expect=sha256(b"drop\n"))),
        "create": ("src/made.py", Mutation("write", "src/made.py", b"made\n", expect=None)),
    }[change]
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": [mutation]}
    assert crasher.run(**request, fault="journal:commit:kill") == -9
    after = tree.files()
    if obstacle == "link":
        (tree.root / "src").rename(tmp_path / "away")
        (tree.root / "src").symlink_to(tmp_path)
    handle = opened(deny_write=["src/**"] if obstacle == "policy" else [])
    assert list(handle.recovery.parked[0].paths) == [path]
    handle.close()
    if obstacle == "link":
        (tree.root / "src").unlink()
        (tmp_path / "away").rename(tree.root / "src")
    assert tree.files() == after
    assert (await take_back(opened())).conflicts == {}
    assert tree.files() == BEFORE


async def test_what_a_person_wrote_at_the_last_moment_is_what_comes_back(tree, crasher, opened):
    """The swap took out what a person had just written, and the process died before it saw: theirs is kept."""
    tree.fill(BEFORE)
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": several()}
    assert crasher.run(**request, fault="journal:commit:kill") == -9
    [old] = [image for image in tree.root.glob(".devtools/*/*.old.*") if image.read_bytes() == b"edit\n"]
    # As it is between the swap and the comparison: what came out has the staged file's name.
    staged = old.with_name(old.name.replace(".old.", ".new."))
    staged.write_bytes(b"a person's\n")
    handle = opened(deny_write=["src/**"])
    [place] = [place for path, place in handle.recovery.parked[0].paths.items() if path == "src/edit.py"]
    assert (tree.root / place).read_bytes() == b"a person's\n"
    handle.close()
    await take_back(opened())
    assert tree.files() == {**BEFORE, "src/edit.py": b"a person's\n"}


async def test_what_a_person_changed_meanwhile_stays_and_what_it_replaced_is_kept(interrupted, opened):
    """Their edit wins; the content from before the plan is not thrown away for it."""
    (interrupted.root / "plain.txt").write_bytes(b"PLAIN\nand more\n")
    handle = opened()
    assert handle.recovery.plans[0].kept == ("plain.txt",)
    undo = await handle.file_system.undo_plan("p")
    assert undo.conflicts == {"plain.txt": "someone changed it since"}
    assert any(image.read_bytes() == b"plain\n" for image in interrupted.root.glob(".devtools/*/*.old.*"))
    (interrupted.root / "plain.txt").write_bytes(b"PLAIN\n")
    await take_back(handle)
    assert interrupted.files() == BEFORE


async def test_it_is_kept_for_the_days_of_the_retention_whatever_else_lands(interrupted, opened, monkeypatch):
    """From when a person could first read of it; neither later plans nor their size push it out."""
    retention = Retention(plans=2, age_s=1000.0, size=100)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 5000.0)
    handle = opened(deny_write=["src/**"], retention=retention)
    assert len(handle.recovery.parked) == 1
    for number in range(40):
        data = b"%d" % number * 50
        await handle.file_system.commit_witnessed(
            f"q{number}", [Mutation("write", "plain.txt", data)], make_parents=True
        )
    handle.close()
    monkeypatch.setattr(time, "time", lambda: now + 5500.0)
    handle = opened(deny_write=["src/**"], retention=retention)
    assert len(handle.recovery.parked) == 1
    handle.close()
    monkeypatch.setattr(time, "time", lambda: now + 6500.0)
    handle = opened(deny_write=["src/**"], retention=retention)
    assert handle.recovery.parked == ()
    handle.close()
    images = [image for image in interrupted.root.glob(".devtools/*/*.old.*") if image.read_bytes() == b"edit\n"]
    assert images == []


@pytest.mark.parametrize("count", range(1, 8))
async def test_a_recovery_that_dies_keeps_it_all_the_same(interrupted, crasher, opened, count):
    os.rename(interrupted.root / "src", interrupted.root / "away")
    (interrupted.root / "src").symlink_to("away")
    crasher.run(do="recover", root=interrupted.root, fault=f"recovery:*#{count}:kill")
    crasher.run(do="recover", root=interrupted.root, fault=f"recovery:*#{count}:kill")
    (interrupted.root / "src").unlink()
    os.rename(interrupted.root / "away", interrupted.root / "src")
    handle = opened()
    if handle.file_system.journal.records():
        await take_back(handle)
    assert interrupted.files() == BEFORE
    assert interrupted.litter() == []
