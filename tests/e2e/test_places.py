"""Where nothing may be written or read, whoever asks and however it is spelled: through the socket, in mode `allow`."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.place import ALLOW, Agent, Place, edit_of

AT_FDCWD, RENAME_EXCHANGE = -100, 2


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place]) -> Place:
    place = new_place(ALLOW, {"in.txt": "in\n", "sub/f.txt": "sub\n"})
    outside = place.base / "outside"
    outside.mkdir()
    (outside / "s.txt").write_text("secret\n")
    twin = place.base / "root-twin"
    twin.mkdir()
    (twin / "s.txt").write_text("secret\n")
    (place.root / "out").symlink_to(outside)
    (place.root / "out.txt").symlink_to(outside / "s.txt")
    (place.root / "dangling").symlink_to(outside / "nothing.txt")
    (place.root / "inner").symlink_to("sub")
    (place.root / "loop").symlink_to("loop")
    return place


@pytest.fixture(autouse=True)
def untouched(place: Place) -> Iterator[None]:
    """Whatever a test does, nothing outside comes, goes or changes."""
    yield from place.visit()
    for directory in ("outside", "root-twin"):
        found = {path.name: path.read_text() for path in (place.base / directory).iterdir()}
        assert found == {"s.txt": "secret\n"}


@pytest.fixture
def agent(place: Place) -> Agent:
    return place.agent(surface="workspace")


OUTSIDE = [
    "../root-twin/n.txt",
    "../root-twin/s.txt",
    "sub/../../root-twin/n.txt",
    "/etc/hosts",
    "{base}/root-twin/s.txt",
    "{base}/root-twin/../root-twin/s.txt",
    "{root}/../outside/s.txt",
    "{root}-twin/s.txt",
    "~/x",
    "C:/x",
    "C:\\x",
    "\\\\server\\share",
    "//server/share/x",
    "/dev/null",
    "/proc/self/environ",
    "out/n.txt",
    "out/s.txt",
    "out/a/b/n.txt",
    "out.txt",
    "dangling",
    "loop",
    "loop/x",
    "x\0y",
    "a\nb",
    "a\\b",
    "x" * 300,
    "x/" * 200 + "y",
]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: repr(path)[:40])
def test_a_path_that_leads_out_is_refused_before_anything(place: Place, agent: Agent, path: str):
    """P52, P53. Neither written nor read nor moved to, and nothing of it was asked."""
    path = path.replace("{base}", str(place.base)).replace("{root}", str(place.root))
    before, tree = len(place.activity(event="gate")), place.tree()
    calls: list[tuple[str, str, Any]] = [
        ("workspace", "write_file", {"path": path, "content": "x\n"}),
        ("granular", "edit", edit_of(path, "secret", "x")),
    ]
    if "\n" not in path:
        bodies = (f"*** Add File: {path}\n+x\n", f"*** Update File: in.txt\n*** Move to: {path}\n@@\n-in\n+out\n")
        calls += [("granular", "apply_patch", {"patch": f"*** Begin Patch\n{body}*** End Patch\n"}) for body in bodies]
    for surface, tool, arguments in calls:
        data = agent.refused(tool, arguments, surface=surface)
        assert data["code"] in ("E_DEV_POLICY", "E_DEV_BAD_ARG", "E_DEV_WORKSPACE_BOUNDS"), data
        assert data["retry"] in ("no", "afterCorrection", "withLess")
        assert data["step"] in (tool, "acquire")
        assert "secret" not in str(data)
    assert len(place.activity(event="gate")) == before
    assert place.tree() == tree


@pytest.mark.parametrize("path", ["../root-twin/s.txt", "{base}/outside/s.txt", "out/s.txt", "out.txt", "/etc/passwd"])
@pytest.mark.parametrize("tool", ["read_file", "read_lines", "grep", "glob"])
def test_nothing_outside_is_read(place: Place, agent: Agent, tool: str, path: str):
    path = path.replace("{base}", str(place.base))
    arguments = {
        "read_file": {"path": path},
        "read_lines": {"path": path, "start": 1},
        "grep": {"pattern": "secret|root", "path": path},
        "glob": {"pattern": "*", "path": path},
    }[tool]
    data = agent.refused(tool, arguments, surface="granular" if tool == "read_lines" else "workspace")
    assert data["code"] == "E_DEV_POLICY"
    assert data["reason"] in ("outsideRoot", "symlink")


def test_wildcards_and_searches_do_not_leave_the_root(agent: Agent):
    """P68: links are not followed, and the search ends."""
    found = agent.call("glob", {"pattern": "**/*.txt"})
    assert "in.txt" in found["content"]
    assert "sub/f.txt" in found["content"]
    assert "s.txt" not in found["content"].replace("out.txt", "")
    assert "secret" not in agent.call("grep", {"pattern": "secret"})["content"]


def test_an_absolute_path_below_the_root_is_the_relative_one(place: Place, agent: Agent):
    result = agent.call("write_file", {"path": str(place.root / "abs.txt"), "content": "x\n"})
    assert result["written"] == [{"path": "abs.txt", "kind": "added"}]
    assert agent.call("read_file", {"path": "./sub/../abs.txt"})["data"]["path"] == "abs.txt"


def test_a_path_is_a_name_and_no_pattern(place: Place, agent: Agent):
    """3.2.1: brackets and stars are characters of a name; nothing else is acquired in its place."""
    place.put({"s*r.txt": "a\n", "star.txt": "a\n", "q[1]?.txt": "a\n"})
    for path in ("s*r.txt", "q[1]?.txt"):
        result = agent.call("edit", edit_of(path, "a", "b"), surface="granular")
        assert result["written"] == [{"path": path, "kind": "modified"}]
        assert [line["paths"] for line in place.activity(event="gate", plan=result["plan"])] == [[path], [path]]
        assert agent.call("read_file", {"path": path})["data"]["path"] == path
        edited = agent.call("edit_file", {"path": path, "old_string": "b", "new_string": "c"})
        assert [line["paths"] for line in place.activity(event="gate", plan=edited["plan"])] == [[path], [path]]
        assert agent.call("write_file", {"path": path, "content": "d\n"})["written"]
    assert place.text("star.txt") == "a\n"
    for path in ("*.txt", "**", "[a]"):
        assert agent.refused("read_file", {"path": path})["reason"] == "notFound"
        data = agent.refused("edit", edit_of(path, "a", "b"), surface="granular")
        assert (data["code"], data["reason"], data["path"]) == ("E_DEV_BAD_ARG", "notFound", path)


def test_links_inside_are_read_through_and_not_written_through(place: Place, agent: Agent):
    """5.3.2: `reject` is the default."""
    assert "sub" in agent.call("read_file", {"path": "inner/f.txt"})["content"]
    data = agent.refused("write_file", {"path": "inner/f.txt", "content": "x"})
    assert (data["code"], data["reason"]) == ("E_DEV_POLICY", "symlink")
    assert place.text("sub/f.txt") == "sub\n"


GUARDED = """
[workspace]
symlinks = "inside"

