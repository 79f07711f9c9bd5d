"""The path policy: rules, reading, configuration in pyproject.toml, and the places that git and the daemon own."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from devtools_lsp.errors import InvalidConfigError, PolicyError
from devtools_lsp.fs.policy import PathPolicy, carries_configuration
from devtools_lsp.fs.protected import ProtectedPlaces


def allowed(policy, path, access="write", identities=()):
    try:
        policy.judge(path, access, identities)
    except PolicyError as error:
        refused = (error.reason, error.path)
    else:
        return True
    assert refused == ("protected", path)
    return False


@pytest.mark.parametrize(
    ("rules", "path", "verdict"),
    [
        ({}, "src/a.py", True),
        ({}, ".hidden/a", True),
        ({"allow_write": ["src/**"]}, "src/a.py", True),
        ({"allow_write": ["src/**"]}, "docs/a.md", False),
        ({"allow_write": ["src/**"]}, "src/.hidden/x", True),
        ({"allow_write": []}, "src/a.py", False),
        ({"allow_write": ["**"], "deny_write": ["src/gen/**"]}, "src/gen/a.py", False),
        ({"allow_write": ["src/gen/**"], "deny_write": ["src/gen/**"]}, "src/gen/a.py", False),
        ({"deny_write": ["secret/**"]}, "Secret/x", False),
        ({"deny_write": ["Secret/**"]}, "sEcret/x", False),
        ({"deny_write": ["**/*.key"]}, "a/b.KEY", False),
        ({"deny_write": ["**/*.key"]}, "a/b.key.", False),
        ({"allow_write": ["SRC/**"]}, "src/a.py", False),
        ({"allow_write": [".git/**", "**"]}, ".git/config", False),
        ({"allow_write": ["devtools.toml"]}, "devtools.toml", False),
    ],
)
def test_rules(rules, path, verdict):
    assert allowed(PathPolicy(**rules), path) is verdict


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("src", True),
        ("src/new/deep", True),
        ("docs", False),
        ("src/.git", False),
        ("src/closed/x", False),
    ],
)
def test_directories_lead_to_where_the_rules_allow_files(path, verdict):
    policy = PathPolicy(allow_write=["src/**/*.py"], deny_write=["src/closed/**"])
    try:
        policy.judge(path, "create", directory=True)
    except PolicyError:
        assert not verdict
    else:
        assert verdict
    assert not allowed(policy, path)


@pytest.mark.parametrize("access", ["write", "create", "delete"])
def test_every_kind_of_change_is_judged(access):
    assert not allowed(PathPolicy(deny_write=["x"]), "x", access)


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        (".env", False),
        ("a/.env", False),
        (".env.local", False),
        (".ENV", False),
        ("certs/key.pem", False),
        ("id_rsa", False),
        ("x/id_ed25519", False),
        ("id_rsa.pub", True),
        (".envrc", True),
        (".git/config", True),
        ("src/a.py", True),
    ],
)
def test_secrets_are_not_read_by_default(path, verdict):
    assert allowed(PathPolicy(), path, "read") is verdict
    assert PathPolicy().readable(path) is verdict
    assert allowed(PathPolicy(deny_read=[]), path, "read")


@pytest.mark.parametrize(
    ("key", "pattern"), [("allow_write", "src/[a].py"), ("deny_write", "/x"), ("deny_read", "a**b")]
)
def test_a_bad_pattern_names_its_key(key, pattern):
    with pytest.raises(InvalidConfigError, match=rf"policy\.{key}"):
        PathPolicy(**{key: [pattern]})


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (b"[tool.devtools-lsp]\n", True),
        (b'[tool."devtools-lsp".gate]\nmode = "allow"\n', True),
        (b"tool.devtools-lsp.gate.mode = 'allow'\n", True),
        (b"[tool]\ndevtools-lsp = {gate = {mode = 'allow'}}\n", True),
        (b'[tool."devtools\\u002dlsp"]\n', True),
        (b"\xef\xbb\xbf[tool.devtools-lsp]\n", True),
        (b"[tool.devtools-lsp\n", True),
        (b"[tool.ruff]\n", False),
        (b"# devtools-lsp is great\n[tool.ruff]\n", False),
        (b"[project]\ndependencies = ['devtools-lsp']\n", False),
        (b"", False),
        (b"not toml at all [", False),
    ],
)
def test_what_carries_our_configuration(data, verdict):
    assert carries_configuration(data) is verdict


def test_pyproject_is_judged_before_and_after():
    policy = PathPolicy()
    ours, plain = b"[tool.devtools-lsp]\n", b"[tool.ruff]\n"
    policy.judge_content("pyproject.toml", [plain, plain])
    policy.judge_content("pyproject.toml", [None, plain])
    policy.judge_content("other.toml", [ours, ours])
    for contents in ([ours, plain], [plain, ours], [None, ours], [ours, None]):
        with pytest.raises(PolicyError, match="devtools-lsp"):
            policy.judge_content("sub/PyProject.toml", contents)


# -- places ------------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tree, tool):
    subprocess.run([tool("git"), "init", "-q", tree.root], check=True)
    return tree.root


def becomes(condition, within_s=0.5):
    """Whether it comes true in time; what is remembered without looking is remembered for 50 ms."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
    return True


def identity(path):
    found = os.stat(path)
    return (found.st_dev, found.st_ino)


