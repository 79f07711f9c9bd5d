"""A real daemon in private places, agents in a thread of their own, and real editors on both."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from devtools_lsp.client import Client, connect
from tests.editors.neovim import neovim
from tests.editors.terminal import terminal
from tests.editors.workbench import code_server, tools, vsix

__all__ = ["code_server", "neovim", "terminal", "tools", "vsix"]

WAIT_S = 20.0
"""The bound of every wait: long enough for a busy machine, reached only by a failure."""
PROGRAM = str(Path(sys.executable).with_name("devtools-lsp"))
ASK = '[gate]\nmode = "editor"\n'


def until(condition: Callable[[], Any], what: str = "the condition", timeout_s: float = WAIT_S) -> Any:
    """Poll until it holds, and return what it gave."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.02)
    return found


class Agents:
    """Agents on one root's daemon, on an event loop in a thread: tests that drive editors are synchronous."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agents")
        self._thread.start()
        self._clients: list[Client] = []
        self._calls: list[tuple[str, concurrent.futures.Future[Any]]] = []

    def _run(self, coroutine: Any) -> concurrent.futures.Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def connect(self, name: str = "claude", role: Any = "agent", **options: Any) -> Client:
        wanted = {"start": False, **options}
        client = self._run(connect(self._root, name=name, role=role, **wanted)).result(WAIT_S)
        self._clients.append(client)
        return client

    def call(self, client: Client, tool: str, arguments: Mapping[str, Any]) -> concurrent.futures.Future[Any]:
        """A call under way: `.result()` waits for it."""
        call = self._run(client.call(tool, dict(arguments)))
        self._calls.append((tool, call))
        return call

    def tell(self) -> None:
        """Print how every call stands: pytest shows that with a failure."""
        for tool, call in self._calls[-20:]:
            outcome = "waits" if not call.done() else call.exception() or "ok"
            print(f"{tool}: {outcome}")

    def do(self, coroutine: Any) -> Any:
        return self._run(coroutine).result(WAIT_S)

    def edit(self, client: Client, path: str, find: str, replace: str) -> concurrent.futures.Future[Any]:
        return self.call(client, "edit", {"path": path, "edits": [{"find": find, "replace": replace}]})

    def close(self) -> None:
        for client in self._clients:
            self._run(client.close()).result(WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()


class Project:
    """A root, its private runtime and state directories, and its daemon, which comes and goes."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = base / "root"
        for name in ("root", "run", "state", "home"):
            (base / name).mkdir(mode=0o700)
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("DEVTOOLS_LSP", "NVIM"))},
            "XDG_RUNTIME_DIR": str(base / "run"),
            "XDG_STATE_HOME": str(base / "state"),
            "XDG_CONFIG_HOME": str(base / "home" / "config"),
            "XDG_DATA_HOME": str(base / "home" / "data"),
            "HOME": str(base / "home"),
        }
        self.process: subprocess.Popen[str] | None = None
        self.socket = ""
        self._agents: list[Agents] = []

    def put(self, files: Mapping[str, str | bytes]) -> None:
        for path, content in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def text(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def path(self, path: str) -> str:
        return str(self.root / path)

    def serve(self) -> None:
        """Start the daemon and wait for its READY line."""
        with (self.base / "daemon.log").open("a") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "serve", "--root", str(self.root)],
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("READY "), (self.base / "daemon.log").read_text()
        self.socket = line.split(" ", 1)[1].strip()

    def kill(self) -> None:
        """End the daemon as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(WAIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def end(self) -> None:
        """Ask the daemon to stop, whoever started it."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(WAIT_S)
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        for found in self.daemons():
            found.terminate()
            found.wait(WAIT_S)

    def daemons(self) -> list[psutil.Process]:
        """Every daemon of this root that runs, also one that an editor started."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if "serve" in words and str(self.root) in words and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def agents(self) -> Agents:
        made = Agents(self.root)
        self._agents.append(made)
        return made

    def close(self) -> None:
        for made in self._agents:
            made.tell()
            made.close()
        self.end()
        if (self.base / "daemon.log").exists():
            print((self.base / "daemon.log").read_text()[-4000:])


@pytest.fixture
def new_project(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Project]]:
    """Makes projects. The paths are short: a socket's path has at most 108 bytes."""
    made: list[Project] = []

    def make(files: Mapping[str, str | bytes], *, configuration: str = ASK, serve: bool = True) -> Project:
        project = Project(Path(tempfile.mkdtemp(prefix="ed-", dir="/tmp")).resolve())
        if made:
            # All projects of a test have their daemons in one user's places.
            for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
                project.env[name] = made[0].env[name]
        made.append(project)
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
            # Agents run in this process and find the socket as every client does.
            monkeypatch.setenv(name, project.env[name])
        project.put({"devtools.toml": configuration, **files})
        if serve:
            project.serve()
        return project

    yield make
    for project in made:
        try:
            project.close()
        finally:
            shutil.rmtree(project.base, ignore_errors=True)


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """`until`, for tests."""
    return until
