"""Floods the client with refresh requests, progress, logs and pushes before each answer; `forever` never stops."""

import sys
import threading

from base import Server, send


class Flooding(Server):
    def flood(self, rounds):
        for number in range(rounds):
            self.ask("workspace/diagnostic/refresh", None)
            self.ask("window/workDoneProgress/create", {"token": f"t{number}"})
            send({"method": "$/progress", "params": {"token": f"t{number}", "value": {"kind": "begin", "title": "x"}}})
            send({"method": "window/logMessage", "params": {"type": 3, "message": "y" * 200}})
            send(
                {
                    "method": "textDocument/publishDiagnostics",
                    "params": {"uri": f"file:///z{number}", "diagnostics": []},
                }
            )
            print("z" * 200, file=sys.stderr)

    def on_textDocument_diagnostic(self, params):
        if "forever" in sys.argv:
            threading.Thread(target=self.flood, args=(10**9,), daemon=True).start()
            return self.NOTHING
        self.flood(2000)
        return super().on_textDocument_diagnostic(params)


Flooding().run()
