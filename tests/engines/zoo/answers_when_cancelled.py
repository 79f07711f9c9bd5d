"""Answers a request for diagnostics only when it is cancelled, and then with an empty report: it looks clean."""

from base import Server, send


class Hasty(Server):
    def __init__(self):
        super().__init__()
        self.cancelled = 0

    def on__cancelRequest(self, params):
        self.cancelled += 1
        send({"id": params["id"], "result": {"kind": "full", "items": []}})

    def on_textDocument_diagnostic(self, params):
        return super().on_textDocument_diagnostic(params) if self.cancelled else self.NOTHING


Hasty().run()
