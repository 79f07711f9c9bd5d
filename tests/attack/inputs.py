"""The paths of an attacker, each with the verdict that every door must give.

`reject` and `inside` are the reason of the refusal under each symlink rule, None where the path is fine; `lands` is
then the resolved path where that is another. They are what other systems were fooled with: spellings that a file
system or a tool reads as another name, links, special files, and names after which an innocent program runs code.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.attack.doors import NEW, OLD, SPARE, TRIGGER


@dataclass(frozen=True)
class Input:
    """One path as somebody wrote it; `{root}` stands for the root's own absolute path.

    `takes_away`: what is there does no harm by going, so that only doors that put something there are refused.
    """

    path: str
    reject: str | None
    inside: str | None
    lands: str | None = None
    takes_away: bool = False

    def __str__(self) -> str:
        return self.path[:40].encode("unicode_escape").decode() or "empty"


def always(reason: str, *paths: str) -> list[Input]:
    """Refused under both symlink rules."""
    return [Input(path, reason, reason) for path in paths]


def fine(path: str, lands: str | None = None) -> Input:
    return Input(path, None, None, lands)


def linked(path: str, lands: str | None = None, *, inside: str | None = None) -> Input:
    """Goes through a link that stays in the root: refused, or followed to where it leads and judged there."""
    return Input(path, "symlink", inside, lands)


# fmt: off
INPUTS = [
    fine("src/a.py"),
    fine("src/new.py"),
    fine("new/deep/er/file.py"),
    fine("./src//./a.py", "src/a.py"),
    fine("src/x/../a.py", "src/a.py"),
    fine("{root}/src/a.py", "src/a.py"),
    fine("src/[id].py"),
    fine("src/größe.py"),
    fine(".gitignore"),
    fine(".gitattributes"),
    fine(".github/notes.md"),
    fine("git/config"),
    fine("linked.txt"),
    fine("sub/HEAD"),

    # Out of the root, by text alone.
    *always(
        "outsideRoot",
        "..", "../outside/secret.txt", "src/../../outside/secret.txt", "../root-evil/s.txt", "{root}-evil/s.txt",
        "{root}/../outside/secret.txt", "/etc/passwd", "/proc/self/cwd/src/a.py", "~", "~/x", "in/../../outside/x",
    ),

    # What no path of ours looks like.
    *always(
        "malformed",
        "src/a\0.py", "C:\\x", "C:/x", "c:", "\\\\server\\share\\x", "//server/share/x", "\\\\?\\C:\\x", "\\\\.\\COM1",
        "//./x", "//?/x", "src/bad\udcff.py", "src/new\\file.py", "src/new\nline.py", "src/\x1b[2J.py", "src/\x7f.py",
        "src/\x85.py", "n" * 256, "é" * 128, "/".join(["d" * 20] * 250), "/".join("d" * 300), "x" * 5000,
    ),

    # Links.
    linked("in/a.py", "src/a.py"),
    linked("in/new.py", "src/new.py"),
    linked("in/new/deep.py", "src/new/deep.py"),
    linked("leaf_in", "src/a.py"),
    linked("chain/a.py", "src/a.py"),
    linked("around/a.py", "src/a.py"),
    linked("dangling_in", "src/not_yet.py"),
    *always(
        "outsideRoot",
        "out/secret.txt", "out/new.txt", "out/a/b/new.txt", "rel_out/new.txt", "leaf_out", "dangling_out",
        "abs_in/a.py", "far_around/secret.txt", "proc/src/a.py", "in/../out/secret.txt",
    ),
    *always("symlink", "loop", "loop/x", "mutual_a/x"),

    # Names that run code, in every spelling that some file system takes for them.
    *always(
        "protected",
        ".git", ".git/config", ".git/hooks/post-merge", ".git/info/attributes", ".git/worktrees/w/commondir",
        ".git/devtools-lsp/x", ".git/modules/m/config", ".Git/hooks/post-merge", ".GIT/config", ".gi\u200ct/config",
        ".g\u00adit/config", "\u202e.git/config", ".git./config", ".git /config", ".git. . /config", ".git:x/config",
        ".git::$INDEX_ALLOCATION/config", "git~1/config", "GIT~2/config", "\uff0egit/config", ".g\uff49t/config",
        "src/x/../../.git/config", "sub/.git", "sub/.git/config", "src/.GIT",
        ".gitmodules", "gitmod~1", ".gitconfig", ".hg/hgrc", ".svn/x", ".jj/x", ".vscode/tasks.json",
        ".VSCode/tasks.json", ".idea/x.xml", ".husky/pre-commit", ".devcontainer/devcontainer.json",
        "x.code-workspace", "x.CODE-WORKSPACE", ".claude/settings.json", ".codex/x", ".agents/x", ".cursor/x",
        ".mcp.json", "sub/.mcp.json", ".github/hooks/x", ".github/agents/x.md", ".GitHub/Hooks/x", ".bashrc",
        ".bash_profile", ".profile", ".zshrc", ".zprofile", ".zshenv", ".envrc", "sub/.envrc", ".ripgreprc", ".netrc",
        ".ssh/authorized_keys", ".exrc", "sub/.EXRC", ".nvim.lua", ".Nvim.Lua", ".nvimrc",
    ),
    # Repositories that are none of the root's own, and what its configuration points to.
    *always("protected", "tools/hooks/pre-commit", "team.ini"),
    *[Input(path, "protected", "protected", takes_away=True) for path in (
        "data/repo/config", "data/repo/hooks/post-update", "data/repo/new", "half/HEAD", "tree/commondir",
    )],
    # The daemon's own.
    *always("protected", "devtools.toml", "sub/devtools.toml", "DEVTOOLS.toml", ".devtools/x", "state/x", "run/d.sock"),
    linked("link_git/config", inside="protected"),
    linked("link_hooks/pre-commit", inside="protected"),
    linked("link_configuration", inside="protected"),
    linked("link_state/x", inside="protected"),

    # What is no regular file.
    *always("protected", "fifo", "device", "socket"),
    *always("notFound", "src/a.py/below"),
]
# fmt: on

LINKS = {
    "in": "src",
    "leaf_in": "src/a.py",
    "chain": "in",
    "around": "sub/../src",
    "far_around": "sub/../../outside",
    "dangling_in": "src/not_yet.py",
    "rel_out": "../outside",
    "leaf_out": "../outside/secret.txt",
    "dangling_out": "../outside/new.txt",
    "proc": "/proc/self/cwd",
    "loop": "loop",
    "mutual_a": "mutual_b",
    "mutual_b": "mutual_a",
    "link_git": ".git",
    "link_hooks": ".git/hooks",
    "link_configuration": "devtools.toml",
    "link_state": "state",
}
FILES = ("src/a.py", "sub/x", "devtools.toml", ".vscode/tasks.json", ".exrc", "tools/hooks/pre-commit", "state/x")
OWN = ("state", "run/d.sock")


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "init.templateDir=", *arguments], cwd=root, check=True, capture_output=True)


def build(base: Path) -> Path:
    """The tree to attack: `<base>/root` with `<base>/outside` and `<base>/root-evil` beside it. Needs git."""
    root, outside = base / "root", base / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(OLD)
    (outside / "twin.txt").write_text(OLD)
    (base / "root-evil").mkdir()
    (base / "root-evil/s.txt").write_text(OLD)
    root.mkdir(exist_ok=True)
    git(root, "init", "-q")
    git(root, "config", "core.hooksPath", "tools/hooks")
    git(root, "config", "include.path", "../team.ini")
    for path in FILES:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(OLD)
    for path in (SPARE, TRIGGER):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(NEW)
    git(root, "init", "-q", "--bare", "data/repo")
    for path in ("half/objects", "half/refs", "tree"):
        (root / path).mkdir(parents=True)
    (root / "tree/HEAD").write_text("ref: refs/heads/main\n")
    for name, target in LINKS.items():
        os.symlink(target, root / name)
    os.symlink(outside, root / "out")
    os.symlink(root / "src", root / "abs_in")
    os.link(outside / "twin.txt", root / "linked.txt")
    os.mkfifo(root / "fifo")
    os.mkfifo(root / "socket")
    if os.geteuid() == 0:
        os.mknod(root / "device", 0o600 | 0o020000, os.makedev(1, 3))
    else:
        os.mkfifo(root / "device")
    return root


def everything(base: Path) -> dict[str, tuple[int, object]]:
    """Modes, links and bytes of all there is, but for what the journal and the daemon's own places hold."""
    found: dict[str, tuple[int, object]] = {}
    for directory, names, files in os.walk(base):
        if directory == str(base):
            names[:] = [name for name in names if name in ("root", "outside", "root-evil")]
        if Path(directory).name in ("root", ".git"):
            names[:] = [name for name in names if name not in (".devtools", "devtools-lsp")]
        for name in [*names, *files]:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            content: object = None
            if os.path.islink(path):
                content = os.readlink(path)
            elif os.path.isfile(path):
                content = Path(path).read_bytes()
            found[path] = (status.st_mode, content)
    return found
