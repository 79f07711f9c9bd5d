"""Ends with exit code 3 and a last word when it is initialized."""

import sys

from base import Server


class Crashing(Server):
    def on_initialize(self, params):
        print("no licence, no service", file=sys.stderr)
        sys.exit(3)


Crashing().run()
