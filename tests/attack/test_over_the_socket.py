"""The attack inputs once more where agents really are: at the socket of a running daemon, with its own places beside.

`test_inputs.py` shows every verdict through every door in process; here the same table goes through three tools of
two surfaces, because the daemon composes policy, gate and file system by itself.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attack.daemon import ALLOW, Daemon
from tests.attack.doors import NEW, OLD, SPARE
from tests.attack.inputs import INPUTS, OWN, build, everything
from tests.attack.wire import Agent, envelope

EMBEDDERS = {"link_state/x", *OWN, "state/x"}
"""Rows about places that an embedder calls its own; a daemon's are elsewhere and have a test of their own."""


@pytest.fixture(scope="module")
def attacked(new_daemon) -> Iterator[Daemon]:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    daemon: Daemon = new_daemon()
    build(daemon.base)
    (daemon.root / "devtools.toml").write_text(ALLOW)
    daemon.start()
    yield daemon
    daemon.close()


def tools(path: str) -> list[tuple[str, str, dict[str, Any]]]:
    move = envelope(f"*** Update File: {SPARE}", f"*** Move to: {path}")
    return [
        ("workspace", "write_file", {"path": path, "content": NEW}),
        ("granular", "edit", {"path": path, "edits": [{"find": OLD, "replace": NEW}]}),
        ("granular", "apply_patch", {"patch": move}),
    ]


def test_the_table(attacked: Daemon):
    agent = attacked.agent(marks=(str(attacked.base / "outside").encode(), str(attacked.base / "root-evil").encode()))
    before = everything(attacked.base)
    wrong = []
    for row in INPUTS:
        path = row.path.replace("{root}", str(attacked.root))
        if row.reject is None or row.path in EMBEDDERS or "\udcff" in path or "root-evil" in path:
            continue
        for surface, tool, arguments in tools(path):
            data = agent.refused(tool, arguments, surface)
            if data["reason"] != row.reject:
                wrong.append((str(row), tool, row.reject, data))
    assert wrong == []
    assert agent.wire.leaks == []
    assert everything(attacked.base) == before


def test_a_hard_link_to_a_file_outside(attacked: Daemon):
    """P57: writing, editing and fixing one name of a file leaves its other name, outside the root, as it was."""
    agent = attacked.agent()
    twin = attacked.base / "outside/twin.txt"
    os.link(twin, attacked.root / "edited.txt")
    agent.call("write_file", {"path": "linked.txt", "content": NEW}, "workspace")
    agent.call("edit", {"path": "edited.txt", "edits": [{"find": OLD, "replace": NEW}]})
    for name in ("linked.txt", "edited.txt"):
        assert (attacked.root / name).read_text() == NEW
    assert twin.read_text() == OLD
    assert twin.stat().st_nlink >= 1
    for _ in range(2):
        agent.ask("devtools/undo")
    assert (attacked.root / "edited.txt").read_text() == OLD
    assert twin.read_text() == OLD


OWN_PLACES = ("devtools.toml", ".devtools/x", ".devtools/.gitignore", ".git/devtools-lsp/x")


@pytest.mark.parametrize("path", OWN_PLACES)
def test_the_daemons_own_places_in_the_root(attacked: Daemon, path: str):
    """P60: whatever was approved, no tool writes the configuration or the journal, and none reads the journal."""
    agent = attacked.agent()
    for surface, tool, arguments in tools(path):
        assert agent.refused(tool, arguments, surface)["reason"] == "protected"


def test_the_journal_and_the_places_of_the_daemon_are_not_read(attacked: Daemon):
    """Before-images hold what may be closed by now; the state directory may lie in the root."""
    agent = attacked.agent("workspace")
    agent.call("write_file", {"path": "src/a.py", "content": NEW})
    journal = next(path for path in attacked.root.glob(".git/devtools-lsp/*/*") if path.is_file())
    path = str(journal.relative_to(attacked.root))
    assert agent.refused("read_file", {"path": path})["code"] == "E_DEV_POLICY"
    assert agent.refused("read_lines", {"path": path, "start": 1}, "granular")["code"] == "E_DEV_POLICY"
    agent.ask("devtools/undo")


