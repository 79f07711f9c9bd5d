"""Where the root, the socket and the private directories are, and whom we refuse to trust (SPEC 8.0.1, 8.0.2)."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools_lsp import discovery
from devtools_lsp.discovery import peers, places
from devtools_lsp.errors import InvalidConfigError, PolicyError
from tests.toy_daemon import private_places


@pytest.fixture
def root() -> Iterator[Path]:
    with private_places() as made:
        yield made


# -- the root ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marker", ["devtools.toml", "pyproject.toml", ".git"])
@pytest.mark.parametrize("as_directory", [False, True])
def test_the_nearest_directory_up_with_a_marker_is_the_root(tmp_path: Path, marker: str, as_directory: bool):
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    start = inner / "src" / "deep"
    start.mkdir(parents=True)
    (outer / ".git").mkdir()
    assert discovery.find_root(start) == outer.resolve()
    # A worktree's .git is a file.
    (inner / marker).mkdir() if as_directory else (inner / marker).touch()
    assert discovery.find_root(start) == inner.resolve()


def test_links_are_resolved(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "pyproject.toml").touch()
    (tmp_path / "link").symlink_to("real")
    assert discovery.find_root(tmp_path / "link") == (tmp_path / "real").resolve()


def test_without_a_marker_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(places, "MARKERS", ("no such marker",))
    with pytest.raises(InvalidConfigError, match="--root DIR"):
        discovery.find_root(tmp_path)


@pytest.mark.parametrize("wide", ["/", "home", "link to home", "home by the user database"])
def test_the_file_systems_root_and_home_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide: str):
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    (home / ".git").mkdir()
    if wide != "home by the user database":
        monkeypatch.setenv("HOME", str(home))
    (tmp_path / "link").symlink_to("home")
    place = {"/": "/", "home": home, "link to home": tmp_path / "link"}.get(wide) or os.path.expanduser(
        f"~{os.environ.get('USER') or 'root'}"
    )
    if wide == "home by the user database":
        monkeypatch.setenv("HOME", "/elsewhere")
    with pytest.raises(InvalidConfigError, match="too wide"):
        discovery.checked_root(place)
    if wide == "home":
        # A repository of dotfiles in the home directory is not taken for a project's root.
        with pytest.raises(InvalidConfigError, match="too wide"):
            discovery.find_root(home / "project")


def test_a_root_must_be_a_directory(tmp_path: Path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "absent"):
        with pytest.raises(InvalidConfigError, match="not a directory"):
            discovery.checked_root(place)


# -- private places ----------------------------------------------------------------------------------------------


def test_the_socket_is_named_after_the_roots_real_path(root: Path):
    expected = hashlib.sha256(os.path.realpath(root).encode()).hexdigest()[:16] + ".sock"
    run = Path(os.environ["XDG_RUNTIME_DIR"]) / "devtools-lsp"
    assert discovery.socket_path(root) == run / expected
    (root.parent / "link").symlink_to(root)
    assert discovery.socket_path(root.parent / "link") == run / expected
    assert run.stat().st_mode & 0o777 == 0o700


def test_the_variable_names_the_socket(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEVTOOLS_LSP_SOCKET", str(root / "my.sock"))
    assert discovery.socket_path(root) == root / "my.sock"


def test_a_path_that_no_socket_can_have_is_refused_with_the_way_out(root: Path, monkeypatch: pytest.MonkeyPatch):
    longest = "/" + "x" * (discovery.SOCKET_PATH_BYTES - 2)
    monkeypatch.setenv("DEVTOOLS_LSP_SOCKET", longest)
    assert str(discovery.socket_path(root)) == longest
    monkeypatch.setenv("DEVTOOLS_LSP_SOCKET", longest + "x")
    with pytest.raises(InvalidConfigError, match="DEVTOOLS_LSP_SOCKET to a shorter path"):
        discovery.socket_path(root)


@pytest.mark.parametrize("useless", ["", "relative/run", "absent", "another user's"])
def test_an_unusable_runtime_directory_falls_back_to_a_private_temporary_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, useless: str
):
    value = useless
    if useless == "absent":
        value = str(root.parent / "absent")
    if useless == "another user's":
        if os.getuid() != 0:
            pytest.skip("only root can give a directory to another user")
        foreign = root.parent / "foreign"
        foreign.mkdir()
        os.chown(foreign, 12345, 12345)
        value = str(foreign)
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    monkeypatch.setenv("TMPDIR", str(root.parent))
    assert discovery.runtime_directory() == root.parent / f"devtools-lsp-{os.getuid()}"
    monkeypatch.setenv("TMPDIR", str(root.parent / "absent"))
    assert discovery.runtime_directory() == Path(f"/tmp/devtools-lsp-{os.getuid()}")


def test_a_directory_that_others_can_look_into_is_closed(tmp_path: Path):
    (tmp_path / "d").mkdir(mode=0o755)
    discovery.private_directory(tmp_path / "d")
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("squat", ["symlink", "dangling symlink", "file", "writable by others", "another user's"])
def test_a_squatted_directory_is_refused_and_the_victim_untouched(tmp_path: Path, squat: str):
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (victim / "file").write_text("kept")
    place = tmp_path / "devtools-lsp"
    if squat == "symlink":
        place.symlink_to(victim)
    elif squat == "dangling symlink":
        place.symlink_to(tmp_path / "absent")
    elif squat == "file":
        place.write_text("kept")
    else:
        place.mkdir()
        if squat == "another user's":
            if os.getuid() != 0:
                pytest.skip("only root can give a directory to another user")
            os.chown(place, 12345, 12345)
        else:
            place.chmod(0o777)
    before = place.lstat()
    with pytest.raises(PolicyError, match="remove it"):
        discovery.private_directory(place)
    assert place.lstat() == before
    assert victim.stat().st_mode & 0o777 == 0o755
    assert os.listdir(victim) == ["file"]
    assert not (tmp_path / "absent").exists()


def test_the_state_directory_is_private_and_one_for_each_root(root: Path):
    place = discovery.state_directory(root)
    assert place == Path(os.environ["XDG_STATE_HOME"]) / "devtools-lsp" / discovery.root_id(root)
    assert place.stat().st_mode & 0o777 == 0o700
    assert place.parent.stat().st_mode & 0o777 == 0o700


def test_a_state_directory_that_cannot_be_made_says_what_to_set(root: Path, monkeypatch: pytest.MonkeyPatch):
    (root / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "file"))
    with pytest.raises(InvalidConfigError, match="set XDG_STATE_HOME"):
        discovery.state_directory(root)


# -- locks and peers ---------------------------------------------------------------------------------------------


def test_a_lock_has_one_holder_for_as_long_as_it_is_open(tmp_path: Path):
    path = tmp_path / "a.lock"
    assert discovery.lock_holder(path) is None
    lock = discovery.try_lock(path)
    assert lock is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert discovery.try_lock(path) is None
    assert discovery.lock_holder(path) == os.getpid()
    os.close(lock)
    assert discovery.lock_holder(path) is None
    again = discovery.try_lock(path)
    assert again is not None
    os.close(again)


def test_a_lock_file_that_is_a_link_is_refused_and_its_target_untouched(tmp_path: Path):
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "a.lock").symlink_to("victim")
    with pytest.raises(PolicyError, match="lock file"):
        discovery.try_lock(tmp_path / "a.lock")
    assert (tmp_path / "victim").read_text() == "kept"


def test_the_kernel_says_who_the_peer_is():
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        pid, uid = discovery.peer_credentials(one)
    assert uid == os.getuid()
    assert pid in (os.getpid(), None)


def test_a_server_of_another_user_gets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = Path(os.path.relpath(tmp_path)) / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        monkeypatch.setattr(peers, "peer_credentials", lambda _connection: (1, 54321))
        with pytest.raises(PolicyError, match="belongs to user 54321"):
            discovery.connect(path)


def test_importing_it_loads_only_the_standard_library():
    program = (
        "import sys; before = set(sys.modules); import devtools_lsp.stdio_proxy; "
        "print('\\n'.join(sorted(name.split('.')[0] for name in set(sys.modules) - before)))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loaded = set(printed.split())
    assert loaded <= set(sys.stdlib_module_names) | {"devtools_lsp"}
    # These cost more than all the rest together.
    assert loaded.isdisjoint({"asyncio", "subprocess", "json", "tempfile", "logging"})
