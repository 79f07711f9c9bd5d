"""Prints a greeting on standard output, where only frames belong."""

import sys

from base import Server

print("Welcome to the zoo!", flush=True)
print("x" * 200, file=sys.stderr)
Server().run()
