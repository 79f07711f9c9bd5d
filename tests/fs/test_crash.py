"""kill -9 at every step of a commit and of a recovery: never a mixture (I7).

The fault points are those of `devtools_lsp.fs.faults`, and the process that dies is a real one. To see these tests
go red without the journal, make `Journal.write_intent` do nothing (or commit with the plain methods one by one):
`test_without_the_journal_a_kill_leaves_a_mixture` does just that and asserts the mixture.
"""

from __future__ import annotations

import json
import os
import random
import subprocess

import pytest

from devtools_lsp.fs.faults import Fault
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.ports import Mutation

BEFORE = {
    "a.txt": b"a old\n",
    "src/b.py": b"b old\n",
    "src/drop.py": b"drop\n",
    "src/move.py": b"move\n",
    "src/move_edit.py": b"move edit\n",
    "untouched.txt": b"untouched\n",
}
AFTER = {
    "a.txt": b"a new\n",
    "src/b.py": b"b new and longer\n",
    "docs/deep/new.md": b"new\n",
    "lib/moved.py": b"move\n",
    "src/edited.py": b"edited\n",
    "untouched.txt": b"untouched\n",
}


@pytest.fixture
def mutations(sha):
    return [
        Mutation("rename", "lib/moved.py", source="src/move.py", expect=sha(b"move\n")),
        Mutation("rename", "src/edited.py", source="src/move_edit.py", expect=sha(b"move edit\n")),
        Mutation("delete", "src/drop.py", expect=sha(b"drop\n")),
        Mutation("write", "a.txt", AFTER["a.txt"], expect=sha(BEFORE["a.txt"])),
        Mutation("write", "docs/deep/new.md", AFTER["docs/deep/new.md"], expect=None),
        Mutation("write", "src/b.py", AFTER["src/b.py"], expect=sha(BEFORE["src/b.py"])),
        Mutation("write", "src/edited.py", AFTER["src/edited.py"], expect=sha(b"move edit\n")),
    ]


@pytest.fixture(params=["own journal", "git journal", "two mounts", "set-gid directories", "no exchange"])
def place(request, tree, mounted):
    """A tree in each of the situations that change how a file is staged or swapped; and extra request fields."""
    extra = {}
    if request.param == "git journal":
        subprocess.run(["git", "init", "-q", tree.root], check=True)
    if request.param == "two mounts":
        mounted("-t", "tmpfs", "tmpfs", at=tree.root / "src")
    if request.param == "no exchange":
        extra = {"exchange": False}

    def fill():
        for path in tree.files():
            (tree.root / path).unlink()
        for directory in sorted(tree.directories() - {"src"}, reverse=True):
            (tree.root / directory).rmdir()
        tree.fill(BEFORE)
        if request.param == "set-gid directories":
            tree.root.chmod(0o2755)
            (tree.root / "src").chmod(0o2755)

    return fill, extra


def assert_all_old_or_all_new(tree, report, *, plan):
    files = tree.files()
    assert files in (BEFORE, AFTER), {
        path: files.get(path) for path in BEFORE | AFTER if files.get(path) != BEFORE.get(path)
    }
    for found in report.plans:
        assert found.plan == plan
        assert found.outcome == ("new" if files == AFTER else "old")
        assert (found.kept, found.refused, found.failed) == ((), (), {})
    assert tree.litter() == []
    return "new" if files == AFTER else "old"


def test_kill_at_every_step_of_a_commit(tree, place, mutations, crasher, recover):
    """I7: all old or all new after a kill at any of the steps, whatever way the files are staged."""
    fill, extra = place
    outcomes = []
    for count in range(1, 200):
        fill()
        request = {"do": "commit", "root": tree.root, "plan": f"p{count}", "mutations": list(mutations)}
        status = crasher.run(**request, fault=f"journal:*#{count}:kill", **extra)
        outcomes.append(assert_all_old_or_all_new(tree, recover(), plan=f"p{count}"))
        assert recover().clean
        if status == 0:
            break
        if outcomes[-1] == "old":
            assert "docs" not in tree.directories()
    else:
        pytest.fail("the commit never came to its end")
    # Every step was passed: the early kills leave the old state, the last one comes after the marker.
    assert len(outcomes) > 25
    assert outcomes[0] == "old"
    assert outcomes[-2:] == ["new", "new"]
    assert outcomes.index("new") == len(outcomes) - 2


