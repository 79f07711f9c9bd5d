"""Disks and paths at their limits, over the socket: the error names what is wrong, and nothing has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attack.daemon import ALLOW, Daemon
from tests.attack.wire import Agent, envelope

Call = tuple[str, str, dict[str, Any]]


def writes(path: str, old: str, *, content: str = "new\n") -> list[Call]:
    """Every tool that would write this file, which holds one line."""
    new = content.removesuffix("\n")
    # fmt: off
    return [
        ("workspace", "write_file", {"path": path, "content": content}),
        ("granular", "edit", {"path": path, "edits": [{"find": f"{old}\n", "replace": content}]}),
        ("granular", "apply_patch", {"patch": envelope(f"*** Update File: {path}", "@@", f"-{old}", f"+{new}")}),
        ("granular", "apply_patch", {"patch": envelope(f"*** Delete File: {path}")}),
        ("granular", "apply_patch", {"patch": envelope(f"*** Update File: {path}", "*** Move to: elsewhere.txt")}),
        ("granular", "apply_patch", {"patch": envelope(
            "*** Update File: mine.txt", "@@", "-mine", "+changed",
            f"*** Update File: {path}", "@@", f"-{old}", f"+{new}",
        )}),
    ]
    # fmt: on


def assert_refused(daemon: Daemon, agent: Agent, calls: list[Call], code: str, says: str) -> None:
    """Each call fails with this code and this in its message, names the path, and changes nothing."""
    before, directories = daemon.tree(), daemon.directories()
    for surface, tool, arguments in calls:
        data = agent.refused(tool, arguments, surface)
        assert (data["code"], says in data["message"]) == (code, True), data
        assert data.get("path") or data.get("paths"), data
        assert not data.get("written"), data
        assert daemon.tree() == before, tool
    assert daemon.directories() == directories
    assert daemon.litter() == []


@pytest.fixture
def small(new_daemon, mounted) -> Iterator[Daemon]:
    """A daemon whose root is a file system of its own, half a megabyte large."""
    daemon: Daemon = new_daemon()
    configuration = (daemon.root / "devtools.toml").read_text()
    mounted("-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", at=daemon.root)
    daemon.put({"devtools.toml": configuration, "mine.txt": "mine\n", "big.txt": "old\n"})
    yield daemon
    daemon.close()


def test_a_full_disk(small: Daemon):
    """ENOSPC: everything that does not fit is refused, and what does goes on."""
    small.start()
    agent = small.agent()
    calls = [call for call in writes("big.txt", "old", content="x" * 700_000 + "\n") if "x" * 1000 in str(call)]
    assert len(calls) == 4
    assert_refused(small, agent, calls, "E_DEV_STEP_FAILED", "no space is left")
    new = {"path": "deep/er/new.txt", "content": "x" * 700_000}
    assert_refused(small, agent, [("workspace", "write_file", new)], "E_DEV_STEP_FAILED", "no space is left")
    agent.call("write_file", {"path": "mine.txt", "content": "changed\n"}, "workspace")
    agent.ask("devtools/undo")
    assert small.tree()["mine.txt"] == b"mine\n"


def test_a_disk_that_fills_up_while_a_patch_lands(small: Daemon):
    """ENOSPC wherever it strikes: the room that is left is varied page by page."""
    old = {f"f{number}": f"old {number}\n".encode() * 500 for number in range(4)}
    small.put(old)
    small.start()
    agent = small.agent()
    patch = []
    for path, data in old.items():
        line = data.decode().splitlines()[0]
        patch += [f"*** Update File: {path}", *["@@", *[f" {line}"] * 499, f"-{line}", "+new"]]
    patch = envelope(*patch, "*** Add File: new/file", "+new")
    outcomes = set()
    for pages in range(0, 22, 2):
        small.put(old)
        shutil.rmtree(small.root / "new", ignore_errors=True)
        (small.root / "ballast").unlink(missing_ok=True)
        free = os.statvfs(small.root).f_bavail * os.statvfs(small.root).f_frsize
        (small.root / "ballast").write_bytes(b"x" * max(0, free - pages * 4096))
        answer = agent.try_call("apply_patch", {"patch": patch})
        files = small.tree()
        if "error" in answer:
            data = answer["error"]["data"]
            assert (data["code"], "no space is left" in data["message"]) == ("E_DEV_STEP_FAILED", True), data
            assert {path: files.get(path) for path in old} == old
            assert "new/file" not in files
        else:
            assert {entry["path"] for entry in answer["result"]["written"]} == {*old, "new/file"}
            assert files["f0"].endswith(b"new\n")
        assert small.litter() == []
        outcomes.add("error" in answer)
    assert outcomes == {True, False}


def test_a_read_only_disk(new_daemon, mounted):
    """EROFS below the root: said in words, and the rest of the root goes on."""
    daemon: Daemon = new_daemon()
    daemon.put({"mine.txt": "mine\n", "fixed/a.txt": "old\n"})
    mounted("--bind", str(daemon.root / "fixed"), at=daemon.root / "fixed")
    subprocess.run(["mount", "-o", "remount,bind,ro", daemon.root / "fixed"], check=True)
    daemon.start()
    agent = daemon.agent()
    assert_refused(daemon, agent, writes("fixed/a.txt", "old"), "E_DEV_STEP_FAILED", "read-only")
    new = ("workspace", "write_file", {"path": "fixed/new/b.txt", "content": "x\n"})
    assert_refused(daemon, agent, [new], "E_DEV_STEP_FAILED", "read-only")
    assert agent.call("read_lines", {"path": "fixed/a.txt", "start": 1})["reads"]["fixed/a.txt"]["text"] == "old\n"
    agent.call("write_file", {"path": "mine.txt", "content": "changed\n"}, "workspace")
    daemon.close()


@pytest.fixture
def powerless(new_daemon: Callable[..., Daemon], tool: Callable[[str], str]) -> Iterator[Daemon]:
    """A daemon that permissions bind, also where the tests run as root."""
    daemon = new_daemon(own=True)
    if os.geteuid() == 0:
        daemon.wrapper = (tool("setpriv"), "--bounding-set", "-dac_override,-dac_read_search,-fowner")
    yield daemon
    for path in daemon.root.rglob("*"):
        if path.is_dir():
            path.chmod(0o700)
    daemon.close()


def test_no_permission(powerless: Daemon):
    """EACCES on directories that take no names, on files that cannot be read, and on what lies behind shut doors."""
    powerless.put({"mine.txt": "mine\n", "closed/a.txt": "old\n", "sealed/b.txt": "old\n", "shut.txt": "old\n"})
    powerless.start()
    agent = powerless.agent()
    (powerless.root / "closed").chmod(0o555)
    assert_refused(powerless, agent, writes("closed/a.txt", "old"), "E_DEV_STEP_FAILED", "permissions")
    new = ("workspace", "write_file", {"path": "closed/deep/new.txt", "content": "x\n"})
    assert_refused(powerless, agent, [new], "E_DEV_STEP_FAILED", "permissions")
    (powerless.root / "shut.txt").chmod(0o000)
    assert_refused(powerless, agent, writes("shut.txt", "old"), "E_DEV_STEP_FAILED", "permissions")
    (powerless.root / "sealed").chmod(0o000)
    calls = [*writes("sealed/b.txt", "old"), ("workspace", "read_file", {"path": "sealed/b.txt"})]
    for surface, name, arguments in calls:
        data = agent.refused(name, arguments, surface)
        assert (data["code"], "permissions" in data["message"]) == ("E_DEV_STEP_FAILED", True), data
    (powerless.root / "sealed").chmod(0o700)
    assert (powerless.root / "sealed/b.txt").read_bytes() == b"old\n"
    agent.call("write_file", {"path": "mine.txt", "content": "changed\n"}, "workspace")
    assert powerless.tree()["mine.txt"] == b"changed\n"


LONG = {
    "5,000 characters in one name": "x" * 5000,
    "5,000 characters in names that are short enough": "/".join(["d" * 99] * 50),
    "300 nested directories": "/".join("d" * 300) + "/file.txt",
    "300 nested directories and back": "d/" * 300 + "../" * 300 + "x/" * 300 + "file.txt",
    "a name of 256 bytes in a new directory": f"new/{'ü' * 128}",
}


@pytest.fixture(scope="module")
def plain(new_daemon) -> Iterator[Daemon]:
    daemon: Daemon = new_daemon(ALLOW)
    daemon.put({"mine.txt": "mine\n"})
    daemon.start()
    yield daemon
    daemon.close()


@pytest.mark.parametrize("path", LONG.values(), ids=LONG)
def test_paths_beyond_every_limit(plain: Daemon, path: str):
    """No tool makes a directory on the way, and every one says that the path is at fault."""
    agent = plain.agent()
    before = plain.tree(), plain.directories()
    add = envelope("*** Update File: mine.txt", "@@", "-mine", "+changed", f"*** Add File: {path}", "+x")
    for surface, tool, arguments in (
        *writes(path, "old"),
        ("granular", "apply_patch", {"patch": add}),
        ("granular", "read_lines", {"path": path, "start": 1}),
        ("workspace", "read_file", {"path": path}),
        ("workspace", "edit_file", {"path": path, "old_string": "a", "new_string": "b"}),
        ("workspace", "grep", {"pattern": "x", "path": path}),
        ("workspace", "glob", {"pattern": "*", "path": path}),
    ):
        data = agent.refused(tool, arguments, surface)
        # Searching asks what is there, and nothing is.
        assert data["reason"] in (("malformed", "notFound") if tool in ("grep", "glob") else ("malformed",)), data
        assert data["code"] in ("E_DEV_POLICY", "E_DEV_BAD_ARG"), data
    assert (plain.tree(), plain.directories()) == before


def test_a_tree_that_is_as_deep_as_it_gets(plain: Daemon):
    """A hundred directories are made, read, written and left; none is made for one too many."""
    agent = plain.agent()
    deep = "/".join(["d"] * 127)
    agent.call("write_file", {"path": f"{deep}/file.txt", "content": "deep\n"}, "workspace")
    assert (plain.root / deep / "file.txt").read_bytes() == b"deep\n"
    assert agent.refused("write_file", {"path": f"{deep}/e/file.txt", "content": "x\n"}, "workspace")["reason"]
    assert not (plain.root / deep / "e").exists()
    agent.ask("devtools/undo")
    assert not (plain.root / deep / "file.txt").exists()
    shutil.rmtree(plain.root / "d", ignore_errors=True)


def test_a_fifo_and_a_device_hang_nothing(plain: Daemon):
    """Reading and writing special files is refused at once, by name and by search."""
    os.mkfifo(plain.root / "fifo")
    agent = plain.agent()
    for surface, tool, arguments in (
        *writes("fifo", "old"),
        ("workspace", "read_file", {"path": "fifo"}),
        ("granular", "read_lines", {"path": "fifo", "start": 1}),
    ):
        data = agent.refused(tool, arguments, surface)
        assert (data["code"], data["reason"]) in (("E_DEV_POLICY", "protected"), ("E_DEV_BAD_ARG", "notText")), data
    assert agent.call("grep", {"pattern": "mine"}, "workspace")["data"]["total"] == 1
    Path(plain.root / "fifo").unlink()
