"""Random talk for a daemon: what agents, people and outside programs may say and do, valid and not.

Everything comes from one seeded `Random` a speaker, so that a seed names a conversation. Knows the wire names of the
contract and nothing of the package.
"""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

from tests.e2e.place import op

MARK = "qzx"
"""In every content that is ever sent or stored, so that a log that repeats contents gives itself away."""
WORDS = ["alpha", "beta", "gamma", "def", "héllo", "日本", "😀", "x = 1", "tab\there", "a  b", "$1", "\\n", MARK]
ENDS = ["\n", "\n", "\n", "\r\n", "\r\n", "\r", "\x0c\n", "\u2028", "\n\n"]
NAMES = [
    "a.py",
    "b.txt",
    "c.md",
    "sub/d.py",
    "sub/deep/e.txt",
    "ünï.txt",
    "[x].txt",
    "s*r.txt",
    "sp ace.txt",
    "q'\".txt",
]
WEIRD = [
    "",
    ".",
    "..",
    "../x.txt",
    "/etc/passwd",
    "/",
    "~",
    "~/x",
    "C:\\x",
    "//host/x",
    "nul\0.txt",
    "a\nb.txt",
    "tab\t.txt",
    "back\\slash",
    "x" * 300,
    "d/" * 200 + "x",
    "y/" * 3000,
    ".git/config",
    "sub/.GIT/x",
    ".vscode/tasks.json",
    "devtools.toml",
    "DEVTOOLS.TOML",
    ".devtools/journal",
    ".env",
    "package.json",
    "out/x.txt",
    "inside/new.txt",
    "fifo",
    "missing.txt",
    "e\u0301.txt",
    "\u202eevil.txt",
    "trailing.",
    "*.py",
    "**/*.txt",
    "?.py",
    "a**b",
    "-rf",
    "sub",
]
JUNK: list[Any] = [None, True, 5, -1, 10**30, 1.5, "", "text", [], [None], {}, {"a": 1}, [[]], "\ud800"]
SURFACE = {
    "read_file": "workspace",
    "write_file": "workspace",
    "edit_file": "workspace",
    "glob": "workspace",
    "grep": "workspace",
    "bash": "workspace",
    "dev_plan": "composite",
}
ENCODINGS = ["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"]


@dataclasses.dataclass(frozen=True)
class Said:
    """One request. `own`: whether it concerns only files of the speaker's own, so that its effects can be judged."""

    method: str
    params: Any

    @property
    def tool(self) -> str:
        return self.params.get("name", self.method) if isinstance(self.params, dict) else self.method


