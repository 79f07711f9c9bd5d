"""The real VS Code workbench in a real browser: code-server, Debian's Chromium, the packaged extension."""

from __future__ import annotations

import json
import os
import queue
import shutil
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent / "vscode"
PROGRAM = str(Path(sys.executable).with_name("devtools-lsp"))
EXTENSION = HERE.parents[2] / "editors" / "vscode"
TOOLS = Path(os.environ.get("DEVTOOLS_TEST_TOOLS", Path.home() / ".cache" / "devtools-lsp-tests" / "vscode"))
PICTURES = Path(os.environ.get("DEVTOOLS_TEST_PICTURES", "/tmp/devtools-lsp-pictures"))
SETTINGS = {
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
    "workbench.colorTheme": "Default Dark Modern",
    "extensions.autoUpdate": False,
    "extensions.autoCheckUpdates": False,
    "update.mode": "none",
    "chat.disableAIFeatures": True,
    "chat.commandCenter.enabled": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "editor.minimap.enabled": False,
    "git.enabled": False,
    "files.autoSave": "off",
}


class Tools:
    """Where everything is that these tests need."""

    def __init__(self) -> None:
        # A current code-server comes with the Node that it needs.
        self.node = str(TOOLS / "node") if (TOOLS / "node").exists() else _program("node")
        self.chromium = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), "")
        if not self.chromium:
            pytest.skip("chromium is not installed (apt-get install --no-install-recommends chromium)")
        self.code_server = TOOLS / "node_modules" / "code-server" / "out" / "node" / "entry.js"
        if not self.code_server.is_file():
            pytest.skip(f"code-server is not in {TOOLS}; tests/editors/vscode/install.sh {TOOLS} puts it there")
        # Older ones do not know this option, and need none to take tests from the address.
        self.options = ["--vscode-option", "enable-smoke-test-driver"] if (TOOLS / "node").exists() else []
        if not (EXTENSION / "node_modules" / ".bin" / "vsce").exists():
            pytest.skip("the extension's tools are not installed (npm ci in editors/vscode)")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture(scope="session")
def tools() -> Tools:
    return Tools()