def test_directories_of_git_are_known_by_identity(repository):
    policy = PathPolicy(root=str(repository))
    for name in ("", "hooks", "info", "objects", "refs"):
        assert not allowed(policy, "alias/x", identities=[identity(repository / ".git" / name)])
    (repository / "src").mkdir()
    assert allowed(policy, "src/x", identities=[identity(repository / "src")])


def test_other_denied_directories_are_known_by_identity(repository):
    (repository / ".vscode").mkdir()
    assert not allowed(PathPolicy(root=str(repository)), "alias/x", identities=[identity(repository / ".vscode")])


@pytest.mark.parametrize("hooks", ["tools/hooks", "./tools/hooks/", "tools/../tools/hooks"])
def test_the_target_of_hookspath_is_closed_even_before_it_exists(repository, hooks):
    subprocess.run(["git", "-C", repository, "config", "core.hooksPath", hooks], check=True)
    policy = PathPolicy(root=str(repository))
    assert not allowed(policy, "tools/hooks/pre-commit", "create")
    assert not allowed(policy, "Tools/Hooks/x", "create")
    assert allowed(policy, "tools/other", "create")


def test_an_absolute_hookspath_is_closed_too(repository):
    subprocess.run(["git", "-C", repository, "config", "core.hooksPath", str(repository / "h")], check=True)
    assert not allowed(PathPolicy(root=str(repository)), "h/pre-commit")


def test_hooks_in_the_root_itself_close_the_hooks_and_nothing_else(repository):
    subprocess.run(["git", "-C", repository, "config", "core.hooksPath", "."], check=True)
    policy = PathPolicy(root=str(repository))
    assert not allowed(policy, "pre-commit")
    assert not allowed(policy, "Post-Checkout")
    assert allowed(policy, "src/pre-commit")
    assert allowed(policy, "readme.md")


def test_a_hookspath_that_is_set_later_is_noticed(repository):
    policy = PathPolicy(root=str(repository))
    assert allowed(policy, "later/pre-commit")
    subprocess.run(["git", "-C", repository, "config", "core.hooksPath", "later"], check=True)
    assert becomes(lambda: not allowed(policy, "later/pre-commit"))
    subprocess.run(["git", "-C", repository, "config", "--unset", "core.hooksPath"], check=True)
    assert becomes(lambda: allowed(policy, "later/pre-commit"))


def test_a_configuration_file_that_git_includes_is_closed(repository):
    subprocess.run(["git", "-C", repository, "config", "include.path", "../team.gitconfig"], check=True)
    condition = "includeIf.onbranch:other.path"
    subprocess.run(["git", "-C", repository, "config", condition, "../conf/branch.ini"], check=True)
    policy = PathPolicy(root=str(repository))
    assert not allowed(policy, "team.gitconfig", "create")
    assert not allowed(policy, "conf/branch.ini", "create")
    assert allowed(policy, "conf/other.ini", "create")


def test_a_root_inside_a_repository_closes_its_hooks(repository):
    subprocess.run(["git", "-C", repository, "config", "core.hooksPath", "packages/a/hooks"], check=True)
    root = repository / "packages" / "a"
    root.mkdir(parents=True)
    policy = PathPolicy(root=str(root))
    assert not allowed(policy, "hooks/pre-commit")
    assert allowed(policy, "src/x")


def test_a_worktree_is_protected_by_its_own_git_directory(repository, tmp_path):
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@x", "-C", repository]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", tmp_path / "worktree"], check=True)
    places = ProtectedPlaces(str(tmp_path / "worktree")).current()
    assert identity(repository / ".git" / "worktrees" / "worktree") in places.identities
    assert identity(repository / ".git" / "hooks") in places.identities


def test_own_places_are_closed(tree):
    state = tree.root / "run" / "state"
    state.mkdir(parents=True)
    policy = PathPolicy(root=str(tree.root), own_paths=[str(state), str(tree.root / "run" / "daemon.sock")])
    assert not allowed(policy, "run/state/activity.jsonl")
    assert not allowed(policy, "run/daemon.sock", "delete")
    assert not allowed(policy, "elsewhere/x", identities=[identity(state)])
    assert allowed(policy, "run/other")


@pytest.mark.parametrize("path", [".devtools/x/y.old.0", ".git/devtools-lsp/x", ".GIT/DevTools-LSP/x", "run/state/log"])
def test_the_daemons_own_places_are_not_read_either(tree, path):
    """The journal holds old contents, also of files that are closed for reading themselves."""
    policy = PathPolicy(deny_read=[], root=str(tree.root), own_paths=[str(tree.root / "run" / "state"), "/elsewhere"])
    assert not allowed(policy, path, "read")
    assert allowed(policy, ".git/config", "read")
    assert allowed(policy, "run/other", "read")


def test_own_places_may_be_relative_where_there_is_no_disk():
    policy = PathPolicy(own_paths=["state"])
    assert not allowed(policy, "State/x")
    assert allowed(policy, "states/x")


def test_without_a_repository_names_still_count(tree):
    assert not allowed(PathPolicy(root=str(tree.root)), ".git/config")
    assert allowed(PathPolicy(root=str(tree.root)), "a")


def test_a_broken_git_configuration_closes_nothing_more_and_crashes_nothing(repository):
    (repository / ".git" / "config").write_text("[core\n")
    policy = PathPolicy(root=str(repository))
    assert allowed(policy, "src/x")
    assert not allowed(policy, ".git/config")
