"""Is cancelled by itself a few times (-32802), then answers; the first reports have no result id (not analysed yet)."""

from base import Server, read, send


class Busy(Server):
    def __init__(self):
        super().__init__()
        self.times = 0

    def run(self):
        while (message := read()) is not None:
            if message.get("method") == "textDocument/diagnostic":
                self.times += 1
                uri = message["params"]["textDocument"]["uri"]
                if self.times <= 3:
                    send({"id": message["id"], "error": {"code": -32802, "message": "cancelled by the server"}})
                elif self.times <= 6:
                    send({"id": message["id"], "result": {"kind": "full", "items": []}})
                else:
                    send({"id": message["id"], "result": {"kind": "full", "items": self.items(uri), "resultId": "1"}})
                continue
            handler = getattr(self, "on_" + message.get("method", "none").replace("/", "_"), None)
            result = handler(message.get("params") or {}) if handler else None
            if "id" in message and "method" in message:
                send({"id": message["id"], "result": result})


Busy().run()
