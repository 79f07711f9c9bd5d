"""Where the symbols of a file are, and which files refer to one of them, as a language server knows it.

Owns two requests. It asks through a `Session` and keeps nothing.
"""

from __future__ import annotations

import time
from contextlib import suppress

import msgspec

from devtools_lsp.engines.client import NO_TIME_S, ServerRefusedError
from devtools_lsp.engines.messages import DocumentSymbol, Location, Position
from devtools_lsp.engines.session import Session

_SYMBOLS: msgspec.json.Decoder[list[DocumentSymbol] | None] = msgspec.json.Decoder(list[DocumentSymbol] | None)
_LOCATIONS: msgspec.json.Decoder[list[Location] | None] = msgspec.json.Decoder(list[Location] | None)


async def symbols_of(session: Session, path: str, *, deadline: float) -> list[DocumentSymbol]:
    """The document's symbols as a tree; empty when the server does not offer them."""
    if not session.offers("textDocument/documentSymbol", "documentSymbolProvider", path):
        return []
    with suppress(ServerRefusedError):
        return (
            await session.connection.request(
                "textDocument/documentSymbol",
                {"textDocument": {"uri": session.uri(path)}},
                _SYMBOLS,
                timeout_s=max(deadline - time.monotonic(), NO_TIME_S),
            )
            or []
        )
    return []


async def files_referring_to(session: Session, path: str, position: Position, *, deadline: float) -> list[str]:
    """The root-relative paths of the files that refer to a symbol, without its own."""
    session.residue.asked()
    if not session.offers("textDocument/references", "referencesProvider", path):
        return []
    locations: list[Location] = []
    with suppress(ServerRefusedError):
        locations = (
            await session.connection.request(
                "textDocument/references",
                {
                    "textDocument": {"uri": session.uri(path)},
                    "position": msgspec.to_builtins(position),
                    "context": {"includeDeclaration": False},
                },
                _LOCATIONS,
                timeout_s=max(deadline - time.monotonic(), NO_TIME_S),
            )
            or []
        )
    paths = dict.fromkeys(session.path(location.uri) for location in locations)
    return [found for found in paths if found is not None and found != path]
