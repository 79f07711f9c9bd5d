"""Offers diagnostics by registration only: `late`, `twice` (two identifiers), `twice-then-once` (one taken back),
`chosen` (for some files only)."""

import sys
import threading
from typing import ClassVar

from base import Server


class Registering(Server):
    capabilities: ClassVar = {"textDocumentSync": 1}

    def on_initialize(self, params):
        self.root = params["rootUri"]
        return super().on_initialize(params)

    def register(self, number, identifier, selector=None):
        options = {"identifier": identifier, "interFileDependencies": False, "workspaceDiagnostics": False}
        self.ask(
            "client/registerCapability",
            {
                "registrations": [
                    {
                        "id": number,
                        "method": "textDocument/diagnostic",
                        "registerOptions": {**options, "documentSelector": selector},
                    }
                ]
            },
        )

    def on_initialized(self, params):
        how = sys.argv[1]
        if how == "late":
            threading.Timer(0.5, lambda: self.register("1", "bad")).start()
            return
        if how == "chosen":
            self.register("1", "bad", [{"language": "python", "pattern": "**/chosen_[a-c].{py,pyi}"}])
            self.register("2", "worse", [{"pattern": {"baseUri": self.root + "/sub", "pattern": "**/*.py"}}])
            return
        self.register("1", "bad")
        self.register("2", "worse")
        if how == "twice-then-once":
            self.ask(
                "client/unregisterCapability", {"unregisterations": [{"id": "1", "method": "textDocument/diagnostic"}]}
            )

    def on_textDocument_diagnostic(self, params):
        return {"kind": "full", "items": self.items(params["textDocument"]["uri"], params["identifier"])}


Registering().run()