def test_a_state_directory_and_a_socket_inside_the_root(new_daemon):
    """A state or runtime directory in the workspace: the daemon's own files are closed all the same."""
    daemon: Daemon = new_daemon()
    daemon.env |= {"XDG_STATE_HOME": str(daemon.root / "var"), "XDG_RUNTIME_DIR": str(daemon.root / "run")}
    (daemon.root / "run").mkdir(mode=0o700)
    daemon.start()
    agent = daemon.agent()
    agent.call("write_file", {"path": "a.txt", "content": NEW}, "workspace")
    [activity] = daemon.root.glob("var/devtools-lsp/*/activity.jsonl")
    [lock] = daemon.root.glob("run/devtools-lsp/*.lock")
    [socket] = daemon.root.glob("run/devtools-lsp/*.sock")
    for host in (activity, activity.with_name("new"), lock, socket):
        path = str(host.relative_to(daemon.root))
        for surface, tool, arguments in tools(path):
            assert agent.refused(tool, arguments, surface)["reason"] == "protected", (path, tool)
    assert agent.refused("read_file", {"path": str(activity.relative_to(daemon.root))}, "workspace")["reason"]
    daemon.close()


ALWAYS_ASK = (
    "package.json",
    "sub/Cargo.toml",
    "build.rs",
    "pyproject.toml",
    "setup.py",
    ".npmrc",
    ".yarnrc.yml",
    "pnpm-workspace.yaml",
    ".gitattributes",
    ".env",
    ".env.local",
    ".pre-commit-config.yaml",
    "x.csproj",
    "Directory.Build.props",
    "x.targets",
    "build.gradle.kts",
    "package-lock.json",
    "yarn.lock",
    "Cargo.lock",
    ".github/workflows/ci.yml",
    "PACKAGE.JSON",
    "package.json.",
)


def test_names_that_always_ask(new_daemon):
    """P61: in a mode that allows everything they are asked about, and declined where nobody is there to answer.

    A rule that allows everything does not cover them; one that spells the name does.
    """
    rules = '[[gate.rules]]\npaths = ["**"]\ndecision = "allow"\n[[gate.rules]]\npaths = ["**/setup.py"]\n'
    daemon: Daemon = new_daemon(ALLOW + rules + 'decision = "allow"\n')
    daemon.put({"spare.txt": NEW})
    daemon.start()
    agent = daemon.agent()
    before = daemon.tree()
    for path in ALWAYS_ASK:
        add = envelope(f"*** Add File: {path}", "+new")
        move = envelope("*** Update File: spare.txt", f"*** Move to: {path}")
        for surface, tool, arguments in (
            ("workspace", "write_file", {"path": path, "content": NEW}),
            ("granular", "apply_patch", {"patch": add}),
            ("granular", "apply_patch", {"patch": move}),
        ):
            answer = agent.try_call(tool, arguments, surface)
            if path == "setup.py" and arguments.get("patch") != move:
                assert "error" not in answer
                agent.ask("devtools/undo")
                continue
            data = answer["error"]["data"]
            assert (data["code"], data["reason"]) == ("E_DEV_GATE_DECLINED", "noDecider"), (path, data)
    assert daemon.tree() == before
    daemon.close()


