"""A small, well-behaved language server; the others in this directory change one thing about it each.

It reports every word `bad` as an error, formats by stripping trailing blanks, and fixes by replacing `bad` by `good`.
"""

import json
import re
import sys
import threading
from typing import ClassVar

LOCK = threading.Lock()


def read():
    """The next message, None at the end."""
    length = 0
    while line := sys.stdin.buffer.readline():
        if line in (b"\r\n", b"\n"):
            break
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    if not line:
        return None
    return json.loads(sys.stdin.buffer.read(length))


def raw(data):
    """Bytes as they are."""
    with LOCK:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def send(message):
    """A well-formed message."""
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    raw(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))


class Server:
    """Override `on_METHOD` (slashes as underscores); what it returns is the answer, NOTHING means none."""

    NOTHING = object()
    capabilities: ClassVar = {
        "textDocumentSync": 1,
        "positionEncoding": "utf-16",
        "diagnosticProvider": {"interFileDependencies": False, "workspaceDiagnostics": False},
        "documentFormattingProvider": True,
        "codeActionProvider": {"codeActionKinds": ["source.fixAll"], "resolveProvider": True},
    }

    def __init__(self):
        self.documents = {}
        self.versions = {}
        self.asked = 0

    def run(self):
        while (message := read()) is not None:
            method = message.get("method")
            if method is None:
                self.answered(message)
                continue
            handler = getattr(self, "on_" + method.replace("/", "_").replace("$", ""), None)
            result = handler(message.get("params") or {}) if handler else None
            if "id" in message and result is not self.NOTHING:
                send({"id": message["id"], "result": result})

    def answered(self, message):
        """A response of the client."""

    def ask(self, method, params):
        self.asked += 1
        send({"id": f"server-{self.asked}", "method": method, "params": params})

    def on_initialize(self, params):
        return {"capabilities": self.capabilities, "serverInfo": {"name": "zoo", "version": "1.2.3"}}

    def on_exit(self, params):
        sys.exit(0)

    def on_textDocument_didOpen(self, params):
        document = params["textDocument"]
        self.changed(document["uri"], document["version"], document["text"])

    def on_textDocument_didChange(self, params):
        document = params["textDocument"]
        self.changed(document["uri"], document["version"], params["contentChanges"][-1]["text"])

    def changed(self, uri, version, text):
        self.documents[uri] = text
        self.versions[uri] = version

    def items(self, uri, word="bad"):
        found = []
        for number, line in enumerate(self.documents.get(uri, "").split("\n")):
            for match in re.finditer(rf"\b{word}\b", line):
                place = {
                    "start": {"line": number, "character": match.start()},
                    "end": {"line": number, "character": match.end()},
                }
                found.append({"range": place, "message": f"{word} is here", "severity": 1, "code": word})
        return found

    def on_textDocument_diagnostic(self, params):
        return {"kind": "full", "items": self.items(params["textDocument"]["uri"])}

    def on_textDocument_formatting(self, params):
        text = self.documents[params["textDocument"]["uri"]]
        clean = "\n".join(line.rstrip() for line in text.split("\n"))
        return [] if clean == text else [self.whole(text, clean)]

    def whole(self, text, new):
        end = {"line": text.count("\n"), "character": len(text.rpartition("\n")[2])}
        return {"range": {"start": {"line": 0, "character": 0}, "end": end}, "newText": new}

    def on_textDocument_codeAction(self, params):
        return [{"title": "Fix all", "kind": "source.fixAll", "data": params["textDocument"]["uri"]}]

    def on_codeAction_resolve(self, action):
        uri = action["data"]
        text = self.documents[uri]
        return {**action, "edit": {"changes": {uri: [self.whole(text, text.replace("bad", "good"))]}}}
