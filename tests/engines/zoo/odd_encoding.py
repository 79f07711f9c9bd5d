"""Chooses the position encoding that the argument names, and counts in it."""

import re
import sys
from typing import ClassVar

from base import Server


class Odd(Server):
    capabilities: ClassVar = {**Server.capabilities, "positionEncoding": sys.argv[1]}

    def items(self, uri, word="bad"):
        def units(text):
            return {"utf-8": len(text.encode()), "utf-16": len(text.encode("utf-16-le")) // 2}.get(
                sys.argv[1], len(text)
            )

        found = []
        for number, line in enumerate(self.documents.get(uri, "").split("\n")):
            for match in re.finditer(rf"\b{word}\b", line):
                start, end = ({"line": number, "character": units(line[:place])} for place in match.span())
                found.append({"range": {"start": start, "end": end}, "message": "bad is here", "severity": 1})
        return found


Odd().run()