@pytest.mark.parametrize(
    "last_placed",
    [pytest.param(count, marks=[] if count == 6 else pytest.mark.full) for count in range(1, 9)],
)
def test_kill_at_every_step_of_a_recovery(tree, place, last_placed, mutations, crasher, recover):
    """I7: a recovery that dies, and the one after it that dies later, change nothing about the outcome."""
    fill, extra = place
    for count in range(1, 60):
        fill()
        request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": list(mutations)}
        assert crasher.run(**request, fault=f"journal:placed#{last_placed}:kill", **extra) == -9
        status = crasher.run(do="recover", root=tree.root, fault=f"recovery:*#{count}:kill", **extra)
        if status != 0:
            crasher.run(do="recover", root=tree.root, fault=f"recovery:*#{count + 1}:kill", **extra)
        assert assert_all_old_or_all_new(tree, recover(), plan="p") == "old"
        if status == 0:
            break
    else:
        pytest.fail("the recovery never came to its end")


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(lambda sha: Mutation("write", "a.txt", b"new\n", expect=sha(b"a old\n")), id="replace"),
        pytest.param(lambda sha: Mutation("write", "x/y/new.txt", b"new\n", expect=None), id="create"),
        pytest.param(lambda sha: Mutation("delete", "a.txt", expect=sha(b"a old\n")), id="delete"),
    ],
)
def test_kill_at_every_step_of_a_single_change(tree, mutation, sha, crasher, recover):
    """I7: one file alone is swapped without a durable record, and is old or new nevertheless."""
    change = mutation(sha)
    after = dict(BEFORE)
    if change.kind == "delete":
        del after[change.path]
    else:
        after[change.path] = change.data
    for count in range(1, 40):
        for path in tree.files():
            (tree.root / path).unlink()
        for directory in sorted(tree.directories(), reverse=True):
            (tree.root / directory).rmdir()
        tree.fill(BEFORE)
        request = {"do": "commit", "root": tree.root, "plan": f"p{count}", "mutations": [change]}
        status = crasher.run(**request, fault=f"journal:*#{count}:kill")
        report = recover()
        assert tree.files() in (BEFORE, after)
        assert tree.litter() == []
        for plan in report.plans:
            assert plan.outcome == ("new" if tree.files() == after else "old")
        if tree.files() == BEFORE:
            assert "x" not in tree.directories()
        if status == 0:
            break
    else:
        pytest.fail("the commit never came to its end")
    assert tree.files() == after


async def test_what_recovery_found_new_can_still_be_undone(tree, sha, crasher, opened):
    tree.fill(BEFORE)
    change = Mutation("write", "a.txt", b"new\n", expect=sha(b"a old\n"))
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": [change]}
    assert crasher.run(**request, fault="journal:placed:kill") == -9
    handle = opened()
    assert [(plan.plan, plan.outcome) for plan in handle.recovery.plans] == [("p", "new")]
    undo = await handle.file_system.undo_plan()
    assert [(mutation.path, mutation.data) for mutation in undo.mutations] == [("a.txt", b"a old\n")]