def test_two_edits_of_one_file_at_once(attacked: Daemon):
    """P31: 200 times two agents edit different lines of one file; both edits are there, or the later one is told."""
    agents = [attacked.agent(), attacked.agent()]
    lost = []
    for number in range(200):
        attacked.put({"c.txt": "A=1\nB=1\n"})
        answers: list[Any] = [None, None]

        def edit(index: int, answers: list[Any] = answers) -> None:
            letter = "AB"[index]
            block = {"find": f"{letter}=1", "replace": f"{letter}=2"}
            answers[index] = agents[index].try_call("edit", {"path": "c.txt", "edits": [block]})

        threads = [threading.Thread(target=edit, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done = ["error" not in answer for answer in answers]
        expected = "".join(f"{letter}={2 if ok else 1}\n" for letter, ok in zip("AB", done, strict=True))
        refused = {answer["error"]["data"]["code"] for answer in answers if "error" in answer}
        if (attacked.root / "c.txt").read_text() != expected or not refused <= {"E_DEV_CONFLICT"} or not any(done):
            lost.append((number, answers))
    assert lost == []


def test_staleness_is_a_matter_of_content(attacked: Daemon):
    """P49: a file that was only touched since it was read is edited; one with other content is not."""
    agent = attacked.agent("workspace")
    attacked.put({"h.txt": "v=1\n"})
    agent.call("read_file", {"path": "h.txt"})
    os.utime(attacked.root / "h.txt", (1, 1))
    answer = agent.call("edit_file", {"path": "h.txt", "old_string": "v=1", "new_string": "v=2"})
    assert answer["data"]["changedSinceRead"] is False
    attacked.put({"h.txt": "w=1\n"})
    data = agent.refused("edit_file", {"path": "h.txt", "old_string": "v=2", "new_string": "v=3"})
    assert data["code"] == "E_DEV_CONFLICT"
    assert (attacked.root / "h.txt").read_text() == "w=1\n"


def test_a_byte_order_mark_stays_and_is_never_doubled(attacked: Daemon):
    """P06: a whole file written over one with a mark keeps it, whether or not the new text brings one."""
    mark = b"\xef\xbb\xbf"
    for content in ("Write-Host 2\n", "\ufeffWrite-Host 2\n"):
        attacked.put({"s.ps1": mark + b"Write-Host 1\n"})
        attacked.agent("workspace").call("write_file", {"path": "s.ps1", "content": content})
        assert (attacked.root / "s.ps1").read_bytes() == mark + b"Write-Host 2\n"


def test_secrets_are_read_by_no_tool(attacked: Daemon):
    """SPEC 5.2.4: denied by name, behind links that stay inside, and in searches; and no error repeats a content."""
    secret = "TOKEN-OF-THE-HOUSE"
    attacked.put({".env": f"A={secret}\n", "keys/id_rsa": secret, "deep/er/server.pem": f"{secret}\n"})
    os.symlink(".env", attacked.root / "innocent.txt")
    os.symlink("keys", attacked.root / "innocent")
    agent: Agent = attacked.agent("workspace", marks=(secret.encode(),))
    for path in (".env", "keys/id_rsa", "deep/er/server.pem", "innocent.txt", "innocent/id_rsa", "./x/../.env"):
        for surface, tool, arguments in (
            ("workspace", "read_file", {"path": path}),
            ("granular", "read_lines", {"path": path, "start": 1}),
            ("granular", "edit", {"path": path, "edits": [{"find": "A", "replace": "B"}]}),
            ("workspace", "grep", {"pattern": "TOKEN", "path": path}),
        ):
            answer = agent.try_call(tool, arguments, surface)
            assert "error" in answer, (path, tool)
            assert answer["error"]["data"]["code"] == "E_DEV_POLICY", (path, tool, answer)
    agent.call("grep", {"pattern": "TOKEN"})
    agent.call("glob", {"pattern": "**/*"})
    agent.call("grep", {"pattern": "A", "glob": ".env*"})
    assert agent.wire.leaks == []
    assert secret not in json.dumps(attacked.activity())


def test_what_a_search_finds_is_shown_whatever_its_encoding(attacked: Daemon):
    """What is confirmed is the line, not its bytes: marks, UTF-16 and line ends are no obstacle."""
    attacked.put(
        {
            "enc/mark.txt": b"\xef\xbb\xbfneedle one\r\n",
            "enc/wide.txt": "needle two\r\nother\n".encode("utf-16"),
            "enc/latin.txt": b"needle \xe9\n",
            "enc/long.txt": "needle " + "x" * 5000 + "\n",
        }
    )
    answer = attacked.agent("workspace").call("grep", {"pattern": "needle", "path": "enc"})
    assert {match["path"] for match in answer["data"]["matches"]} == {
        "enc/mark.txt",
        "enc/wide.txt",
        "enc/latin.txt",
        "enc/long.txt",
    }
