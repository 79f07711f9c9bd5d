"""One accepted connection: bytes in, messages judged, the role fixed, every request answered exactly once."""

from __future__ import annotations

from devtools_lsp.daemon.doors import (
    AgentDoor,
    Build,
    CallScope,
    Channel,
    Doors,
    EditorDoor,
    EditorSession,
    Host,
    Peer,
    PeerRole,
)

__all__ = [
    "AgentDoor",
    "Build",
    "CallScope",
    "Channel",
    "Doors",
    "EditorDoor",
    "EditorSession",
    "Host",
    "Peer",
    "PeerRole",
]
