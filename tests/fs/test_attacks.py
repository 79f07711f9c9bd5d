"""The attack inputs as one table, every verdict through every way in: screen, gauntlet, transaction, plain methods.

Whatever the verdict, nothing outside the root changes and nothing inside does that should not.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from devtools_lsp.errors import DevToolsError, PolicyError
from devtools_lsp.fs.gauntlet import WriteGauntlet
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.translate import RootTranslator
from devtools_lsp.ports import FileStat, Mutation, Permit

ANYTHING = Permit("attack", 0, "edit", frozenset(), ("**", "**/.*", "**/.*/**"))


@dataclass(frozen=True)
class Attack:
    """One path somebody wrote. `reject` and `inside` are the refusal's reason under each symlink rule, None = allowed.

    `lands` is the resolved path of an allowed one where that differs.
    """

    path: str
    reject: str | None
    inside: str | None
    lands: str | None = None


ATTACKS = [
    Attack("src/a.py", None, None),
    Attack("src/new.py", None, None),
    Attack("new/deep/er/file.py", None, None),
    Attack("./src//./a.py", None, None, "src/a.py"),
    Attack("src/x/../a.py", None, None, "src/a.py"),
    Attack("{root}/src/a.py", None, None, "src/a.py"),
    Attack("", "protected", "protected"),
    Attack(".", "protected", "protected"),
    Attack("..", "outsideRoot", "outsideRoot"),
    Attack("../outside/secret.txt", "outsideRoot", "outsideRoot"),
    Attack("src/../../outside/secret.txt", "outsideRoot", "outsideRoot"),
    Attack("../root-evil/s.txt", "outsideRoot", "outsideRoot"),
    Attack("{root}-evil/s.txt", "outsideRoot", "outsideRoot"),
    Attack("/etc/passwd", "outsideRoot", "outsideRoot"),
    Attack("~/x", "outsideRoot", "outsideRoot"),
    Attack("~", "outsideRoot", "outsideRoot"),
    Attack("src/a\0.py", "malformed", "malformed"),
    Attack("C:\\x", "malformed", "malformed"),
    Attack("C:/x", "malformed", "malformed"),
    Attack("\\\\server\\share\\x", "malformed", "malformed"),
    Attack("//server/share/x", "malformed", "malformed"),
    Attack("\\\\?\\C:\\x", "malformed", "malformed"),
    Attack("\\\\.\\PhysicalDrive0", "malformed", "malformed"),
    Attack("src/bad\udcff.py", "malformed", "malformed"),
    Attack("src/new\\file.py", "malformed", "malformed"),
    Attack("src/new\nline.py", "malformed", "malformed"),
    Attack("src/\x1b[2J.py", "malformed", "malformed"),
    Attack("n" * 256, "malformed", "malformed"),
    Attack("é" * 128, "malformed", "malformed"),
    Attack("/".join(["d" * 20] * 250), "malformed", "malformed"),
    Attack("/".join("d" * 300), "malformed", "malformed"),
    Attack("x" * 5000, "malformed", "malformed"),
    # Links.
    Attack("in/a.py", "symlink", None, "src/a.py"),
    Attack("in/new.py", "symlink", None, "src/new.py"),
    Attack("in/new/deep.py", "symlink", None, "src/new/deep.py"),
    Attack("leaf_in", "symlink", None, "src/a.py"),
    Attack("chain/a.py", "symlink", None, "src/a.py"),
    Attack("around/a.py", "symlink", None, "src/a.py"),
    Attack("dangling_in", "symlink", None, "src/not_yet.py"),
    Attack("out/secret.txt", "outsideRoot", "outsideRoot"),
    Attack("out/new.txt", "outsideRoot", "outsideRoot"),
    Attack("out/a/b/new.txt", "outsideRoot", "outsideRoot"),
    Attack("rel_out/new.txt", "outsideRoot", "outsideRoot"),
    Attack("leaf_out", "outsideRoot", "outsideRoot"),
    Attack("dangling_out", "outsideRoot", "outsideRoot"),
    Attack("abs_in/a.py", "outsideRoot", "outsideRoot"),
    Attack("far_around/secret.txt", "outsideRoot", "outsideRoot"),
    Attack("loop", "symlink", "symlink"),
    Attack("loop/x", "symlink", "symlink"),
    Attack("mutual_a/x", "symlink", "symlink"),
    Attack("in/../out/secret.txt", "outsideRoot", "outsideRoot"),
    # Protected names, also behind links.
    Attack(".git/config", "protected", "protected"),
    Attack(".Git/hooks/post-merge", "protected", "protected"),
    Attack(".GIT/config", "protected", "protected"),
    Attack(".gi\u200ct/config", "protected", "protected"),
    Attack(".git./config", "protected", "protected"),
    Attack(".git /config", "protected", "protected"),
    Attack("git~1/config", "protected", "protected"),
    Attack("\uff0egit/config", "protected", "protected"),
    Attack("sub/.git", "protected", "protected"),
    Attack("link_git/config", "symlink", "protected"),
    Attack("link_hooks/pre-commit", "symlink", "protected"),
    Attack("link_configuration", "symlink", "protected"),
    Attack(".VSCode/tasks.json", "protected", "protected"),
    Attack(".exrc", "protected", "protected"),
    Attack("devtools.toml", "protected", "protected"),
    Attack(".devtools/x", "protected", "protected"),
    Attack(".gitignore", None, None),
    # What is no regular file.
    Attack("fifo", "protected", "protected"),
    Attack("device", "protected", "protected"),
    Attack("src/a.py/below", "notFound", "notFound"),
]


@pytest.fixture
def scene(tree, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_bytes(b"secret")
    (tmp_path / "root-evil").mkdir()
    (tmp_path / "root-evil" / "s.txt").write_bytes(b"evil")
    root = tree.root
    tree.fill({"src/a.py": b"a\n", "devtools.toml": b"", "sub/x": b"x"})
    (root / ".git" / "hooks").mkdir(parents=True)
    links = {
        "in": "src",
        "leaf_in": "src/a.py",
        "chain": "in",
        "around": "sub/../src",
        "far_around": "sub/../../outside",
        "dangling_in": "src/not_yet.py",
        "out": str(outside),
        "rel_out": "../outside",
        "leaf_out": "../outside/secret.txt",
        "dangling_out": "../outside/new.txt",
        "abs_in": str(root / "src"),
        "loop": "loop",
        "mutual_a": "mutual_b",
        "mutual_b": "mutual_a",
        "link_git": ".git",
        "link_hooks": ".git/hooks",
        "link_configuration": "devtools.toml",
    }
    for name, target in links.items():
        os.symlink(target, root / name)
    os.mkfifo(root / "fifo")
    if os.geteuid() == 0:
        os.mknod(root / "device", 0o600 | 0o020000, os.makedev(1, 3))
    else:
        os.mkfifo(root / "device")
    return tree


def everything(tmp_path, root):
    """All bytes, links and kinds outside the root, and inside it but for the journal."""
    found = {}
    for directory, names, files in os.walk(tmp_path):
        if directory == str(root):
            names[:] = [name for name in names if name != ".devtools"]
        if directory == str(root / ".git"):
            names[:] = [name for name in names if name != "devtools-lsp"]
        for name in [*names, *files]:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            content = None
            if os.path.islink(path):
                content = os.readlink(path)
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    content = file.read()
            found[path] = (status.st_mode, content)
    return found


async def through_screen(handle, path, access="write"):
    await handle.gauntlet.screen(path, access)


async def through_gauntlet(handle, path):
    await handle.gauntlet.commit(ANYTHING, [Mutation("write", handle.gauntlet.lexical(path), b"new\n")], lambda _: None)


async def through_a_move(handle, path):
    move = Mutation("rename", handle.gauntlet.lexical(path), source="sub/x")
    await handle.gauntlet.commit(ANYTHING, [move], lambda _: None)


async def through_transaction(handle, path):
    """The file system alone, as if the gauntlet had been fooled: stages 5 and 6 are judged there again."""
    await handle.file_system.commit_witnessed(
        "p", [Mutation("write", handle.gauntlet.lexical(path), b"new\n")], make_parents=True
    )


async def through_write(handle, path):
    try:
        await handle.file_system.write(handle.gauntlet.lexical(path), b"new\n")
    except FileNotFoundError as error:
        # The plain method makes no parents; that is a refusal here, and an honest one.
        raise PolicyError("no parent", reason="notFound") from error


WAYS = [through_gauntlet, through_a_move, through_transaction, through_write]


def shown(value):
    return value.path[:40].encode("unicode_escape").decode() or "root" if isinstance(value, Attack) else None


@pytest.mark.parametrize("symlinks", ["reject", "inside"])
@pytest.mark.parametrize("attack", ATTACKS, ids=shown)
async def test_every_way_in_gives_the_verdict(scene, opened, tmp_path, attack, symlinks):
    root = scene.root
    path = attack.path.replace("{root}", str(root))
    reason = getattr(attack, symlinks)
    handle = opened(symlinks=symlinks)
    before = everything(tmp_path, root)
    if reason is None:
        await through_screen(handle, path)
        await through_gauntlet(handle, path)
        landed = root / (attack.lands or attack.path)
        assert landed.read_bytes() == b"new\n"
        assert not landed.is_symlink()
        changed = {name for name, found in everything(tmp_path, root).items() if before.get(name) != found}
        parents = {str(parent) for parent in landed.parents}
        assert {name for name in changed if name not in parents} == {str(landed)}
        return
    for way in [through_screen, *WAYS]:
        if way is through_a_move and (root / "src").exists() and path in ("fifo", "device"):
            continue  # Something is there, which is the earlier of two good reasons.
        with pytest.raises(DevToolsError) as refused:
            await way(handle, path)
        if way is not through_write or refused.value.reason != "notFound":
            # Without the gauntlet the root is known for what it is, a directory.
            late = "isDirectory" if path in ("", ".") and way in (through_transaction, through_write) else reason
            assert (way.__name__, refused.value.reason) == (way.__name__, late)
        assert str(tmp_path / "outside") not in refused.value.message
    assert everything(tmp_path, root) == before


@pytest.mark.parametrize("symlinks", ["reject", "inside"])
@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("src/a.py", b"a\n"),
        ("in/a.py", b"a\n"),
        ("leaf_in", b"a\n"),
        ("chain/a.py", b"a\n"),
        ("around/a.py", b"a\n"),
        ("leaf_out", "outsideRoot"),
        ("out/secret.txt", "outsideRoot"),
        ("abs_in/a.py", "outsideRoot"),
        ("loop", "symlink"),
        ("fifo", "protected"),
        ("device", "protected"),
        ("secret_alias", "protected"),
        ("src", "isDirectory"),
        ("in", "isDirectory"),
    ],
)
async def test_reads_follow_links_that_stay_inside_under_both_rules(scene, opened, path, verdict, symlinks):
    scene.fill({".env": b"TOKEN=1"})
    os.symlink(".env", scene.root / "secret_alias")
    handle = opened(symlinks=symlinks)
    if isinstance(verdict, bytes):
        assert await handle.file_system.read(path) == verdict
        assert await handle.gauntlet.screen(path, "read") == path
        return
    with pytest.raises(DevToolsError) as refused:
        await handle.file_system.read(path)
    assert refused.value.reason == verdict
    many = await handle.file_system.read_many([path, "src/a.py"])
    assert many["src/a.py"] == b"a\n"
    assert many[path].reason == verdict


async def test_a_dangling_link_reads_as_absent(scene, opened):
    with pytest.raises(FileNotFoundError):
        await opened().file_system.read("dangling_in")


@pytest.mark.parametrize("symlinks", ["reject", "inside"])
@pytest.mark.parametrize(
    "what", [".git", ".git/hooks", ".vscode"], ids=["the git directory", "its hooks", "a denied directory"]
)
async def test_a_bind_mount_of_a_protected_directory_is_known_by_identity(scene, opened, mounted, what, symlinks):
    (scene.root / what).mkdir(exist_ok=True)
    mounted("--bind", str(scene.root / what), at=scene.root / "alias")
    handle = opened(symlinks=symlinks)
    for path in ("alias/x", "alias/new/x", "alias"):
        for way in [through_screen, through_gauntlet, through_a_move, through_transaction]:
            with pytest.raises(DevToolsError) as refused:
                await way(handle, path)
            assert refused.value.reason in ("protected", "isDirectory")
    expected = {"hooks", "devtools-lsp"} if what == ".git" else set()
    assert {path.name for path in (scene.root / what).iterdir()} == expected


async def test_another_hard_link_keeps_the_old_content(scene, opened, tmp_path):
    """P57: an edit of one name of a file leaves the other name, here outside the root, as it was."""
    outside = tmp_path / "outside" / "secret.txt"
    os.link(outside, scene.root / "in.txt")
    handle = opened()
    await through_gauntlet(handle, "in.txt")
    assert (scene.root / "in.txt").read_bytes() == b"new\n"
    assert outside.read_bytes() == b"secret"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"pyproject.toml": b"[tool.devtools-lsp]\n"}, "protected"),
        ({"sub/pyproject.toml": b"[tool.devtools-lsp.gate]\n"}, "protected"),
        ({"pyproject.toml": b"[tool.ruff]\n"}, None),
    ],
)
async def test_pyproject_with_our_configuration_never_comes_into_being(scene, opened, files, reason):
    handle = opened()
    [(path, data)] = files.items()
    change = Mutation("write", path, data, expect=None)
    if reason is None:
        await handle.gauntlet.commit(ANYTHING, [change], lambda _: None)
        return
    with pytest.raises(PolicyError) as refused:
        await handle.gauntlet.commit(ANYTHING, [change], lambda _: None)
    assert refused.value.reason == reason
    assert not (scene.root / path).exists()


async def test_pyproject_with_our_configuration_is_not_touched_moved_or_deleted(scene, opened):
    scene.fill({"pyproject.toml": b"[tool.devtools-lsp]\n", "innocent.toml": b"[tool.devtools-lsp]\nx=1\n"})
    handle = opened()
    attempts = [
        [Mutation("write", "pyproject.toml", b"[tool.ruff]\n")],
        [Mutation("delete", "pyproject.toml")],
        [Mutation("rename", "moved.toml", source="pyproject.toml")],
        [
            Mutation("rename", "moved.toml", source="pyproject.toml"),
            Mutation("rename", "pyproject.toml", source="innocent.toml"),
        ],
    ]
    for access in ("write", "delete"):
        with pytest.raises(PolicyError):
            await handle.gauntlet.screen("pyproject.toml", access)
    for mutations in attempts:
        with pytest.raises(PolicyError):
            await handle.gauntlet.commit(ANYTHING, mutations, lambda _: None)
    (scene.root / "pyproject.toml").unlink()
    move = Mutation("rename", "pyproject.toml", source="innocent.toml")
    with pytest.raises(PolicyError):
        await handle.gauntlet.commit(ANYTHING, [move], lambda _: None)
    assert scene.files()["innocent.toml"] == b"[tool.devtools-lsp]\nx=1\n"


async def test_deep_and_long_paths_make_no_directory_before_they_are_refused(scene, opened):
    handle = opened()
    before = scene.directories()
    for path in ("/".join("d" * 300), "a/" + "b/" * 10 + "n" * 300, "/".join(["d" * 200] * 25)):
        with pytest.raises(PolicyError) as refused:
            await handle.gauntlet.commit(ANYTHING, [Mutation("write", path, b"x", expect=None)], lambda _: None)
        assert refused.value.reason == "malformed"
    assert scene.directories() == before


async def test_a_long_chain_of_links_ends(scene, opened):
    for number in range(60):
        os.symlink(f"l{number + 1}" if number < 59 else "src", scene.root / f"l{number}")
    handle = opened(symlinks="inside")
    assert await handle.file_system.read("l20/a.py") == b"a\n"
    with pytest.raises(PolicyError) as refused:
        await handle.file_system.read("l0/a.py")
    assert refused.value.reason == "symlink"


@pytest.mark.parametrize("orders", [("read", "write"), ("write", "read")])
async def test_a_path_that_is_asked_about_twice_is_judged_for_each(tree, orders):
    """One walk may stand for both questions, never one verdict: a link may be read and not written."""
    tree.fill({"a.txt": b"a", "secret.txt": b"s"})
    (tree.root / "link.txt").symlink_to("a.txt")
    policy = PathPolicy(deny_read=["secret.txt"], deny_write=["a.txt"])
    file_system = LocalFileSystem(str(tree.root), policy=policy)
    gauntlet = WriteGauntlet(str(tree.root), file_system, policy, RootTranslator())
    try:
        for path, why in (("link.txt", "symbolic link"), ("secret.txt", "deny_read"), ("a.txt", "deny_write")):
            with pytest.raises(PolicyError, match=why):
                await gauntlet.look_many([(path, access) for access in orders])
        assert await gauntlet.look_many([("new.txt", access) for access in orders]) == {"new.txt": None}
        assert await file_system.examine_many([("link.txt", "read"), ("link.txt", "read")]) == [FileStat("file", 1)] * 2
    finally:
        file_system.close()