@pytest.fixture(scope="session")
def vsix(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension as it is shipped: type-checked, bundled, packaged."""
    target = tmp_path_factory.mktemp("vsix") / "devtools-lsp.vsix"
    done = subprocess.run(
        ["npx", "--no-install", "vsce", "package", "--no-dependencies", "--out", str(target)],
        cwd=EXTENSION,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


class Browser:
    """One page. Every method waits, with a bound."""

    def __init__(self, tools: Tools, url: str, log: Path) -> None:
        self._log = log.open("w")
        self.process = subprocess.Popen(
            [tools.node, str(HERE / "browser.mjs"), str(TOOLS), tools.chromium, str(PICTURES), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self.logged: list[str] = []
        self.exits: queue.Queue[int] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name="browser")
        self._reader.start()
        self._answer("open")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if "log" in message:
                self.logged.append(message["log"])
            elif "exit" in message:
                self.exits.put(message["exit"])
            else:
                self.lines.put(message)

    def _answer(self, what: str) -> Any:
        answer = self.lines.get(timeout=180)
        assert "error" not in answer, f"{what}: {answer['error']}"
        return answer["result"]

    def do(self, method: str, *args: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"method": method, "args": args}) + "\n")
        self.process.stdin.flush()
        return self._answer(f"{method} {args}")

    def picture(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.do("screenshot", str(PICTURES / f"{name}.png"))

    def command(self, title: str) -> None:
        """Run a command from the palette."""
        self.do("press", "F1")
        self.do("see", ".quick-input-widget input")
        self.do("type", title)
        self.do("see", f'.quick-input-list .monaco-list-row:has-text("{title}")')
        self.do("press", "Enter")

    def notice(self, words: str) -> str:
        """Where a notification with these words is: in the centre, since a toast may go before it is looked at."""
        found = f'.notifications-center .monaco-list-row:has-text("{words}")'
        toast = f'.notification-toast:has-text("{words}")'
        self.do("see", f'{toast}, {found}, [id="status.notifications"] .codicon-bell-dot')
        if self.do("count", found) == 0:
            self.command("Notifications: Show Notifications")
            self.do("see", found)
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(15)
        self._reader.join(15)
        self.process.stdout.close()
        self._log.close()


class CodeServer:
    """A code-server of its own, with private directories, for one project."""

    def __init__(self, tools: Tools, project: Any, settings: dict[str, Any], wait_until: Callable[..., Any]) -> None:
        self._tools = tools
        self._project = project
        self.base = project.base / "code"
        user = self.base / "data" / "User"
        user.mkdir(parents=True)
        (user / "settings.json").write_text(json.dumps({**SETTINGS, **settings}))
        # A setting of the machine's scope counts only here: the host takes the PATH of a login shell, not ours.
        machine = self.base / "data" / "Machine"
        machine.mkdir()
        (machine / "settings.json").write_text(json.dumps({"devtools.path": PROGRAM}))
        (self.base / "config.yaml").write_text("auth: none\ncert: false\n")
        self.port = _free_port()
        self.env = {
            **project.env,
            "HOME": str(self.base),
            "DEVTOOLS_PROGRAM": PROGRAM,
            "EXTENSIONS_GALLERY": json.dumps({"serviceUrl": ""}),
        }
        self._wait_until = wait_until
        self.process: subprocess.Popen[bytes] | None = None
        self._browsers: list[Browser] = []

    def _arguments(self) -> list[str]:
        return [
            self._tools.node,
            str(self._tools.code_server),
            "--user-data-dir",
            str(self.base / "data"),
            "--extensions-dir",
            str(self.base / "extensions"),
            "--config",
            str(self.base / "config.yaml"),
        ]

    def install(self, vsix: Path) -> None:
        done = subprocess.run(
            [*self._arguments(), "--install-extension", str(vsix)],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, *, trusting: bool = True) -> None:
        """`trusting`: every folder counts as trusted, and nobody is asked."""
        flags = ["--auth", "none", "--bind-addr", f"127.0.0.1:{self.port}", "--disable-telemetry"]
        flags += [*self._tools.options, "--disable-update-check", *(["--disable-workspace-trust"] if trusting else [])]
        with (self.base / "code-server.log").open("wb") as log:
            self.process = subprocess.Popen([*self._arguments(), *flags], env=self.env, stdout=log, stderr=log)
        self._wait_until(self._healthy, "code-server answers", 60)

    def _healthy(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.base / "code-server.log").read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def open(self, payload: dict[str, str] | None = None, *, workspace: str | None = None) -> Browser:
        where = {"workspace": workspace} if workspace else {"folder": str(self._project.root)}
        if payload:
            where["payload"] = json.dumps([[key, value] for key, value in payload.items()])
        log = self.base / f"browser-{len(self._browsers)}.log"
        browser = Browser(self._tools, f"http://127.0.0.1:{self.port}/?{urllib.parse.urlencode(where)}", log)
        self._browsers.append(browser)
        return browser

    def remote(self, path: Path) -> str:
        return f"vscode-remote://127.0.0.1:{self.port}{path}"

    def logs(self) -> str:
        """What the extension and its host wrote, for a failure's message."""
        found = sorted((self.base / "data" / "logs").rglob("*devtools-lsp.log"))
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in found)

    def close(self) -> None:
        for browser in self._browsers:
            browser.close()
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(15)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def code_server(tools: Tools, wait_until: Callable[..., Any]) -> Iterator[Callable[..., CodeServer]]:
    made: list[CodeServer] = []

    def make(project: Any, **settings: Any) -> CodeServer:
        server = CodeServer(tools, project, settings, wait_until)
        made.append(server)
        return server

    yield make
    for server in made:
        server.close()
