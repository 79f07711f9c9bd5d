"""`devtools-lsp demo`: an agent edits a copy of a real package while a headless LSP client watches and approves."""

from devtools_lsp.demo.story import run_demo

__all__ = ["run_demo"]
