"""Announces lengths that are not those of its answers: too short, too long, negative, enormous, or no number."""

import json
import sys

from base import Server, raw

LENGTHS = {"short": -10, "long": 1000}


class Miscounting(Server):
    def on_textDocument_diagnostic(self, params):
        body = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"kind": "full", "items": []}}).encode()
        how = sys.argv[1]
        length = (
            str(len(body) + LENGTHS[how])
            if how in LENGTHS
            else {"negative": "-5", "huge": "9" * 15, "word": "many"}[how]
        )
        raw(b"Content-Length: %b\r\n\r\n%b" % (length.encode(), body))
        return self.NOTHING


Miscounting().run()
