"""Answers with frames that hold no JSON, no object, or a report of the wrong shape; the argument says which."""

import sys

from base import Server, raw

BODIES = {"broken": b'{"jsonrpc": "2.0", "id": ', "list": b"[1, 2, 3]", "deep": b"[" * 100000}


class Babbling(Server):
    def on_textDocument_diagnostic(self, params):
        if sys.argv[1] == "shape":
            return {"kind": "full", "items": [{"range": "everywhere", "message": 7}]}
        body = BODIES[sys.argv[1]]
        for _ in range(20):
            raw(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        return self.NOTHING


Babbling().run()
