"""Roots, directories and configurations that cannot be used: every command says it once, and what to do.

Each situation is met by every command. A command that has no need of what is wrong goes on; which those are stands in
the table, so that none stops by accident.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.place import ALLOW, PROGRAM, Place

COMMANDS = {
    "serve": (),
    "stop": (),
    "status": (),
    "call": ("read_lines", "--args", '{"path": "a.txt", "start": 1}'),
    "plan": ("a.txt", "--ops", '[{"step": "read_lines", "args": {"path": "a.txt", "start": 1}}]'),
    "approvals": (),
    "approve": ("x",),
    "deny": ("x",),
    "undo": (),
    "tools": (),
    "log": (),
    "init": (),
    "doctor": (),
    "mcp": (),
    "stdio": (),
}
ASKS_ONLY = ("status", "approvals", "approve", "deny")
"""They ask a daemon that runs and start none, so that they meet only what keeps them from looking."""
NOT_RUNNING = "`devtools-lsp serve --root"


@dataclass(frozen=True)
class Situation:
    """What is wrong, the words that must be said of it, and what single commands say instead; None: they go on."""

    spoil: Callable[[Place], object]
    words: tuple[str, ...]
    instead: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    needs_permissions: bool = False


def _named(path: str) -> Callable[[Place], None]:
    def spoil(place: Place) -> None:
        place.root = Path(path.format(base=place.base, root=place.root, home=place.env["HOME"]))

    return spoil


def _set(name: str, value: str) -> Callable[[Place], None]:
    return lambda place: place.env.update({name: value.format(base=place.base)})


def _file(name: str, content: bytes) -> Callable[[Place], object]:
    return lambda place: (place.root / name).write_bytes(content)


def _mode(path: str, mode: int) -> Callable[[Place], object]:
    return lambda place: (place.base / path).chmod(mode)


CONFIGURED = {"stop": None, "log": None, "mcp": None, **dict.fromkeys(ASKS_ONLY, NOT_RUNNING)}
"""Who reads the configuration: whoever starts a daemon, init and doctor. The MCP bridge tells with each call."""
SITUATIONS = {
    "a root that does not exist": Situation(_named("{base}/none"), ("it does not exist", "--root DIR")),
    "a root that is a file": Situation(_named("{root}/a.txt"), ("is not a directory", "--root DIR")),
    "a root that is a link to itself": Situation(
        lambda place: ((place.base / "loop").symlink_to("loop"), _named("{base}/loop")(place)), ("links", "--root DIR")
    ),
    "the home directory": Situation(_named("{home}"), ("too wide", "--root DIR")),
    "a root that may not be read": Situation(_mode("root", 0), ("chmod", "--root DIR"), needs_permissions=True),
    "a root that may not be written": Situation(
        _mode("root", 0o500),
        ("read_only = true",),
        {"stop": None, "log": None, "mcp": None, "init": "--dry-run", "doctor": None}
        | dict.fromkeys(ASKS_ONLY, NOT_RUNNING),
        needs_permissions=True,
    ),
    "a socket's path that is too long": Situation(
        _set("DEVTOOLS_LSP_SOCKET", "{base}/" + "x" * 108),
        ("DEVTOOLS_LSP_SOCKET", "shorter"),
        {"log": None, "init": None},
    ),
    "a socket in a directory that cannot be made": Situation(
        _set("DEVTOOLS_LSP_SOCKET", "{base}/home/new/x.sock"),
        ("DEVTOOLS_LSP_SOCKET", "that you can write"),
        {"stop": None, "log": None, "init": None, "mcp": None, "doctor": None} | dict.fromkeys(ASKS_ONLY, NOT_RUNNING),
        needs_permissions=True,
    ),
    "a runtime directory that may not be written": Situation(
        _mode("run", 0o500), ("XDG_RUNTIME_DIR",), {"log": None, "init": None}, needs_permissions=True
    ),
    "a state directory that cannot be made": Situation(
        _set("XDG_STATE_HOME", "/dev/null/state"),
        ("XDG_STATE_HOME",),
        {"stop": None, "init": None} | dict.fromkeys(ASKS_ONLY, NOT_RUNNING),
    ),
    "a configuration that is no TOML": Situation(
        _file("devtools.toml", b"[gate\n"), ("devtools.toml", "line 1"), CONFIGURED
    ),
    "a configuration with a wrong key": Situation(
        _file("devtools.toml", b"[gate]\nmoed = 1\n"), ("devtools.toml", "did you mean 'mode'?"), CONFIGURED
    ),
    "a configuration that is not text": Situation(
        _file("devtools.toml", b"\xff\xfe\x00"), ("devtools.toml", "UTF-8"), CONFIGURED
    ),
    "a configuration that is a directory": Situation(
        lambda place: (place.root / "devtools.toml").mkdir(), ("devtools.toml", "is not a file"), CONFIGURED
    ),
    "a configuration that may not be read": Situation(
        lambda place: (_file("devtools.toml", b"")(place), (place.root / "devtools.toml").chmod(0)),
        ("devtools.toml", "make it readable"),
        CONFIGURED,
        needs_permissions=True,
    ),
}


def _without_privileges() -> list[str]:
    """How to run a program to which the modes of files mean something: root is exempt from them."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed, and root may read and write everything")
    return ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]


