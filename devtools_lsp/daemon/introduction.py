"""Who is behind a connection, read from what it says about itself (SPEC 8.0.3).

Owns the three ways to become a peer: an agent or terminal that introduces itself, an editor's `initialize`, and
somebody who calls without either.
"""

from __future__ import annotations

from typing import Any

import msgspec

from devtools_lsp import __version__
from devtools_lsp.daemon.doors import Channel, Peer
from devtools_lsp.wire.messages import ClientInfo, InitializeParams, InvalidParamsError, RpcError, decode_params

UNNAMED_AGENT = "unnamed agent"

RawParams = msgspec.Raw | msgspec.UnsetType


class _EditorIntroduction(msgspec.Struct, rename="camel"):
    """What is read of an editor's `initialize` here: only who it is."""

    client_info: dict[str, Any] | None = None


def introduced_peer(params: RawParams, connection: str, channel: Channel) -> Peer:
    """The peer of `devtools/initialize`. InvalidParamsError tells our version, too: the client may have another."""
    try:
        given = decode_params(params, InitializeParams)
    except InvalidParamsError as error:
        raise InvalidParamsError(f"{error.message} (this daemon is devtools-lsp {__version__})") from None
    return Peer(
        connection=connection,
        name=given.client.name,
        version=given.client.version,
        role=given.role,
        session=given.session or connection,
        surface=given.surface,
        channel=channel,
    )


def editor_peer(params: RawParams, connection: str, channel: Channel) -> Peer:
    """The peer of `initialize`, named as the editor names itself where that can be shown."""
    try:
        info = decode_params(params, _EditorIntroduction).client_info or {}
        client = msgspec.convert({"name": info.get("name"), "version": info.get("version") or ""}, ClientInfo)
    except (RpcError, msgspec.ValidationError):
        client = ClientInfo(name="editor")
    return Peer(connection, client.name, client.version, "editor", connection, None, channel)


def unnamed_peer(connection: str, channel: Channel) -> Peer:
    """Somebody who calls without an introduction: the role with the least rights."""
    return Peer(connection, UNNAMED_AGENT, "", "agent", connection, None, channel)
