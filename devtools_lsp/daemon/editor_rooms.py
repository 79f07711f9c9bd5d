"""What all editors share.

Kept apart from the sessions so that the daemon can be ready before the LSP types are loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from devtools_lsp.daemon.approvals import Approvals
from devtools_lsp.daemon.buffers import EditorBuffers
from devtools_lsp.daemon.diagnostics_hub import DiagnosticsHub


@dataclass(frozen=True, slots=True)
class EditorRooms:
    """What all editors share. `scratch` is a private directory for diffs that are shown as files."""

    root: Path
    approvals: Approvals
    hub: DiagnosticsHub
    buffers: EditorBuffers
    scratch: Path | None = None