QUICK = {
    "a root that does not exist",
    "a root that may not be written",
    "a configuration with a wrong key",
}
"""One of each kind; the others are in the full suite, because each is fifteen processes."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in SITUATIONS]
)
def test_every_command_says_what_is_wrong_and_what_to_do(new_place: Callable[..., Place], name: str):
    situation = SITUATIONS[name]
    prefix = _without_privileges() if situation.needs_permissions else []
    place = new_place("", {"a.txt": "a\n", "pyproject.toml": ""}, start=False)
    (place.base / "state").mkdir(mode=0o700)
    original = place.root
    situation.spoil(place)
    if situation.needs_permissions and name.startswith("a socket"):
        (place.base / "home").chmod(0o500)

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*prefix, PROGRAM, command, "--root", place.root, *COMMANDS[command]],
            env=place.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    try:
        with ThreadPoolExecutor(3) as pool:
            done = dict(zip(COMMANDS, pool.map(run, COMMANDS), strict=True))
    finally:
        for path in (original, place.base / "home", place.base / "run"):
            path.chmod(0o700)
    for command, outcome in done.items():
        _judge(command, outcome, situation)


def _judge(command: str, done: subprocess.CompletedProcess[str], situation: Situation) -> None:
    said = (command, done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, said
    expected = situation.instead.get(command, "")
    if expected is None:
        assert not done.stderr or command == "mcp", said
        assert done.returncode == 0 or command == "doctor", said
        return
    words = (expected,) if expected else situation.words
    if command == "stdio":
        message = done.stderr.removeprefix("devtools-lsp: ")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), said
    elif command == "doctor" and done.stdout:
        message = done.stdout
        assert (done.returncode, done.stderr) == (2, ""), said
        assert "FAIL" in message, said
    else:
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), said
        message = json.loads(done.stderr)["message"]
        assert '"code"' not in message, said
    for word in words:
        assert word in message, said


def test_an_environment_without_a_home_is_fine(new_place: Callable[..., Place]):
    place = new_place(ALLOW, {"a.txt": "a\n"}, start=False)
    del place.env["HOME"]
    place.start()
    assert place.cli("call", *COMMANDS["call"]).returncode == 0
    assert place.cli("log").returncode == 0


def test_the_command_line_itself_is_told_like_any_other_mistake(new_place: Callable[..., Place]):
    place = new_place(ALLOW, {"a.txt": "a\n"}, start=False)
    for arguments, words in (
        (("frob",), "`devtools-lsp --help`"),
        (("call",), "`devtools-lsp call --help`"),
        (("call", "check", "--arg", "x"), "--args"),
        (("log", "-n", "many"), "`devtools-lsp log --help`"),
    ):
        done = place.cli(*arguments, rooted=False)
        assert (done.returncode, done.stdout) == (2, "")
        data = json.loads(done.stderr)
        assert data["code"] == "E_DEV_BAD_ARG"
        assert words in data["message"]


def test_arguments_that_are_not_there_are_asked_for_in_words(new_place: Callable[..., Place]):
    place = new_place(ALLOW, {"a.txt": "a\n"}, start=False)
    data = json.loads(place.cli("call", "check").stderr)
    assert "there is no --args" in data["message"]
    assert "standard input" in data["message"]
