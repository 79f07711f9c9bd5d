"""Diffs as git writes them, over names and lines that are hard to read, and ours as git reads them."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools_lsp.core.changeset import FileChange
from devtools_lsp.core.hunks import hunks_between, render_unified
from devtools_lsp.core.patch import apply_operations, apply_to_texts, parse_patch
from devtools_lsp.core.workspace import FileText

NAMES = [
    "plain.txt", "b/with blank.txt", "x b/y.txt", "grön/ü.txt", 'q"uote.txt', "tab\tname", "b/plain.txt", "a/b/x",
    "--- a", "back\\slash", "ends ", "s p/ b/z b/z", "d/e/f/g.py", "é b/é",
]  # fmt: skip
LINES = [
    "word", "", "\tx", "--- a/word", "+++ b/word", "@@ -1 +1 @@", "diff --git a/x b/x", "-- ", "\\ No newline at end",
    "x\ry", "f\fz", "\u2028z", "}", " }", "*** Begin Patch",
]  # fmt: skip

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, tool: Callable[[str], str]) -> Git:
    program = tool("git")

    def run(*arguments: str, given: str = "") -> str:
        command = [program, "-c", "user.name=t", "-c", "user.email=t@t", "-c", "core.autocrlf=false", *arguments]
        done = subprocess.run(command, cwd=tmp_path, input=given.encode(), capture_output=True, check=True)
        return done.stdout.decode()

    run("init", "-q")
    return run


def laid(root: Path, files: dict[str, str]) -> None:
    for entry in root.iterdir():
        if entry.name != ".git":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())


def found(root: Path) -> dict[str, str]:
    paths = [path for path in root.rglob("*") if path.is_file() and ".git" not in path.relative_to(root).parts]
    return {str(path.relative_to(root)): path.read_bytes().decode() for path in paths}


def some_text(draw: random.Random) -> str:
    text = "".join(
        draw.choice(LINES) + draw.choice(["", str(draw.randrange(9))]) + "\n" for _ in range(draw.randrange(25))
    )
    return text[:-1] if draw.random() < 0.3 else text


def changed(draw: random.Random, text: str) -> str:
    lines = text.split("\n")
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(lines))
        action = draw.randrange(3)
        if action == 0:
            lines.insert(at, draw.choice(LINES) + "new")
        elif action == 1 and len(lines) > 1:
            lines.pop(at)
        else:
            lines[at] += "~"
    return "\n".join(lines)


def some_change(draw: random.Random) -> tuple[dict[str, str], dict[str, str]]:
    old = {name: some_text(draw) for name in draw.sample(NAMES, 5)}
    new = dict(old)
    for name in old:
        target = draw.choice(NAMES)
        match draw.randrange(6):
            case 0 | 1:
                new[name] = changed(draw, new[name])
            case 2:
                del new[name]
            case 3 if target not in new:
                new[target] = changed(draw, new.pop(name))
            case 4 if target not in new:
                new[target] = new.pop(name)
            case _:
                new.setdefault(target, some_text(draw))
    return old, new


@pytest.mark.parametrize(("seed", "rounds"), [(1, 8), (2, 8), pytest.param(3, 400, marks=pytest.mark.full, id="long")])
@pytest.mark.timeout(900)
def test_what_git_writes_is_read_and_what_we_write_git_reads(seed: int, rounds: int, tmp_path: Path, git: Git):
    draw = random.Random(seed)
    for _ in range(rounds):
        old, new = some_change(draw)
        laid(tmp_path, old)
        git("add", "-A")
        git("commit", "-q", "--allow-empty", "-m", "old")
        laid(tmp_path, new)
        git("add", "-A")
        names = draw.choice([["-c", "diff.mnemonicPrefix=true"], ["-c", "diff.noprefix=true"], []])
        quoting = f"core.quotePath={draw.choice(['true', 'false'])}"
        renames = draw.choice(["-M30%", "--no-renames"])
        diff = git("-c", quoting, *names, "diff", "--cached", "--text", f"-U{draw.choice([0, 1, 3])}", renames)
        if not diff:
            continue
        patch = parse_patch(diff)
        assert parse_patch(patch.render()) == patch
        assert apply_to_texts(patch.operations, old) == new
        assert set(patch.may_create) == set(new) - set(old)
        assert set(patch.acquires) <= set(old)
        ours = rendered(old, new, diff)
        assert apply_to_texts(parse_patch(ours).operations, old) == new
        laid(tmp_path, old)
        git("apply", "-", given=ours)
        assert found(tmp_path) == new


def rendered(old: dict[str, str], new: dict[str, str], diff: str) -> str:
    """The same change as this project shows it to people."""
    outcome = apply_operations(parse_patch(diff).operations, {path: FileText(text) for path, text in old.items()})
    sources = {target: source for source, target in outcome.renamed.items()}
    changes: list[FileChange] = []
    for path in sorted(set(old) | set(new)):
        if path in sources:
            hunks = hunks_between(old[sources[path]], new[path], path=path)
            changes.append(FileChange(path, "renamed", None, hunks, sources[path]))
        elif path in outcome.added:
            changes.append(FileChange(path, "added", None, hunks_between("", new[path], path=path)))
        elif path in outcome.deleted:
            changes.append(FileChange(path, "deleted", None, hunks_between(old[path], "", path=path)))
        elif path in outcome.changed:
            changes.append(FileChange(path, "modified", None, hunks_between(old[path], new[path], path=path)))
    return render_unified(changes)


def test_a_diff_that_exchanges_names(tmp_path: Path, git: Git):
    long = "".join(f"line {number}\n" for number in range(40))
    old = {"one.txt": long + "first\n", "two.txt": long.upper() + "second\n"}
    laid(tmp_path, old)
    git("add", "-A")
    git("commit", "-q", "-m", "old")
    new = {"one.txt": old["two.txt"], "two.txt": old["one.txt"] + "more\n"}
    laid(tmp_path, new)
    git("add", "-A")
    patch = parse_patch(git("diff", "--cached", "-M", "-B"))
    assert [type(operation).__name__ for operation in patch.operations] == ["UpdateFile", "UpdateFile"]
    assert set(patch.acquires) | set(patch.acquires_if_present) == {"one.txt", "two.txt"}
    assert apply_to_texts(patch.operations, old) == new


def test_a_series_of_mails_applies_in_order(tmp_path: Path, git: Git):
    states = [{"a.txt": "1\n"}, {"a.txt": "2\n", "n.txt": "x\n"}, {"a.txt": "3\n", "n.txt": "y"}]
    for state in states:
        laid(tmp_path, state)
        git("add", "-A")
        git("commit", "-q", "-m", "- not a removal\n\n+ nor an addition")
    patch = parse_patch(git("format-patch", "--stdout", "-2"))
    assert apply_to_texts(patch.operations, states[0]) == states[2]
    assert (patch.acquires, patch.may_create) == (("a.txt",), ("n.txt",))