class Speaker:
    """What one agent says. `texts` are the files of its own as it sees them, by path."""

    def __init__(self, seed: str, home: str) -> None:
        self.random = Random(seed)
        self.home = home
        self.texts: dict[str, str] = {}
        self.plans: list[str] = []

    # -- contents ------------------------------------------------------------------------------------------------

    def text(self, most: int = 12) -> str:
        pick = self.random.choice
        ends = [pick(ENDS)] if self.random.random() < 0.8 else ENDS
        rows = [pick(WORDS) + str(self.random.randrange(30)) + pick(ends) for _ in range(self.random.randrange(most))]
        text = "".join(rows) + (MARK if self.random.random() < 0.3 else "")
        if self.random.random() < 0.01:
            text += (MARK + " long line " * 20 + "\n") * self.random.choice([100, 500, 2000])
        return text

    def data(self) -> bytes:
        """What an outside program may put in a file."""
        if self.random.random() < 0.05:
            return self.random.choice([b"\0\1", b"\xff\xfe\xfd", b"caf\xe9", b""])
        return self.text().encode(self.random.choice(ENCODINGS), "replace")

    def path(self) -> str:
        roll = self.random.random()
        if roll < 0.7:
            return self.own()
        if roll < 0.8:
            return "shared/" + self.random.choice(NAMES)
        return self.random.choice(WEIRD)

    def own(self) -> str:
        if self.texts and self.random.random() < 0.75:
            return self.random.choice(list(self.texts))
        return f"{self.home}/{self.random.choice(NAMES)}"

    def piece(self, path: str) -> str:
        """Some text that is in the file, or nearly, or not."""
        text = self.texts.get(path, "")
        if not text or self.random.random() < 0.15:
            return self.random.choice([*WORDS, "", "nothing like it", self.text(3)])
        start = self.random.randrange(len(text))
        return text[start : start + self.random.choice([1, 5, 20, 60])]

    # -- requests ------------------------------------------------------------------------------------------------

    def say(self) -> Said:
        roll = self.random.random()
        if roll < 0.06:
            return self._beside()
        if roll < 0.14:
            return Said("devtools/ops", {"paths": self._paths(), "ops": self._ops()})
        tool = self.random.choice(list(_TOOLS))
        arguments: Any = _TOOLS[tool](self)
        if self.random.random() < 0.08:
            arguments = self._spoiled(arguments)
        params = {"name": tool, "arguments": arguments, "surface": SURFACE.get(tool, "granular")}
        if self.random.random() < 0.2:
            params["progressToken"] = self.random.choice([7, "token"])
        return Said("devtools/call", params)

    def _beside(self) -> Said:
        plan = self.random.choice([*self.plans[-3:], "nonsense"])
        return self.random.choice(
            [
                Said("devtools/status", None),
                Said("devtools/tools", {"surface": self.random.choice(["granular", "huge", 5])}),
                Said("devtools/approvals", {}),
                Said("devtools/artifact", {"handle": self.random.choice(["x", "../x", "", 5]), "limit": 3}),
                Said("devtools/undo", {"plan": plan}),
                Said("devtools/undo", {"plan": 5}),
                Said("devtools/decide", {"id": "x", "approve": True}),
                Said("devtools/call", self.random.choice(JUNK)),
                Said("devtools/ops", self.random.choice(JUNK)),
                Said("devtools/" + self.random.choice(["", "nothing", "initialize"]), {}),
                Said("textDocument/hover", {}),
            ]
        )

    def _spoiled(self, arguments: dict[str, Any]) -> Any:
        if self.random.random() < 0.1:
            return self.random.choice(JUNK)
        spoiled = dict(arguments)
        name = self.random.choice([*spoiled, "extra"])
        if self.random.random() < 0.3:
            spoiled.pop(name, None)
        else:
            spoiled[name] = self.random.choice(JUNK)
        return spoiled

    def _paths(self) -> list[str]:
        patterns = [f"{self.home}/**", f"{self.home}/*.py", f"{self.home}/sub/*", "shared/**", "*"]
        choice = [self.own, self.path, lambda: self.random.choice(patterns)]
        return [self.random.choice(choice)() for _ in range(self.random.randrange(4))]

    def _edits(self, path: str) -> list[dict[str, Any]]:
        count = self.random.choice([1, 1, 1, 2, 3])
        return [{"find": self.piece(path), "replace": self.text(4)} for _ in range(count)]

    def _edit(self) -> dict[str, Any]:
        path = self.path()
        return {"path": path, "edits": self._edits(path)}

    def _read(self) -> dict[str, Any]:
        start = self.random.choice([1, 1, 2, 5, 0, 10**9])
        more = {"end": self.random.choice([start, start + 3, 1])} if self.random.random() < 0.5 else {}
        return {"path": self.path(), "start": start, **more}

    def _patch(self) -> dict[str, Any]:
        make = self.random.choice([self._envelope, self._envelope, self._unified])
        text = make()
        roll = self.random.random()
        if roll < 0.1:
            text = f"```diff\n{text}```\n"
        elif roll < 0.15:
            cut = self.random.randrange(len(text) + 1)
            text = text[:cut] + self.random.choice(["", "@@", "\x00", "+", "*** End of File\n"]) + text[cut + 1 :]
        elif roll < 0.25:
            text = text.replace("\n", "\r\n")
        return {"patch": text}

    def _rows(self, prefix: str, text: str) -> str:
        return "".join(f"{prefix}{row}\n" for row in text.split("\n"))

    def _envelope(self) -> str:
        sections: list[str] = []
        for _ in range(self.random.choice([1, 1, 2, 3])):
            path = self.path()
            kind = self.random.choice(["Add", "Delete", "Update", "Update", "Move"])
            if kind == "Add":
                sections.append(f"*** Add File: {path}\n" + self._rows("+", self.text(4)))
            elif kind == "Delete":
                sections.append(f"*** Delete File: {path}\n")
            else:
                move = f"*** Move to: {self.path()}\n" if kind == "Move" else ""
                body = "" if move and self.random.random() < 0.4 else self._hunk(path)
                sections.append(f"*** Update File: {path}\n{move}{body}")
        return "*** Begin Patch\n" + "".join(sections) + "*** End Patch\n"

    def _hunk(self, path: str) -> str:
        rows = self.texts.get(path, "").split("\n")
        at = self.random.randrange(len(rows))
        context = "".join(f" {row}\n" for row in rows[max(0, at - 2) : at])
        end = "*** End of File\n" if self.random.random() < 0.1 else ""
        return f"@@\n{context}-{rows[at]}\n{self._rows('+', self.text(3))}{end}"

    def _unified(self) -> str:
        path = self.path()
        roll = self.random.random()
        if roll < 0.2:
            rows = self._rows("+", self.text(3))
            return f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{rows.count(chr(10))} @@\n{rows}"
        if roll < 0.3:
            target = self.own()
            return f"diff --git a/{path} b/{target}\nsimilarity index 100%\nrename from {path}\nrename to {target}\n"
        rows = self.texts.get(path, "").split("\n")
        at = self.random.randrange(len(rows))
        new = self.text(2).split("\n")[0]
        return f"--- a/{path}\n+++ b/{path}\n@@ -{at + 1},1 +{at + 1},1 @@\n-{rows[at]}\n+{new}\n"

    def _ops(self) -> list[Any]:
        steps: list[Any] = []
        for _ in range(self.random.choice([0, 1, 2, 3, 4])):
            name = self.random.choice(["edit", "edit", "apply_patch", "read_lines", "write", "write", "lint", "format"])
            args: dict[str, Any] = {}
            if name in ("edit", "apply_patch", "read_lines"):
                args = _TOOLS[name](self)
            elif self.random.random() < 0.3:
                args = {"paths": self._paths()}
            if name == "lint" and self.random.random() < 0.5:
                args["fix"] = True
            steps.append(op(name, **args))
        if self.random.random() < 0.08:
            steps.append(self.random.choice([*JUNK, op("fly"), {"step": "write", "args": 5}, {"step": None}]))
        return steps

    def _paths_only(self, **more: Any) -> dict[str, Any]:
        return {"paths": self._paths() or [self.own()], **more}

    def _replace(self) -> dict[str, Any]:
        path = self.path()
        return {
            "path": path,
            "old_string": self.piece(path),
            "new_string": self.text(3),
            "replace_all": self.random.random() < 0.3,
        }

    def _window(self) -> dict[str, Any]:
        more = {"offset": self.random.choice([1, 3, 0, 999]), "limit": self.random.choice([1, 5, 0, 10**6])}
        return {"path": self.path(), **(more if self.random.random() < 0.4 else {})}

    def _grep(self) -> dict[str, Any]:
        found = {"pattern": self.random.choice([*WORDS, "(", "-x", "--pre=sh", "a|b", "\\bx", "", "[", "x{1,99999}"])}
        if self.random.random() < 0.4:
            found["path"] = self.random.choice([self.home, self.path()])
        if self.random.random() < 0.3:
            found["glob"] = self.random.choice(["*.py", "**/*.txt", "[", "!x", "-x"])
        return found

    def _bash(self) -> dict[str, Any]:
        home = self.home
        commands = [
            "true",
            "exit 3",
            f"echo {MARK}; echo err >&2",
            f"echo new > '{home}/b.txt'",
            f"rm -f '{home}/a.py'",
            f"mkdir -p '{home}/sub' && printf 'x\\r\\n' > '{home}/sub/d.py'",
            "cat",
            "sleep 0.05 & echo started",
            "printf '\\033[31mred\\377\\n'",
            "sleep 5",
        ]
        return {"command": self.random.choice(commands), "timeout_secs": self.random.choice([1, 1, 5, 0, 10**9])}

    def _plan(self) -> dict[str, Any]:
        return {"paths": self._paths(), "ops": self._ops()}

    def _write_file(self) -> dict[str, Any]:
        return {"path": self.path(), "content": self.text()}

    def _glob(self) -> dict[str, Any]:
        return {
            "pattern": self.random.choice([f"{self.home}/**", "*.py", "**/*.txt", "[x].txt", "../*", "", self.path()])
        }


_TOOLS = {
    "edit": Speaker._edit,
    "apply_patch": Speaker._patch,
    "read_lines": Speaker._read,
    "format": Speaker._paths_only,
    "lint": lambda speaker: speaker._paths_only(fix=speaker.random.random() < 0.6),
    "read_file": Speaker._window,
    "write_file": Speaker._write_file,
    "edit_file": Speaker._replace,
    "glob": Speaker._glob,
    "grep": Speaker._grep,
    "bash": Speaker._bash,
    "dev_plan": Speaker._plan,
}