async def test_a_repository_that_is_made_meanwhile_hides_no_journal(tree, tool, mutations, sha, crasher, opened):
    """The journal moves into a git directory as soon as there is one; what it left in its old place counts on."""
    tree.fill({**BEFORE, "one.txt": b"one\n"})
    single = Mutation("write", "one.txt", b"two\n", expect=sha(b"one\n"))
    assert crasher.run(do="commit", root=tree.root, plan="q", mutations=[single]) == 0
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": list(mutations)}
    assert crasher.run(**request, fault="journal:placed#3:kill") == -9
    subprocess.run([tool("git"), "init", "-q", tree.root], check=True)
    handle = opened()
    assert [(plan.plan, plan.outcome) for plan in handle.recovery.plans] == [("p", "old")]
    assert tree.files() == {**BEFORE, "one.txt": b"two\n"}
    assert tree.litter() == []
    assert (await handle.file_system.undo_plan()).plan == "q"
    assert list((tree.root / ".devtools").iterdir()) == [tree.root / ".devtools/.gitignore"]
    handle.close()
    assert opened().recovery.clean


def test_without_the_journal_a_kill_leaves_a_mixture(tree, mutations, crasher, opened):
    """The control of this file: with the record thrown away before recovery the same kill is a mixture."""
    tree.fill(BEFORE)
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": list(mutations)}
    assert crasher.run(**request, fault="journal:placed#3:kill") == -9
    for intent in tree.root.glob(".devtools/*/*.intent"):
        intent.unlink()
    opened()
    assert tree.files() not in (BEFORE, AFTER)


def test_a_person_who_edits_before_recovery_keeps_the_edit(tree, mutations, crasher, opened):
    """Recovery takes back what is still ours, names the rest and does not touch it."""
    tree.fill(BEFORE)
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": list(mutations)}
    assert crasher.run(**request, fault="journal:commit:kill") == -9
    assert tree.files() == AFTER
    (tree.root / "a.txt").write_bytes(b"a person's\n")
    (tree.root / "src/drop.py").write_bytes(b"made anew\n")
    (tree.root / "docs/deep/new.md").unlink()
    report = opened().recovery
    assert report.plans[0].outcome == "old"
    assert report.plans[0].kept == ("a.txt", "src/drop.py")
    assert tree.files() == {**BEFORE, "a.txt": b"a person's\n", "src/drop.py": b"made anew\n"}
    assert any("kept because someone changed them since: a.txt, src/drop.py" in line for line in report.describe())


def test_a_person_who_edits_in_place_before_recovery_keeps_the_edit(tree, mutations, crasher, opened):
    """The inode is ours still, its content is not: a person's editor that writes in place counts as an edit."""
    tree.fill(BEFORE)
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": list(mutations)}
    assert crasher.run(**request, fault="journal:commit:kill") == -9
    with (tree.root / "a.txt").open("ab") as file:
        file.write(b"appended\n")
    assert opened().recovery.plans[0].kept == ("a.txt",)
    assert tree.files()["a.txt"] == b"a new\nappended\n"


def test_recovery_asks_the_policy_again(tree, mutations, crasher, opened):
    """A forged record is no way around the policy: what it closes is named and not touched."""
    tree.fill(BEFORE)
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": list(mutations)}
    assert crasher.run(**request, fault="journal:commit:kill") == -9
    report = opened(deny_write=["src/**"]).recovery
    assert set(report.plans[0].refused) == {path for path in {*BEFORE, *AFTER} if path.startswith("src/")}
    assert tree.files()["a.txt"] == BEFORE["a.txt"]
    assert tree.files()["src/b.py"] == AFTER["src/b.py"]


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", ".GIT/config", "../outside.txt", "/etc/x", "sub/../../outside.txt", "link/x", ""]
)
def test_a_forged_record_writes_nowhere_it_should_not(tree, path, mutations, crasher, opened, tmp_path):
    """Paths that the gauntlet would refuse are refused to a record, too."""
    (tmp_path / "outside").mkdir()
    (tree.root / "link").symlink_to(tmp_path / "outside")
    tree.fill(BEFORE)
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": list(mutations)}
    assert crasher.run(**request, fault="journal:commit:kill") == -9
    [intent] = tree.root.glob(".devtools/*/*.intent")
    intent.write_bytes(intent.read_bytes().replace(b'"src/drop.py"', f'"{path}"'.encode()))
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and "root" not in file.parts}
    report = opened().recovery
    assert path in report.plans[0].refused
    after = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and "root" not in file.parts}
    assert after == before
    assert not (tmp_path / "outside.txt").exists()
    assert not (tree.root / ".git").exists()
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("forged", ["link", "other content", "fifo", "nothing"])
def test_a_before_image_that_is_none_is_not_put_back(tree, forged, mutations, crasher, opened, tmp_path):
    """Whatever stands where the old content was kept: only that content, or that file, goes back into the tree."""
    tree.fill(BEFORE)
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": list(mutations)}
    assert crasher.run(**request, fault="journal:commit:kill") == -9
    [intent] = tree.root.glob(".devtools/*/*.intent")
    record = json.loads(intent.read_bytes())
    [number] = [entry["n"] for entry in record["entries"] if entry["path"] == "a.txt"]
    image = intent.with_name(f"{record['id']}.old.{number}")
    image.unlink()
    {
        "link": lambda: image.symlink_to("/etc/passwd"),
        "other content": lambda: image.write_bytes(b"forged"),
        "fifo": lambda: os.mkfifo(image),
        "nothing": lambda: None,
    }[forged]()
    report = opened().recovery
    assert report.plans[0].outcome == "stuck"
    assert list(report.plans[0].failed) == ["a.txt"]
    assert tree.files() == {**BEFORE, "a.txt": AFTER["a.txt"]}
    assert not (tree.root / "a.txt").is_symlink()


