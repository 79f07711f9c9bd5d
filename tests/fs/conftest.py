"""Fixtures of the disk tests: trees as dictionaries, hashes, and a process to kill."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.opening import open_local
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.recovery import RecoveryReport

PLACE = os.environ.get("DEVTOOLS_LSP_TEST_DIR") or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
"""Where the trees of these tests stand: in memory if possible, since they sync a hundred thousand times. Set the
variable to a directory of another file system to run them there."""

JOURNALS = (".devtools", ".git")


class Tree:
    """A directory to break: files from a dictionary, and what is there now as one."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def fill(self, files: dict[str, bytes]) -> Tree:
        for path, data in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return self

    def files(self) -> dict[str, bytes]:
        """Every regular file outside the journal, links not followed."""
        found: dict[str, bytes] = {}
        for directory, names, files in os.walk(self.root):
            if Path(directory) == self.root:
                names[:] = [name for name in names if name not in JOURNALS]
            for name in files:
                path = Path(directory, name)
                if path.is_file() and not path.is_symlink():
                    found[str(path.relative_to(self.root))] = path.read_bytes()
        return found

    def directories(self) -> set[str]:
        found: set[str] = set()
        for directory, names, _ in os.walk(self.root):
            if Path(directory) == self.root:
                names[:] = [name for name in names if name not in JOURNALS]
            found.update(str(Path(directory, name).relative_to(self.root)) for name in names)
        return found

    def litter(self) -> list[str]:
        """Names of the journal that only a commit in progress may have, and temporaries in the tree."""
        found = [path for path in self.files() if ".devtools-lsp-" in path or path.endswith(".kept")]
        for place in (self.root / ".devtools", self.root / ".git" / "devtools-lsp"):
            if place.is_dir():
                names = [path.name for path in place.rglob("*")]
                kinds = (".intent", ".new.", ".gone.", ".back.", ".strays", ".writing")
                found += [name for name in names if any(kind in name for kind in kinds)]
        return found


@pytest.fixture
def tmp_path() -> Generator[Path]:
    """As pytest's own, but at `PLACE`."""
    with tempfile.TemporaryDirectory(prefix="devtools-lsp-", dir=PLACE, ignore_cleanup_errors=True) as directory:
        yield Path(directory).resolve()


@pytest.fixture
def tree(tmp_path) -> Tree:
    root = tmp_path / "root"
    root.mkdir()
    return Tree(root)


@pytest.fixture
def sha():
    return lambda data: hashlib.sha256(data).hexdigest()


@pytest.fixture
def opened(tree):
    """Open a root with `open_local`, and close it after the test whatever happened."""
    handles = []

    def open_(root: Path | str | None = None, **options):
        handle = open_local(str(root or tree.root), **options)
        handles.append(handle)
        return handle

    yield open_
    for handle in handles:
        handle.close()


@pytest.fixture
def recover(tree):
    """Open the root, recover it, close it, and give the report; without asking git, for loops."""

    def recover_() -> RecoveryReport:
        file_system = LocalFileSystem(str(tree.root), policy=PathPolicy())
        try:
            return file_system.recover_now()
        finally:
            file_system.close()

    return recover_


class Crasher:
    """Runs commits and recoveries in processes that may die."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "zygote.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, **request) -> int:
        """The exit status: 0, or minus the signal. Anything else fails the test with the child's traceback."""
        answer = self._ask(request)
        assert answer["status"] in (0, -signal.SIGKILL), answer["text"]
        return answer["status"]

    def failing(self, **request) -> str:
        """The traceback of a child that must fail with an exception."""
        answer = self._ask(request)
        assert answer["status"] == 3, answer
        return answer["text"]

    def _ask(self, request: dict) -> dict:
        self._send(request)
        return json.loads(self._process.stdout.readline())

    def _send(self, request: dict) -> None:
        if "mutations" in request:
            request["mutations"] = [
                {**msgspec.structs.asdict(mutation), "data": base64.b64encode(mutation.data).decode()}
                for mutation in request["mutations"]
            ]
        self._process.stdin.write(json.dumps({**request, "root": str(request["root"])}) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def crasher():
    crasher = Crasher()
    yield crasher
    crasher.close()


@pytest.fixture
def mounted():
    """Mount something for one test, or skip it where that is not allowed."""
    points: list[str] = []

    def mount(*arguments: str, at: Path) -> Path:
        at.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["mount", *arguments, str(at)], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"mounting is not possible here: {done.stderr.strip()}")
        points.append(str(at))
        return at

    yield mount
    for point in reversed(points):
        subprocess.run(["umount", "-l", point], check=True, capture_output=True)
