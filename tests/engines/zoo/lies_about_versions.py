"""Pushes with the version before (`old`), after (`new`) or none (`none`); `slow` pushes the old, then the right."""

import sys
import threading
from typing import ClassVar

from base import Server, send


class Lying(Server):
    capabilities: ClassVar = {"textDocumentSync": 1}

    def publish(self, uri, version, items):
        params = {"uri": uri, "diagnostics": items}
        send(
            {
                "method": "textDocument/publishDiagnostics",
                "params": params if version is None else {**params, "version": version},
            }
        )

    def changed(self, uri, version, text):
        super().changed(uri, version, text)
        how = sys.argv[1]
        if how == "slow":
            self.publish(uri, version - 1, [])
            items = self.items(uri)
            threading.Timer(0.3, lambda: self.publish(uri, version, items)).start()
            return
        self.publish(
            uri, {"old": version - 1, "new": version + 1, "none": None}[how], self.items(uri) if how == "none" else []
        )


Lying().run()