[gate]
mode = "allow"

[[gate.rules]]
step = ["edit", "write_file", "read_lines"]
paths = ["guarded/**"]
decision = "deny"
"""


def test_a_link_does_not_lead_around_a_rule(new_place: Callable[..., Place]):
    """Rules and always-ask names count for what a path is, not only for what it is called (SPEC 5.2.3, 8.0.11)."""
    place = new_place(GUARDED, {"guarded/g.txt": "g\n", "package.json": "{}\n", "free.txt": "f\n"}, start=False)
    for link, target in (("d", "guarded"), ("f.txt", "guarded/g.txt"), ("j.txt", "package.json"), ("ok", "free.txt")):
        (place.root / link).symlink_to(target)
    place.start()
    agent = place.agent()
    for path in ("guarded/g.txt", "d/g.txt", "f.txt"):
        data = agent.refused("edit", edit_of(path, "g", "x"))
        assert (data["code"], data["reason"], data["step"]) == ("E_DEV_GATE_DECLINED", "denied", "edit"), path
        assert agent.refused("read_lines", {"path": path, "start": 1})["reason"] == "denied"
    created = agent.refused("write_file", {"path": "d/new.txt", "content": "x"}, surface="workspace")
    assert created["reason"] == "denied"
    assert agent.refused("edit", edit_of("j.txt", "{}", "[]"))["reason"] == "symlink"
    assert agent.edit("ok", "f", "F")["written"]
    assert place.tree().keys() >= {"guarded/g.txt"}
    assert (place.text("guarded/g.txt"), place.text("package.json"), place.text("free.txt")) == ("g\n", "{}\n", "F\n")


PROTECTED = [
    ".git/hooks/post-merge",
    ".Git/hooks/post-merge",
    ".GIT/config",
    ".git./config",
    ".git /config",
    "git~1/config",
    ".gi\u200ct/config",
    "．git/config",
    ".git::$INDEX_ALLOCATION/config",
    "sub/.git",
    "sub/.git/config",
    ".gitmodules",
    ".VSCode/tasks.json",
    ".vscode/settings.json",
    ".idea/workspace.xml",
    ".husky/pre-commit",
    ".envrc",
    ".exrc",
    ".nvim.lua",
    ".claude/settings.json",
    ".mcp.json",
    ".github/hooks/x",
    ".ssh/authorized_keys",
    "x.code-workspace",
    "devtools.toml",
    "DevTools.toml",
    "./devtools.toml",
    "sub/../devtools.toml",
    ".devtools/journal",
]


@pytest.mark.parametrize("path", PROTECTED, ids=repr)
def test_protected_names_are_refused_in_any_spelling(place: Place, agent: Agent, path: str):
    """P56, P60, P61: no rule opens them, for no tool."""
    tree = place.tree()
    patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n"
    for surface, tool, arguments in (
        ("workspace", "write_file", {"path": path, "content": "x"}),
        ("granular", "apply_patch", {"patch": patch}),
        ("granular", "edit", edit_of(path, "mode", "x")),
    ):
        data = agent.refused(tool, arguments, surface=surface)
        assert (data["code"], data["reason"]) == ("E_DEV_POLICY", "protected"), data
    assert place.tree() == tree


@pytest.mark.parametrize(
    "path", [".gitignore", "git/config", "digit/x", ".gitx/y", "devtools.toml.txt", ".github/README.md"]
)
def test_names_that_only_look_alike_are_free(place: Place, agent: Agent, path: str):
    result = agent.call("write_file", {"path": path, "content": "x\n"})
    assert result["written"] == [{"path": path, "kind": "added"}]
    (place.root / path).unlink()


def test_a_bare_repository_may_not_come_into_being(place: Place, agent: Agent):
    """Git runs what the configuration of such a directory says, also deep inside a project."""
    adds = "".join(f"*** Add File: fixture/{name}\n+x\n" for name in ("HEAD", "config", "objects/a", "refs/b"))
    data = agent.refused("apply_patch", {"patch": f"*** Begin Patch\n{adds}*** End Patch\n"}, surface="granular")
    assert (data["code"], data["reason"]) == ("E_DEV_POLICY", "protected")
    written = 0
    for name in ("HEAD", "objects/a", "refs/b", "config"):
        answer = agent.wire.answer(agent.begin("write_file", {"path": f"piece/{name}", "content": "x"}))
        written += "result" in answer
    assert written < 4


def test_the_places_of_the_daemon_are_out_of_reach(place: Place, agent: Agent):
    """P60: state, socket, lock and journal, by an absolute path or through a link."""
    (place.root / "state").symlink_to(place.state)
    for path in (str(place.state / "activity.jsonl"), place.socket, "state/activity.jsonl"):
        for tool, arguments in (("write_file", {"path": path, "content": "x"}), ("read_file", {"path": path})):
            assert agent.refused(tool, arguments)["code"] == "E_DEV_POLICY"
    (place.root / "state").unlink()


def test_a_command_sees_neither_socket_nor_state(place: Place, agent: Agent):
    """8.0.3: where commands are confined, none of them can decide what it asks for itself."""
    if agent.greeting["confinement"]["level"] != "bwrap":
        pytest.skip("bubblewrap does not work here, so that commands are not confined")
    look = f"for path in {place.socket} {place.state}/activity.jsonl; do test -e $path && echo seen $path; done; true"
    assert agent.call("bash", {"command": look})["data"]["stdout"] == ""
    run = f"cd / && {sys.executable} -m devtools_lsp approvals --root {place.root} 2>&1; echo $?"
    assert not agent.call("bash", {"command": run})["data"]["stdout"].endswith("\n0\n")


@pytest.mark.parametrize("runtime", ["XDG_RUNTIME_DIR", "TMPDIR"])
def test_a_command_sees_no_other_daemon(new_place: Callable[..., Place], runtime: str):
    """8.0.3: at the daemon of another root it could ask, and answer for itself."""
    place = new_place(ALLOW, {}, start=False)
    place.env.pop("XDG_RUNTIME_DIR")
    temporary = place.base / "temporary"
    temporary.mkdir(0o700)
    place.env[runtime] = str(temporary)
    place.start()
    agent = place.agent(surface="workspace")
    if agent.greeting["confinement"]["level"] != "bwrap":
        pytest.skip("bubblewrap does not work here, so that commands are not confined")
    (sockets,) = temporary.glob("devtools-lsp*")
    others = [sockets / "other.sock", place.state.parent / "other" / "activity.jsonl"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    look = f"for path in {' '.join(map(str, others))}; do test -e $path && echo seen $path; done; true"
    assert agent.call("bash", {"command": look})["data"]["stdout"] == ""


def test_a_command_cannot_change_who_decides(place: Place, agent: Agent):
    """Nor does it leave anything that git would run."""
    if agent.greeting["confinement"]["level"] != "bwrap":
        pytest.skip("bubblewrap does not work here, so that commands are not confined")
    agent.call("bash", {"command": "echo x > devtools.toml; rm -f devtools.toml; mv devtools.toml other; true"})
    assert place.text("devtools.toml") == ALLOW
    (place.root / ".git" / "hooks").mkdir(parents=True)
    agent.call("bash", {"command": "echo x > .git/hooks/pre-commit; mv .git aside; rm -rf .git; true"})
    assert (place.root / ".git" / "hooks").is_dir()
    assert not list((place.root / ".git" / "hooks").iterdir())


def test_state_below_the_root_is_protected_too(new_place: Callable[..., Place]):
    place = new_place(ALLOW, {"a.txt": "a\n"}, start=False)
    place.env["XDG_STATE_HOME"] = str(place.root / "var")
    place.start()
    agent = place.agent(surface="workspace")
    (log,) = (place.root / "var").rglob("activity.jsonl") if agent.call("read_file", {"path": "a.txt"}) else ()
    inside = str(log.relative_to(place.root))
    assert agent.refused("write_file", {"path": inside, "content": ""})["code"] == "E_DEV_POLICY"
    assert agent.refused("write_file", {"path": str(log.parent / "x"), "content": ""})["code"] == "E_DEV_POLICY"


def test_secrets_are_not_read(place: Place, agent: Agent):
    """5.2.4, 8.1: denied by default, for every reading door."""
    place.put({".env": "TOKEN=hush\n", "conf/.env.local": "TOKEN=hush\n", "key.pem": "hush\n", "id_rsa": "hush\n"})
    for path in (".env", "conf/.env.local", "key.pem", "id_rsa"):
        assert agent.refused("read_file", {"path": path})["code"] == "E_DEV_POLICY"
        assert agent.refused("read_lines", {"path": path, "start": 1}, surface="granular")["code"] == "E_DEV_POLICY"
        assert agent.refused("edit", edit_of(path, "hush", "x"), surface="granular")["code"] == "E_DEV_POLICY"
    found = agent.call("grep", {"pattern": "hush"})
    assert "TOKEN" not in found["content"]
    assert "key.pem:" not in found["content"]


def test_another_name_of_the_same_file_is_left_alone(place: Place, agent: Agent):
    """P57: a hard link to something outside keeps its old content."""
    secret = place.base / "kept.txt"
    secret.write_text("kept\n")
    os.link(secret, place.root / "hard.txt")
    answer = agent.wire.answer(agent.begin("edit", edit_of("hard.txt", "kept", "mine"), surface="granular"))
    if "result" in answer:
        assert place.text("hard.txt") == "mine\n"
    assert secret.read_text() == "kept\n"


@pytest.mark.parametrize(
    "times",
    [
        pytest.param(300, id="short"),
        pytest.param(10_000, id="long", marks=[pytest.mark.full, pytest.mark.timeout(900)]),
    ],
)
def test_an_attacker_who_swaps_a_directory_gains_nothing(place: Place, agent: Agent, times: int):
    """I8, P59: nothing is ever created outside, and nothing from there is ever returned."""
    place.put({"swap/s.txt": "mine\n"})
    real, link = place.root / "swap", place.root / "swapped"
    link.symlink_to(place.base / "outside")
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    done = threading.Event()
    swaps: set[int] = set()

    def attack() -> None:
        while not done.is_set():
            # One is always there: the directory and the link change their names in one step.
            swaps.add(exchange(AT_FDCWD, os.fsencode(real), AT_FDCWD, os.fsencode(link), RENAME_EXCHANGE))

    attacker = threading.Thread(target=attack)
    attacker.start()
    landed = read = 0
    try:
        for number in range(times):
            calls = [
                agent.begin("write_file", {"path": "swap/f.txt", "content": f"{number}\n"}),
                agent.begin("read_file", {"path": "swap/s.txt"}),
            ]
            written, found = (agent.wire.answer(call) for call in calls)
            assert "secret" not in str(found)
            landed += "result" in written
            read += "result" in found
    finally:
        done.set()
        attacker.join()
    assert swaps == {0}
    assert landed
    assert read
    inside = real if real.is_dir() and not real.is_symlink() else link
    assert sorted(path.name for path in inside.iterdir()) == ["f.txt", "s.txt"]
