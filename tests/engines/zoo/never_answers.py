"""Initializes, then reads and says nothing any more; with the argument `initialize` not even that."""

import sys

from base import Server


class Silent(Server):
    def on_initialize(self, params):
        return self.NOTHING if "initialize" in sys.argv else super().on_initialize(params)

    def on_textDocument_diagnostic(self, params):
        return self.NOTHING

    on_textDocument_formatting = on_textDocument_codeAction = on_shutdown = on_textDocument_diagnostic


Silent().run()
