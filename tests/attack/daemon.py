"""The real daemon as a process to attack: `devtools-lsp serve` in private places, started, killed and judged.

Most daemons of this suite come out of the nursery (`nursery.py`), which is fast enough to kill hundreds; some are
started as an operator does, in an interpreter of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.attack.wire import WAIT_S, Agent, Wire

PROGRAM = Path(sys.executable).with_name("devtools-lsp")
PLACE = os.environ.get("DEVTOOLS_LSP_TEST_DIR") or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp")
"""Where roots stand: in memory if possible. Set the variable to a directory of another file system to attack there;
keep it short, since a socket's path has at most 108 bytes."""

ALLOW = '[gate]\nmode = "allow"\n'
JOURNALS = (".devtools", "devtools-lsp")


class Nursery:
    """Forks daemons; see `nursery.py`."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(60)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nursery.py")), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()

    def serve(self, argv: list[str], env: Mapping[str, str], output: int, errors: int, **options: Any) -> int:
        request = {"do": "serve", "argv": argv, "env": dict(env), **options}
        return self._ask(request, [output, errors])["pid"]

    def wait(self, pid: int) -> int:
        return self._ask({"do": "wait", "pid": pid}, [])["status"]

    def _ask(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        data = json.dumps(request).encode()
        if descriptors:
            socket.send_fds(self._channel, [data], descriptors)
        else:
            self._channel.send(data)
        return json.loads(self._channel.recv(1 << 16))

    def close(self) -> None:
        self._channel.close()
        self._process.wait(WAIT_S)


class Daemon:
    """One root with its own runtime, state and home directories; the process comes and goes."""

    def __init__(self, nursery: Nursery | None, configuration: str = ALLOW) -> None:
        """Without a nursery the daemon gets an interpreter of its own, as an operator's has."""
        self.base = Path(tempfile.mkdtemp(prefix="atk-", dir=PLACE)).resolve()
        self.root = self.base / "root"
        for name in ("root", "run", "home"):
            (self.base / name).mkdir(mode=0o700)
        (self.root / "devtools.toml").write_text(configuration, encoding="utf-8")
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("DEVTOOLS_LSP", "GIT_"))},
            "XDG_RUNTIME_DIR": str(self.base / "run"),
            "XDG_STATE_HOME": str(self.base / "state"),
            "HOME": str(self.base / "home"),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.wrapper: tuple[str, ...] = ()
        self.pid = 0
        self.log = ""
        self._nursery = nursery
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = self.base / "errors"
        self._errors_read = 0
        self._wires: list[Wire] = []
        self._socket = ""

    # -- files ---------------------------------------------------------------------------------------------------

    def put(self, files: Mapping[str, str | bytes]) -> None:
        for path, content in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def tree(self) -> dict[str, bytes]:
        """Every regular file but the journal's and the configuration, links not followed."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
            and not path.is_symlink()
            and not {*JOURNALS, ".git"} & set(path.relative_to(self.root).parts)
            and path.name != "devtools.toml"
        }

    def directories(self) -> set[str]:
        return {
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            if path.is_dir() and not path.is_symlink() and not {*JOURNALS, ".git"} & set(path.parts)
        }

    def litter(self) -> list[str]:
        """What only a commit in progress may have: names of the journal, temporaries in the tree."""
        found = [path for path in self.tree() if ".devtools-lsp-" in path or path.endswith(".kept")]
        kinds = (".intent", ".new.", ".gone.", ".back.", ".strays", ".writing")
        for place in (self.root / ".devtools", self.root / ".git" / "devtools-lsp"):
            if place.is_dir():
                found += [path.name for path in place.rglob("*") if any(kind in path.name for kind in kinds)]
        return found

    # -- the process ---------------------------------------------------------------------------------------------

    def begin(self, **options: Any) -> None:
        """Start it without waiting for it to be ready; `options` are the nursery's (`fault`, `follow_links`)."""
        assert self.pid == 0
        self._output, theirs = os.pipe()
        errors = os.open(self._errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        arguments = ["serve", "--root", str(self.root)]
        env = self.env
        try:
            if self._nursery is not None and not self.wrapper:
                self.pid = self._nursery.serve(arguments, env, theirs, errors, **options)
            else:
                if options:
                    assert options.keys() == {"fault"}
                    env = {**env, "DEVTOOLS_LSP_FAULT": options["fault"]}
                self._process = subprocess.Popen(
                    [*self.wrapper, str(PROGRAM), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=theirs,
                    stderr=errors,
                    env=env,
                )
                self.pid = self._process.pid
        finally:
            os.close(theirs)
            os.close(errors)

    def start(self, **options: Any) -> None:
        """Start it and wait until it accepts."""
        self.begin(**options)
        assert self.ready(), f"the daemon did not start: {self._end()}, {self.log}"

    def ready(self) -> bool:
        """Wait for READY, or for the end of a process that will not come to it."""
        line = b""
        deadline = time.monotonic() + 2 * WAIT_S
        while not line.endswith(b"\n"):
            assert select.select([self._output], [], [], max(0.0, deadline - time.monotonic()))[0], "it hangs"
            got = os.read(self._output, 4096)
            if not got:
                return False
            line += got
        self._socket = line.decode().removeprefix("READY ").strip()
        return True

    def kill(self) -> None:
        """What `kill -9` does."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.ended() == -signal.SIGKILL

    def stop(self) -> None:
        """End it as an operator does."""
        os.kill(self.pid, signal.SIGTERM)
        assert self.ended() == 0, self.log

    def ended(self) -> int:
        """Wait for its end; the exit status, negative for a signal. What it had logged is in `log`."""
        status = self._end()
        for wire in self._wires:
            wire.close()
        self._wires.clear()
        return status

    def _end(self) -> int:
        descriptor = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None
        if descriptor is not None:
            try:
                assert select.select([descriptor], [], [], WAIT_S)[0], "the daemon does not end"
            finally:
                os.close(descriptor)
        if self._process is not None:
            status = self._process.wait(WAIT_S)
            self._process = None
        else:
            assert self._nursery is not None
            status = self._nursery.wait(self.pid)
        self.pid = 0
        os.close(self._output)
        with self._errors.open("rb") as file:
            file.seek(self._errors_read)
            data = file.read()
        self._errors_read += len(data)
        self.log = data.decode()
        return status

    def close(self) -> None:
        """End it however that goes, and remove its places."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.ended()
        shutil.rmtree(self.base, ignore_errors=True)

    @property
    def socket_path(self) -> Path:
        """Where it accepts, or did so last."""
        return Path(self._socket)

    # -- clients -------------------------------------------------------------------------------------------------

    def wire(self, *, marks: tuple[bytes, ...] = ()) -> Wire:
        found = Wire(self._socket, marks=marks)
        self._wires.append(found)
        return found

    def agent(self, surface: str = "granular", *, marks: tuple[bytes, ...] = (), **more: str) -> Agent:
        return Agent(self.wire(marks=marks), surface, **more)

    # -- what is known -------------------------------------------------------------------------------------------

    def activity(self, **wanted: Any) -> list[dict[str, Any]]:
        [state] = (self.base / "state" / "devtools-lsp").iterdir()
        lines = (state / "activity.jsonl").read_text(encoding="utf-8").splitlines()
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if all(entry.get(key) == value for key, value in wanted.items())]
