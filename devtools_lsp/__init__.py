"""devtools-lsp: one warm daemon per workspace root, for coding agents and the people who watch them.

Importing this package loads nothing else: the stdio proxy depends on that. The library's names live in
`devtools_lsp.app` (composition), `devtools_lsp.pipeline` (plans) and `devtools_lsp.client` (the socket).
"""

__version__ = "0.1.0"
