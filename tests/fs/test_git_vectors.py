"""Writes after which an innocent git would run code: all refused, and a real git runs nothing.

Each vector is first carried out by hand in a copy of the repository, as a control: there the same git command does
run it. A vector that a newer git has closed is skipped and says so.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from dataclasses import dataclass

import pytest

from devtools_lsp.errors import PolicyError
from devtools_lsp.fs.gauntlet import WriteGauntlet
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.translate import RootTranslator
from devtools_lsp.ports import Mutation, Permit

ANYTHING = Permit("attack", 0, "edit", frozenset(), ("**", "**/.*", "**/.*/**"))
RUN = "touch {marker}"


@dataclass(frozen=True)
class Vector:
    """Files an agent would write, what a person set up before, and the innocent command that fires."""

    files: dict[str, str]
    command: tuple[str, ...]
    setup: tuple[tuple[str, ...], ...] = ()
    where: str = "."
    executable: bool = False


CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {root}/sub\n\tfsmonitor = {run}\n"
VECTORS = {
    "fsmonitor in the configuration": Vector({".git/config": "[core]\n\tfsmonitor = {run}\n"}, ("status",)),
    "an executable hook": Vector(
        {".git/hooks/pre-commit": "#!/bin/sh\n{run}\n"}, ("commit", "--allow-empty", "-m", "x"), executable=True
    ),
    "the target of hooksPath": Vector(
        {".husky/pre-commit": "#!/bin/sh\n{run}\n"},
        ("commit", "--allow-empty", "-m", "x"),
        (("config", "core.hooksPath", ".husky"),),
        executable=True,
    ),
    "a hooksPath of another name, not there yet": Vector(
        {"build/hooks/pre-commit": "#!/bin/sh\n{run}\n"},
        ("commit", "--allow-empty", "-m", "x"),
        (("config", "core.hooksPath", "build/hooks"),),
        executable=True,
    ),
    "a bare repository in a subdirectory": Vector(
        {
            "sub/HEAD": "ref: refs/heads/main\n",
            "sub/config": CONFIG,
            "sub/objects/keep": "",
            "sub/refs/keep": "",
        },
        ("status",),
        where="sub",
    ),
    "a common directory elsewhere": Vector(
        {
            "sub/HEAD": "ref: refs/heads/main\n",
            "sub/commondir": "../elsewhere\n",
            "elsewhere/config": '[core]\n\tsshCommand = {run}\n[remote "origin"]\n\turl = ssh://nowhere.invalid/x\n',
            "elsewhere/objects/keep": "",
            "elsewhere/refs/keep": "",
        },
        ("fetch",),  # An editor fetches by itself every few minutes.
        where="sub",
    ),
    "a .git file": Vector(
        {
            "sub/.git": "gitdir: ../data\n",
            "data/HEAD": "ref: refs/heads/main\n",
            "data/config": CONFIG,
            "data/objects/keep": "",
            "data/refs/keep": "",
        },
        ("status",),
        where="sub",
    ),
    "attributes that call a filter": Vector(
        {".git/info/attributes": "* filter=house\n"},
        ("add", "seen.txt"),
        (("config", "filter.house.clean", "{run}; cat"),),
    ),
    "an included configuration file": Vector(
        {"team.ini": "[core]\n\tfsmonitor = {run}\n"}, ("status",), (("config", "include.path", "../team.ini"),)
    ),
}


class Scene:
    def __init__(self, root, vector):
        self.root = root
        self.marker = root.parent / f"{root.name}.ran"
        self._values = {"run": RUN.format(marker=self.marker), "root": str(root), "marker": str(self.marker)}
        root.mkdir()
        self.git("init", "-q", "-b", "main")
        (root / "seen.txt").write_text("seen\n")
        (root / "sub").mkdir()
        for arguments in vector.setup:
            self.git(*(argument.format(**self._values) for argument in arguments))
        self.files = {path: text.format(**self._values) for path, text in vector.files.items()}
        self.mode = 0o755 if vector.executable else 0o644
        self._vector = vector

    def git(self, *arguments, where="."):
        identity = ["-c", "user.name=n", "-c", "user.email=e@x"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        environment["GIT_CONFIG_NOSYSTEM"] = "1"
        environment["GIT_CONFIG_GLOBAL"] = "/dev/null"
        return subprocess.run(
            ["git", *identity, *arguments], cwd=self.root / where, env=environment, capture_output=True, timeout=20
        )

    def ran(self):
        self.git(*self._vector.command, where=self._vector.where)
        return self.marker.exists()


@pytest.fixture(params=VECTORS, ids=list(VECTORS))
def scenes(request, tmp_path, tool):
    """The attacked repository, after the control has shown that the vector is one."""
    tool("git")
    vector = VECTORS[request.param]
    control = Scene(tmp_path / "control", vector)
    for path, text in control.files.items():
        target = control.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(control.mode)
    if not control.ran():
        pytest.skip(f"this git does not run anything for: {request.param}")
    shutil.rmtree(control.root)
    return Scene(tmp_path / "victim", vector)


async def test_nothing_runs_after_one_patch(scenes, opened):
    handle = opened(scenes.root)
    mutations = [
        Mutation("write", path, text.encode(), mode=scenes.mode) for path, text in sorted(scenes.files.items())
    ]
    with pytest.raises(PolicyError):
        await handle.gauntlet.commit(ANYTHING, mutations, lambda _: None)
    assert not scenes.ran()
    assert not [path for path in scenes.files if path != ".git/config" and (scenes.root / path).exists()]


async def test_nothing_runs_after_file_by_file_in_any_order(scenes, opened):
    handle = opened(scenes.root)
    refused = 0
    orders = list(itertools.permutations(sorted(scenes.files)))
    for order in orders[:: max(1, len(orders) // 6)]:
        for path in order:
            try:
                change = Mutation("write", path, scenes.files[path].encode(), mode=scenes.mode)
                await handle.gauntlet.commit(ANYTHING, [change], lambda _: None)
            except PolicyError:
                refused += 1
        assert not scenes.ran()
        for path in scenes.files:
            if not path.startswith(".git/"):
                (scenes.root / path).unlink(missing_ok=True)
    assert refused > 0


async def test_nothing_runs_after_moves(scenes, opened):
    """Innocently named files moved to where they fire."""
    handle = opened(scenes.root)
    names = sorted(scenes.files)
    for number, path in enumerate(names):
        (scenes.root / f"innocent{number}").write_text(scenes.files[path])
        (scenes.root / f"innocent{number}").chmod(scenes.mode)
    moves = [Mutation("rename", path, source=f"innocent{number}") for number, path in enumerate(names)]
    replaced = [move for move in moves if move.path != ".git/config"]
    with pytest.raises(PolicyError):
        await handle.gauntlet.commit(ANYTHING, moves, lambda _: None)
    for move in replaced:
        try:
            await handle.gauntlet.commit(ANYTHING, [move], lambda _: None)
        except PolicyError:
            continue
    assert not scenes.ran()


async def test_nothing_runs_through_an_adapter_without_transactions(scenes):
    """The same judgement for file systems that the gauntlet writes to one by one."""
    policy = PathPolicy(root=str(scenes.root))
    file_system = LocalFileSystem(str(scenes.root), journaled=False)
    try:
        gauntlet = WriteGauntlet(str(scenes.root), file_system, policy, RootTranslator(str(scenes.root)))
        mutations = [Mutation("write", path, text.encode()) for path, text in sorted(scenes.files.items())]
        with pytest.raises(PolicyError):
            await gauntlet.commit(ANYTHING, mutations, lambda _: None)
        for change in mutations:
            try:
                await gauntlet.commit(ANYTHING, [change], lambda _: None)
            except PolicyError:
                continue
    finally:
        file_system.close()
    for path in scenes.files:
        if (scenes.root / path).exists():
            (scenes.root / path).chmod(scenes.mode)
    assert not scenes.ran()


async def test_a_fixture_repository_is_readable_and_closed(tree, opened, tool):
    """A bare repository that a project carries for its tests can be read, and not be rigged."""
    subprocess.run([tool("git"), "init", "-q", "--bare", tree.root / "tests" / "data" / "repo"], check=True)
    handle = opened()
    assert b"bare = true" in await handle.file_system.read("tests/data/repo/config")
    for path in ("config", "hooks/post-update", "objects/x", "new"):
        change = Mutation("write", f"tests/data/repo/{path}", b"x")
        with pytest.raises(PolicyError):
            await handle.gauntlet.commit(ANYTHING, [change], lambda _: None)
    await handle.gauntlet.commit(ANYTHING, [Mutation("write", "tests/data/beside", b"x")], lambda _: None)


async def test_looking_at_a_repository_runs_nothing_of_it(tree, opened, tool, tmp_path):
    """Our own git calls read a rigged repository, and the rig does not fire."""
    subprocess.run([tool("git"), "init", "-q", tree.root], check=True)
    marker = tmp_path / "ran"
    (tree.root / ".git" / "config").write_text(f"[core]\n\tfsmonitor = touch {marker}\n\thooksPath = h\n")
    handle = opened()
    with pytest.raises(PolicyError):
        await handle.gauntlet.screen("h/x", "create")
    await handle.gauntlet.screen("src/x", "create")
    assert not marker.exists()
