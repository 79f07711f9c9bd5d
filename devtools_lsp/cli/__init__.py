"""The terminal: one command a verb, each a few lines that call the client, the library or the daemon (SPEC 8.0.1)."""

from devtools_lsp.cli.app import app, main

__all__ = ["app", "main"]