def test_forged_strays_remove_nothing(tree, mutations, crasher, opened):
    tree.fill(BEFORE)
    (tree.root / ".vscode").mkdir()
    (tree.root / "empty").mkdir()
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": list(mutations)}
    assert crasher.run(**request, fault="journal:stage:kill") == -9
    [session] = [path for path in (tree.root / ".devtools").iterdir() if path.is_dir()]
    above = "../" + tree.root.name
    forged = {
        "temporaries": [["", "a.txt"], ["src", "b.py"], [".vscode", ""], [above, "a.txt"], ["src", "../a.txt"]],
        "made": [".vscode", "src", f"{above}/empty", "", "."],
        "emptied": [["empty", (tree.root / "empty").stat().st_ino]],
    }
    (session / "01796077003709934480-ed064711.strays").write_text(json.dumps(forged))
    opened()
    assert tree.files() == BEFORE
    assert tree.directories() == {".vscode", "src", "empty"}


def test_without_a_policy_what_was_interrupted_is_left_for_a_start_that_has_one(tree, mutations, crasher, opened):
    tree.fill(BEFORE)
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": list(mutations)}
    assert crasher.run(**request, fault="journal:placed#3:kill") == -9
    half = tree.files()
    without = LocalFileSystem(str(tree.root))
    report = without.recover_now()
    without.close()
    assert tree.files() == half
    assert "no policy" in report.describe()[0]
    assert opened().recovery.plans[0].outcome == "old"
    assert tree.files() == BEFORE


@pytest.mark.parametrize("damage", [b"", b"{", b'{"format":1}', b"\0" * 100, b'{"format":2,"id":"x"}'])
def test_a_damaged_record_is_no_record(tree, damage, mutations, crasher, opened):
    """A power cut can leave a record torn only while nothing of it has begun."""
    tree.fill(BEFORE)
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": list(mutations)}
    assert crasher.run(**request, fault="journal:prepared:kill") == -9
    [intent] = tree.root.glob(".devtools/*/*.intent")
    intent.write_bytes(damage)
    assert opened().recovery.clean
    assert tree.files() == BEFORE
    assert tree.litter() == []


def test_a_living_session_is_left_alone(tree, mutations, crasher, opened):
    """Two processes on one root: the second one does not take the first one's transactions for abandoned."""
    tree.fill(BEFORE)
    first = opened()
    first.file_system.commit_now("p", mutations, make_parents=True)
    second = opened()
    assert second.recovery.clean
    assert second.file_system.journal.records() == []
    first.close()
    third = opened()
    assert [record.plan for record in third.file_system.journal.records()] == ["p"]


