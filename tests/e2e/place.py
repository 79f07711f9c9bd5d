"""The real `devtools-lsp serve`, in private places, with clients that share no code with it.

A daemon is waited for by its READY line. Its end is judged, too: exit code 0 after `stop`, nothing on standard
error that looks like a fault of ours, and no process of its own left.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.wire import WAIT_S, Message, Wire

PROGRAM = Path(sys.executable).with_name("devtools-lsp")
ALLOW = '[gate]\nmode = "allow"\n'
ASK = '[gate]\nmode = "editor"\n'
RUFF = '[engines.ruff]\npreset = "ruff"\n'
BASEDPYRIGHT = '[engines.basedpyright]\npreset = "basedpyright"\n'
MISSING = """
[engines.gone]
kind = "language-server"
command = ["no-such-server"]
extensions = ["py"]
capabilities = ["check"]
"""
_FAULTS = re.compile(r"Traceback|Error\b.*was never|never retrieved| ERROR ")

Content = str | bytes


def until(holds: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Poll until it holds, and return what it gave; bounded."""
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.005)
    return found


def alive(process: psutil.Process) -> bool:
    """Whether it runs; one that has ended and waits to be reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass
class Place:
    """A root with its own runtime, state and home directories; the daemon comes and goes."""

    base: Path
    root: Path
    env: dict[str, str]
    program: list[str | Path] = field(default_factory=lambda: [PROGRAM])
    process: subprocess.Popen[str] | None = None
    socket: str = ""
    wires: list[Wire] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    tolerated: list[str] = field(default_factory=list)
    """Parts of lines on standard error that a test provokes on purpose."""
    revisions: int = 0
    ending: list[psutil.Process] | None = None
    _collecting: threading.Thread = field(default_factory=threading.Thread)

    # -- files ---------------------------------------------------------------------------------------------------

    def put(self, files: Mapping[str, Content]) -> None:
        for path, content in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def text(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def uri(self, path: str) -> str:
        return (self.root / path).as_uri()

    def tree(self) -> dict[str, bytes]:
        """Every file below the root, but for what belongs to the journal."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not path.is_symlink() and ".devtools" not in path.parts
        }

    # -- the daemon ----------------------------------------------------------------------------------------------

    def start(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*self.program, "serve", "--root", self.root, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
            text=True,
            encoding="utf-8",
        )
        self._collecting = threading.Thread(target=self._collect, args=(self.process,), daemon=True)
        self._collecting.start()
        said: list[str] = []
        reading = threading.Thread(target=lambda: said.append(self.process.stdout.readline()), daemon=True)  # type: ignore[union-attr]
        reading.start()
        reading.join(WAIT_S)
        assert said, "the daemon was not ready in time"
        assert said[0].startswith("READY "), (said[0], self.process.wait(5), self.stderr)
        self.socket = said[0].removeprefix("READY ").rstrip("\n")

    def _collect(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.stderr.extend(process.stderr)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def family(self) -> list[psutil.Process]:
        """Every process that the daemon started and that still runs."""
        return psutil.Process(self.pid).children(recursive=True)

    def names(self) -> list[str]:
        """What runs, by name."""
        found: list[str] = []
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(process.name())
        return found

    def kill(self) -> list[psutil.Process]:
        """SIGKILL; returns the processes that the daemon had."""
        assert self.process is not None
        family = self.family()
        self.process.kill()
        self.process.wait(WAIT_S)
        self._forget()
        return family

    def begin_stop(self) -> None:
        """Ask it to end, and keep in mind what it has started."""
        assert self.process is not None
        self.ending = self.family()
        self.process.terminate()

    def stop(self) -> None:
        """End it as an operator does, and judge how it went."""
        assert self.process is not None
        if self.ending is None:
            self.begin_stop()
        code, family = self.process.wait(WAIT_S), self.ending or []
        self._forget()
        assert code == 0, (code, self.stderr)
        until(lambda: not [process for process in family if alive(process)], f"the end of {family}", 10)

    def wait_end(self, code: int = 0) -> None:
        """It ends without our doing."""
        assert self.process is not None
        assert self.process.wait(WAIT_S) == code, self.stderr
        self._forget()

    def _forget(self) -> None:
        for wire in self.wires:
            wire.close()
        self.wires.clear()
        assert self.process is not None
        self._collecting.join(WAIT_S)
        self.ending = None
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process = None

    def close(self) -> None:
        if self.process is not None:
            self.stop()
        faults = [
            line for line in self.stderr if _FAULTS.search(line) and not any(part in line for part in self.tolerated)
        ]
        assert not faults, "".join(self.stderr)

    # -- clients -------------------------------------------------------------------------------------------------

    def wire(self) -> Wire:
        found = Wire.to_socket(self.socket)
        self.wires.append(found)
        return found

    def agent(self, name: str = "agent", wire: Wire | None = None, **more: Any) -> Agent:
        wire = wire or self.wire()
        return Agent(wire, wire.request("devtools/initialize", {"client": {"name": name, "version": "1"}, **more}))

    def terminal(self, **more: Any) -> Agent:
        return self.agent("terminal", role="terminal", **more)

    def editor(self, *encodings: str, wire: Wire | None = None, **capabilities: Any) -> Editor:
        return Editor(self, wire or self.wire(), list(encodings), capabilities)

    def stdio(self) -> Wire:
        """A connection through the proxy, as editors make it."""
        proxy = subprocess.Popen(
            [PROGRAM, "stdio", "--root", self.root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.env
        )
        assert proxy.stdin is not None
        assert proxy.stdout is not None

        def end() -> None:
            proxy.stdin.close()  # type: ignore[union-attr]
            assert proxy.wait(WAIT_S) == 0

        found = Wire(proxy.stdout, proxy.stdin, end)
        self.wires.append(found)
        return found

    def visit(self) -> Iterator[None]:
        """For a fixture around each test: whoever connects meanwhile is gone, and known to be gone, afterwards."""
        before = len(self.wires)
        yield
        for wire in self.wires[before:]:
            wire.close()
        del self.wires[before:]

    # -- the terminal --------------------------------------------------------------------------------------------

    def cli(
        self, *arguments: str, stdin: str = "", rooted: bool = True, cwd: Path | None = None, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        root = ["--root", str(self.root)] if rooted else []
        return subprocess.run(
            [PROGRAM, arguments[0], *root, *arguments[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env=self.env,
            cwd=cwd or self.root,
            timeout=timeout_s,
            check=False,
        )

    # -- what is known -------------------------------------------------------------------------------------------

    @property
    def state(self) -> Path:
        found = list((self.base / "state" / "devtools-lsp").iterdir())
        assert len(found) == 1
        return found[0]

    def activity(self, **wanted: Any) -> list[dict[str, Any]]:
        log = self.state / "activity.jsonl"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if all(entry.get(key) == value for key, value in wanted.items())]

    def configure(self, text: str) -> None:
        """Replace the configuration under a running daemon, as editors do: a new file in the old one's place."""
        staged = self.base / "devtools.toml"
        staged.write_text(text, encoding="utf-8")
        staged.rename(self.root / "devtools.toml")

    def reconfigure(self, text: str) -> None:
        """The same, and wait until it is in force; the text may end in any table."""
        self.revisions += 1
        name = f"revision {self.revisions}"
        marker = f'\n[[gate.rules]]\nname = "{name}"\nstep = "undo"\nagent = "nobody"\ndecision = "ask"\n'
        self.configure(text + marker)
        probe = self.terminal()
        until(lambda: name in [rule["name"] for rule in probe.status()["gate"]["rules"]], f"{name} to be in force")
        probe.wire.close()
        self.wires.remove(probe.wire)


@dataclass
class Agent:
    """An agent's or a terminal's end of a connection."""

    wire: Wire
    greeting: dict[str, Any]

    def begin(self, tool: str, arguments: Any, **more: Any) -> int:
        return self.wire.start("devtools/call", {"name": tool, "arguments": arguments, **more})

    def call(self, tool: str, arguments: Any, **more: Any) -> dict[str, Any]:
        return self.wire.result(self.begin(tool, arguments, **more))

    def refused(self, tool: str, arguments: Any, **more: Any) -> dict[str, Any]:
        """The error's data; the code around it must be ours."""
        return told(self.wire.error(self.begin(tool, arguments, **more)))

    def edit(self, path: str, find: str, replace: str) -> dict[str, Any]:
        return self.call("edit", edit_of(path, find, replace))

    def begin_edit(self, path: str, find: str, replace: str, **more: Any) -> int:
        return self.begin("edit", edit_of(path, find, replace), **more)

    def ops(self, paths: list[str], *ops: dict[str, Any]) -> dict[str, Any]:
        return self.wire.request("devtools/ops", {"paths": paths, "ops": list(ops)})

    def status(self) -> dict[str, Any]:
        return self.wire.request("devtools/status")

    def approvals(self) -> list[dict[str, Any]]:
        return self.wire.request("devtools/approvals")["items"]

    def waiting(self, count: int = 1) -> list[dict[str, Any]]:
        """What waits for a person, once it is so many."""
        return until(lambda: (items := self.approvals()) and len(items) == count and items, f"{count} approvals")

    def decide(self, approval: str, approve: bool, **more: Any) -> dict[str, Any]:
        return self.wire.request("devtools/decide", {"id": approval, "approve": approve, **more})

    def error(self, request: int) -> dict[str, Any]:
        return told(self.wire.error(request))


class Editor:
    """A plain LSP client: it shows diagnostics, offers code actions, and knows nothing of devtools."""

    def __init__(self, place: Place, wire: Wire, encodings: list[str], capabilities: dict[str, Any]) -> None:
        self.place, self.wire = place, wire
        offered = {**capabilities, **({"general": {"positionEncodings": encodings}} if encodings else {})}
        self.capabilities = wire.request(
            "initialize", {"processId": None, "rootUri": place.root.as_uri(), "capabilities": offered}
        )["capabilities"]
        self.encoding = self.capabilities.get("positionEncoding", "utf-16")
        wire.notify("initialized", {})
        self._settle()

    def _settle(self) -> None:
        """A request is taken after the notifications before it, so that its answer shows that they took effect."""
        document = {"textDocument": {"uri": self.place.uri("nothing")}, "context": {"diagnostics": []}}
        nowhere = {"line": 0, "character": 0}
        self.wire.request("textDocument/codeAction", {**document, "range": {"start": nowhere, "end": nowhere}})

    def shown(self, path: str) -> list[dict[str, Any]]:
        """The diagnostics of a file as they were published last."""
        uri = self.place.uri(path)
        published = [told for told in self.wire.told("textDocument/publishDiagnostics") if told["uri"] == uri]
        return published[-1]["diagnostics"] if published else []

    def marks(self, path: str) -> list[dict[str, Any]]:
        return [entry for entry in self.shown(path) if entry.get("code") == "approval"]

    def wait_mark(self, path: str) -> dict[str, Any]:
        return until(lambda: self.marks(path), f"an approval on {path}")[0]

    def actions(self, path: str, mark: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """The code actions at a diagnostic, by the word that their title begins with."""
        found = self.wire.request(
            "textDocument/codeAction",
            {
                "textDocument": {"uri": self.place.uri(path)},
                "range": mark["range"],
                "context": {"diagnostics": [mark]},
            },
        )
        return {action["title"].partition(":")[0]: action for action in found}

    def choose(self, path: str, title: str) -> dict[str, Any]:
        """Wait for an approval on a file and answer it by one of its code actions."""

        def offered() -> dict[str, Any] | None:
            # A mark that was shown a moment ago may be that of a question which has been answered since.
            return self.actions(path, self.wait_mark(path)).get(title)

        command = until(offered, f"the action {title!r} on {path}")["command"]
        return self.wire.request(
            "workspace/executeCommand", {"command": command["command"], "arguments": command["arguments"]}
        )

    def open(self, path: str, text: str | None = None) -> None:
        document = {"uri": self.place.uri(path), "languageId": "x", "version": 1, "text": text or self.place.text(path)}
        self.wire.notify("textDocument/didOpen", {"textDocument": document})
        self._settle()

    def type(self, path: str, text: str, version: int = 2) -> None:
        """Replace the whole text of an open document, unsaved."""
        document = {"uri": self.place.uri(path), "version": version}
        self.wire.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})
        self._settle()


def edit_of(path: str, find: str, replace: str) -> dict[str, Any]:
    return {"path": path, "edits": [{"find": find, "replace": replace}]}


def op(step: str, **args: Any) -> dict[str, Any]:
    return {"step": step, "args": args}


def told(error: Message) -> dict[str, Any]:
    """The data of an error of ours."""
    assert error["code"] == -32050, error
    assert error["message"] == error["data"]["message"]
    return error["data"]
