"""The entry point: `stdio` goes straight to the proxy, everything else to the command line.

Nothing is imported before it is known to be needed: the proxy must not pay for the command line.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run what the command line asks for; ends the process with its exit code."""
    from devtools_lsp import discovery
    from devtools_lsp.errors import InvalidConfigError

    try:
        discovery.require_posix()
    except InvalidConfigError as error:
        sys.exit(f"devtools-lsp: {error.message}")
    if sys.argv[1:2] == ["stdio"]:
        from devtools_lsp import stdio_proxy

        sys.exit(stdio_proxy.main(sys.argv[2:]))
    from devtools_lsp import cli

    cli.main()


if __name__ == "__main__":
    main()
