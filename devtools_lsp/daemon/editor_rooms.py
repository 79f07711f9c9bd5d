"""What all editors share, and what is told to every one of them in the same words.

Kept apart from the sessions so that the daemon can be ready before the LSP types are loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from devtools_lsp.daemon.approval_payload import Approval, to_wire
from devtools_lsp.daemon.approvals import Approvals
from devtools_lsp.daemon.buffers import EditorBuffers
from devtools_lsp.daemon.diagnostics_hub import DiagnosticsHub
from devtools_lsp.wire.framing import MAX_FRAME_BYTES
from devtools_lsp.wire.messages import Notification, encode


@dataclass(frozen=True, slots=True)
class EditorRooms:
    """What all editors share. `scratch` is a private directory for diffs that are shown as files."""

    root: Path
    approvals: Approvals
    hub: DiagnosticsHub
    buffers: EditorBuffers
    scratch: Path | None = None


def encode_approval(method: str, approval: Approval) -> bytes:
    """A notification about a waiting approval, once for all editors."""
    payload = encode(Notification(method=method, params=to_wire(approval)))
    if len(payload) > MAX_FRAME_BYTES:
        payload = encode(Notification(method=method, params=to_wire(approval, hunk_bytes=0, argument_bytes=0)))
    return payload
