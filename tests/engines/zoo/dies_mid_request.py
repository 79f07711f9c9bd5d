"""Dies in its first requests for diagnostics, as many as the second argument says; they are counted in a file."""

import os
import sys
from pathlib import Path

from base import Server


class Dying(Server):
    def on_textDocument_diagnostic(self, params):
        counter = Path(sys.argv[1])
        deaths = int(counter.read_text()) if counter.exists() else 0
        if deaths < int(sys.argv[2]):
            counter.write_text(str(deaths + 1))
            os.abort()
        return super().on_textDocument_diagnostic(params)


Dying().run()