def test_junk_in_the_journal_stops_no_start(tree, mutations, crasher, opened):
    """Whatever lies there, the daemon starts, settles what it can, and says what it could not look at."""
    tree.fill(BEFORE)
    request = {"do": "commit", "root": tree.root, "plan": "p", "mutations": list(mutations)}
    assert crasher.run(**request, fault="journal:placed#2:kill") == -9
    journal = tree.root / ".devtools"
    [session] = [path for path in journal.iterdir() if path.is_dir()]
    (session / "a directory").mkdir()
    (session / "a file").write_bytes(b"junk")
    (journal / "0123456789abcdef").write_bytes(b"no session")
    (journal / "fedcba9876543210").symlink_to(tree.root)
    (journal / "0000000000000000").mkdir()
    unborn = journal / "1111111111111111.new"
    unborn.mkdir()
    os.utime(unborn, (1, 1))
    (journal / "2222222222222222.new").mkdir()
    handle = opened()
    assert [plan.outcome for plan in handle.recovery.plans] == ["old"]
    assert tree.files() == BEFORE
    assert not unborn.exists()
    assert (journal / "2222222222222222.new").exists()
    assert not (journal / "0000000000000000").exists()
    handle.close()
    assert opened().recovery.clean


def test_a_session_that_cannot_be_opened_is_named(tree, opened):
    if os.geteuid() == 0:
        (tree.root / ".devtools").mkdir(mode=0o700)
        loop = tree.root / ".devtools" / "0123456789abcdef"
        loop.mkdir()
        (loop / "lock").mkdir()  # Where a file has to be: nothing that permissions could forbid to root.
    else:
        (tree.root / ".devtools" / "0123456789abcdef").mkdir(parents=True, mode=0)
    report = opened().recovery
    assert not report.clean
    assert "0123456789abcdef" in report.describe()[0]


@pytest.mark.parametrize("delays", [pytest.param(6, id="short"), pytest.param(100, marks=pytest.mark.full)])
def test_kills_during_a_big_write_leave_old_or_new(tree, sha, crasher, recover, delays):
    """P48: 7 MB over 1 KB, killed at random moments; the target is one of the two and no temporary stays."""
    random.seed(48)
    old, new = b"old\n" * 256, b"new and much longer\n" * 350_000
    outcomes = set()
    for count in range(delays):
        tree.fill({"f.txt": old})
        change = Mutation("write", "f.txt", new, expect=sha(old))
        request = {"do": "commit", "root": tree.root, "plan": f"p{count}", "mutations": [change]}
        crasher.run(**request, kill_after_s=random.uniform(0, 0.08))
        recover()
        assert tree.files() in ({"f.txt": old}, {"f.txt": new})
        assert tree.litter() == []
        outcomes.add(tree.files()["f.txt"] == new)
    assert False in outcomes


@pytest.mark.full
def test_random_kills_over_many_files(tree, sha, crasher, recover):
    """I7, without knowing where: 300 kills at random moments of commits over 30 files."""
    random.seed(7)
    names = [f"d{number % 4}/f{number}.txt" for number in range(30)]
    old = dict.fromkeys(names, b"0" * 5000)
    tree.fill(old)
    killed = mixed = 0
    for count in range(300):
        new = {name: bytes(str(count), "ascii") * 1500 for name in names}
        mutations = [Mutation("write", name, new[name], expect=sha(old[name])) for name in names]
        request = {"do": "commit", "root": tree.root, "plan": f"p{count}", "mutations": mutations}
        killed += crasher.run(**request, kill_after_s=random.uniform(0, 0.03)) != 0
        recover()
        files = tree.files()
        mixed += files not in (old, new)
        old = files
    assert mixed == 0
    assert killed > 100


@pytest.mark.parametrize("text", ["journal:nowhere:kill", "journal:place:explode", "journal:place", "x#1:kill"])
def test_a_misspelt_fault_is_refused(text):
    with pytest.raises(ValueError, match="expected"):
        Fault(text)
