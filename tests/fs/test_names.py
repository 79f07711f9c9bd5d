"""Names by text alone: folding, mandatory denies, always-ask."""

from __future__ import annotations

import pytest

from devtools_lsp.errors import PolicyError
from devtools_lsp.fs.names import (
    always_ask,
    check_creatable,
    check_depth,
    denied_component,
    fold,
    is_pyproject,
    is_repository_layout,
)

SPELLINGS_OF_GIT = [
    ".git",
    ".GIT",
    ".Git",
    ".git.",
    ".git ",
    ".git. . ",
    ".git...",
    ".git\t",
    ".git:stream",
    ".git::$INDEX_ALLOCATION",
    "git~1",
    "GIT~1",
    "git~27",
    ".gi\u200ct",
    ".g\u200dit",
    "\u200e.git",
    ".git\u200f",
    ".g\u202ait",
    ".g\u2064it",
    ".g\u206ait",
    "\ufeff.git",
    ".g\u00adit",
    ".g\ufe0fit",
    ".g\u034fit",
    "\uff0egit",
    ".\uff47\uff49\uff54",
    "\uff0e\uff27\uff29\uff34",
    ".\u24d6\u24d8\u24e3",
    ".\U0001d420\U0001d422\U0001d42d",
    ".g\u0131t".replace("\u0131", "i"),
    "\u2024git",
    ".GI\uff34:x. ",
]

DENIED = [
    ".git",
    ".git/config",
    "a/b/.git/hooks/pre-commit",
    "sub/.git",
    ".gitmodules",
    ".gitconfig",
    ".hg/hgrc",
    ".svn/x",
    ".jj/repo",
    ".vscode/tasks.json",
    ".VSCode/settings.json",
    ".idea/workspace.xml",
    ".husky/pre-commit",
    ".devcontainer/devcontainer.json",
    "x.code-workspace",
    "X.CODE-WORKSPACE",
    ".claude/settings.json",
    ".codex/config.toml",
    ".agents/x",
    ".cursor/rules",
    ".mcp.json",
    "sub/.mcp.json",
    ".github/hooks/x",
    ".github/agents/x.md",
    ".GitHub/Hooks/x",
    ".bashrc",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".envrc",
    ".ripgreprc",
    ".netrc",
    ".ssh/authorized_keys",
    ".exrc",
    ".nvim.lua",
    "sub/.NVIM.lua",
    ".nvimrc",
    "devtools.toml",
    "packages/a/devtools.toml",
    "DevTools.toml.",
    ".devtools/x/lock",
]

OPEN = [
    "src/a.py",
    ".gitignore",
    ".gitattributes",
    ".github/workflows/ci.yml",
    ".github/dependabot.yml",
    "hooks/pre-commit",
    "agents/x.md",
    "git/config",
    "a.git/x",
    "x.git",
    "git~/x",
    "git~x",
    "vscode/tasks.json",
    "workspace",
    "devtools.toml.md",
    ".env",
    "docs/.profile.md",
    "naïve/日本.txt",
    "",
]

ASK = [
    "package.json",
    "a/b/package.json",
    "Package.JSON",
    "Cargo.toml",
    "build.rs",
    "pyproject.toml",
    "setup.py",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    "pnpm-workspace.yaml",
    ".gitattributes",
    ".env",
    ".env.local",
    ".env.production",
    ".pre-commit-config.yaml",
    "App.csproj",
    "Directory.Build.props",
    "x.targets",
    "build.gradle",
    "build.gradle.kts",
    "settings.gradle",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "bun.lockb",
    "bun.lock",
    "Cargo.lock",
    "poetry.lock",
    "uv.lock",
    "Pipfile.lock",
    "Gemfile.lock",
    "composer.lock",
    "go.sum",
    "packages.lock.json",
    "gradle.lockfile",
    ".github/workflows/ci.yml",
    ".github/workflows/deep/er/x.yml",
    "sub/.GITHUB/Workflows/x.yml",
    "package\u200b.json",
]

NO_ASK = [
    "src/a.py",
    "README.md",
    "packages.json",
    "cargo.md",
    "env",
    "x.prop",
    ".github/x.yml",
    "workflows/x.yml",
    "lock",
]


@pytest.mark.parametrize("name", SPELLINGS_OF_GIT)
def test_every_spelling_of_git_is_git(name):
    assert fold(name) == ".git"
    assert denied_component(f"a/{name}/hooks/x") == name


@pytest.mark.parametrize("path", DENIED)
def test_mandatory_denies(path):
    assert denied_component(path) is not None


@pytest.mark.parametrize("path", OPEN)
def test_neighbours_of_denied_names_are_open(path):
    assert denied_component(path) is None


@pytest.mark.parametrize("path", ASK)
def test_names_that_always_ask(path):
    assert always_ask(path)


@pytest.mark.parametrize("path", NO_ASK)
def test_names_that_need_not_ask(path):
    assert not always_ask(path)


@pytest.mark.parametrize(
    "path",
    ["a\nb", "a\x1b[31m", "x/\x00", "a\\b", "\\\\server\\share", "a/\x7f", "a/\x85b", "tab\tname", "bad\udcff.txt"],
)
def test_names_that_must_not_come_into_being(path):
    with pytest.raises(PolicyError) as refused:
        check_creatable(path.split("/"), path)
    assert refused.value.reason == "malformed"


@pytest.mark.parametrize("path", ["a b", "[id].tsx", "ü/日本", "#x", "-rf", "a:b", "\u202eevil", "it's"])
def test_names_that_may_come_into_being(path):
    check_creatable(path.split("/"), path)


def test_depth_is_bounded():
    check_depth("/".join("d" * 128))
    with pytest.raises(PolicyError):
        check_depth("/".join("d" * 129))


@pytest.mark.parametrize("path", ["pyproject.toml", "a/PyProject.TOML", "pyproject.toml.", "pyproject.toml:x"])
def test_spellings_of_pyproject(path):
    assert is_pyproject(path)


@pytest.mark.parametrize(
    ("present", "verdict"),
    [
        ({"HEAD", "objects", "refs"}, True),
        ({"HEAD", "objects", "refs", "config"}, True),
        ({"head", "OBJECTS", "Refs"}, True),
        ({"HEAD", "commondir"}, True),
        ({"HEAD", "objects"}, False),
        ({"objects", "refs", "config"}, False),
        ({"HEAD"}, False),
        ({"commondir"}, False),
        (set(), False),
    ],
)
def test_what_git_takes_for_a_repository(present, verdict):
    assert is_repository_layout(present) is verdict
