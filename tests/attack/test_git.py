"""Writes after which an innocent git runs a program: tried over the socket, and a real git runs nothing.

Each vector is first carried out by hand beside the victim, as a control: there the same innocent commands do run the
program. A vector that a newer git has closed is skipped and says so.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attack.daemon import Daemon
from tests.attack.wire import Agent, envelope

INNOCENT = (
    ("status",),
    ("diff",),
    ("log", "--oneline"),
    ("add", "seen.txt"),
    ("commit", "--allow-empty", "-q", "-m", "x"),
)
"""What people and their editors run all day, in the root and in the attacked directory."""

CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {root}/sub\n\tfsmonitor = {program}\n"
HOOK = "#!/bin/sh\n{program}\n"


@dataclass(frozen=True)
class Vector:
    """Files that an agent would write; what a person had set up before; other innocent commands that fire."""

    files: dict[str, str]
    setup: tuple[tuple[str, ...], ...] = ()
    commands: tuple[tuple[str, ...], ...] = INNOCENT


VECTORS = {
    "fsmonitor in the configuration": Vector({".git/config": "[core]\n\tfsmonitor = {program}\n"}),
    "a program that shows differences": Vector({".git/config": "[diff]\n\texternal = {program}\n"}),
    "a hook": Vector({".git/hooks/pre-commit": HOOK}),
    "the target of hooksPath": Vector({".husky/pre-commit": HOOK}, (("config", "core.hooksPath", ".husky"),)),
    "a hooksPath that is not there yet": Vector(
        {"build/hooks/pre-commit": HOOK}, (("config", "core.hooksPath", "build/hooks"),)
    ),
    "a bare repository in a subdirectory": Vector(
        {"sub/HEAD": "ref: refs/heads/main\n", "sub/config": CONFIG, "sub/objects/keep": "\n", "sub/refs/keep": "\n"}
    ),
    "a common directory elsewhere": Vector(
        {
            "sub/HEAD": "ref: refs/heads/main\n",
            "sub/commondir": "../elsewhere\n",
            "elsewhere/config": '[core]\n\tsshCommand = {program}\n[remote "origin"]\n\turl = ssh://no.invalid/x\n',
            "elsewhere/objects/keep": "\n",
            "elsewhere/refs/keep": "\n",
        },
        commands=(*INNOCENT, ("fetch",)),  # An editor fetches by itself every few minutes.
    ),
    "a .git file": Vector(
        {
            "sub/.git": "gitdir: ../data\n",
            "data/HEAD": "ref: refs/heads/main\n",
            "data/config": CONFIG,
            "data/objects/keep": "\n",
            "data/refs/keep": "\n",
        }
    ),
    "attributes that call a filter": Vector(
        {".git/info/attributes": "* filter=house\n"}, (("config", "filter.house.clean", "{program}; cat"),)
    ),
    "an included configuration file": Vector(
        {"team.ini": "[core]\n\tfsmonitor = {program}\n"}, (("config", "include.path", "../team.ini"),)
    ),
}


class Repository:
    """A repository with one commit, and a canary program that leaves a mark when it runs."""

    def __init__(self, root: Path, vector: Vector) -> None:
        self.root = root
        self.mark = root.parent / f"{root.name}.ran"
        program = root.parent / f"{root.name}.sh"
        program.write_text(f"#!/bin/sh\necho ran >> {self.mark}\n")
        program.chmod(0o755)
        self._values = {"program": str(program), "root": str(root)}
        root.mkdir(exist_ok=True)
        self.git("init", "-q", "-b", "main")
        (root / "seen.txt").write_text("seen\n")
        (root / "sub").mkdir()
        self.git("add", "seen.txt")
        self.git("commit", "-q", "-m", "first")
        for arguments in vector.setup:
            self.git(*(argument.format(**self._values) for argument in arguments))
        self.files = {path: text.format(**self._values) for path, text in vector.files.items()}
        self._vector = vector

    def git(self, *arguments: str, where: str = ".") -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_PAGER_IN_USE": "1"}
        command = ["git", "-c", "user.name=n", "-c", "user.email=e@x", *arguments]
        subprocess.run(command, cwd=self.root / where, env=environment, capture_output=True, timeout=20, check=False)

    def ran(self) -> bool:
        """Whether anything ran: every file of the vector that is there is made executable first."""
        for path in self.files:
            if (self.root / path).is_file():
                (self.root / path).chmod(0o755)
        with (self.root / "seen.txt").open("a") as file:
            file.write("and again\n")
        for command in self._vector.commands:
            for where in (".", "sub"):
                self.git(*command, where=where)
        return self.mark.exists()


@pytest.fixture(params=VECTORS, ids=list(VECTORS))
def victim(request, new_daemon, tool) -> Iterator[tuple[Repository, Agent, Daemon]]:
    """The attacked repository with a daemon on it, once the control has shown that the vector is one."""
    tool("git")
    vector = VECTORS[request.param]
    daemon: Daemon = new_daemon()
    control = Repository(daemon.base / "control", vector)
    assert not control.ran()
    for path, text in control.files.items():
        target = control.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    if not control.ran():
        pytest.skip(f"this git does not run anything for: {request.param}")
    repository = Repository(daemon.root, vector)
    daemon.start()
    yield repository, daemon.agent("workspace"), daemon
    daemon.close()


def test_nothing_runs_whatever_is_tried(victim):
    """One patch, file by file in several orders, and innocently named files moved to where they fire."""
    repository, agent, daemon = victim
    refused = 0

    def attempt(tool: str, arguments: dict[str, str], surface: str) -> None:
        nonlocal refused
        answer = agent.try_call(tool, arguments, surface)
        if "error" in answer:
            assert answer["error"]["data"]["code"] in ("E_DEV_POLICY", "E_DEV_STEP_FAILED", "E_DEV_CONFLICT"), answer
            refused += answer["error"]["data"]["code"] == "E_DEV_POLICY"

    def add(path: str, text: str) -> list[str]:
        return [f"*** Add File: {path}", *(f"+{line}" for line in text.splitlines())]

    def clear() -> None:
        for path in repository.files:
            if not path.startswith(".git/") and (repository.root / path).exists():
                (repository.root / path).unlink()

    whole = envelope(*itertools.chain.from_iterable(add(path, text) for path, text in repository.files.items()))
    attempt("apply_patch", {"patch": whole}, "granular")
    assert refused == 1
    assert not [path for path in repository.files if path != ".git/config" and (repository.root / path).exists()]
    assert not repository.ran()

    orders = list(itertools.permutations(repository.files))
    for order in orders[:: max(1, len(orders) // 4)]:
        for path in order:
            attempt("write_file", {"path": path, "content": repository.files[path]}, "workspace")
        assert not repository.ran()
        clear()

    for number, (path, text) in enumerate(repository.files.items()):
        daemon.put({f"innocent{number}": text})
        move = envelope(f"*** Update File: innocent{number}", f"*** Move to: {path}")
        attempt("apply_patch", {"patch": move}, "granular")
    assert not repository.ran()
    assert refused >= 3


def test_the_daemon_itself_runs_nothing_of_a_rigged_repository(new_daemon, tool):
    """Whoever cloned or unpacked it: looking at it, searching it and writing in it is no reason to run its programs."""
    tool("git")
    daemon: Daemon = new_daemon()
    rig = "[core]\n\tfsmonitor = {program}\n\thooksPath = hooks\n\tsshCommand = {program}\n\tpager = {program}\n"
    rig += '[filter "house"]\n\tclean = {program}\n\tprocess = {program}\n[diff]\n\texternal = {program}\n'
    repository = Repository(daemon.root, Vector({".git/config": rig}))
    (daemon.root / ".git/config").write_text(repository.files[".git/config"])
    daemon.put({".gitattributes": "* filter=house\n", "hooks/post-checkout": repository.files[".git/config"]})
    daemon.start()
    agent = daemon.agent("workspace")
    agent.call("write_file", {"path": "seen.txt", "content": "written\n"})
    agent.call("grep", {"pattern": "written"})
    agent.call("glob", {"pattern": "**/*.txt"})
    agent.call("bash", {"command": "true"})
    agent.ask("devtools/undo")
    agent.ask("devtools/status")
    assert not repository.mark.exists()
    shutil.rmtree(daemon.root / ".git")
    daemon.stop()
