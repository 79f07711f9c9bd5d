"""Patches in both dialects: parsed to operations, placed by their context, applied to texts in memory.

`parse_patch` reads a patch, `apply_operations` applies it to a map of files, `apply_hunks` and `apply_to_texts` do
the same for plain texts whose line endings they keep.
"""

from devtools_lsp.core.patch.apply import PatchOutcome, apply_hunks, apply_operations, apply_to_texts
from devtools_lsp.core.patch.operations import (
    AddFile,
    DeleteFile,
    Operation,
    ParsedPatch,
    PatchHunk,
    PatchLine,
    UpdateFile,
)
from devtools_lsp.core.patch.parse import parse_patch

__all__ = [
    "AddFile",
    "DeleteFile",
    "Operation",
    "ParsedPatch",
    "PatchHunk",
    "PatchLine",
    "PatchOutcome",
    "UpdateFile",
    "apply_hunks",
    "apply_operations",
    "apply_to_texts",
    "parse_patch",
]
