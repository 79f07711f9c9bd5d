"""What the core's tests share: files as bytes through an edit or a patch, as the pipeline takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from devtools_lsp.core.edits import Edit, plan_edits
from devtools_lsp.core.patch import apply_operations, parse_patch
from devtools_lsp.core.workspace import FileText
from devtools_lsp.text import TextPolicy, decode


def as_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def edited(content: str | bytes, *pairs: tuple[str, str], policy: TextPolicy = "preserve") -> bytes:
    """A file's bytes after one edit step with these (find, replace) blocks."""
    file = FileText(*decode(as_bytes(content)))
    spans = plan_edits("file.txt", file.text, [Edit(find, replace) for find, replace in pairs])
    return file.edited(spans).to_bytes(policy)


def patched(
    files: Mapping[str, str | bytes], patch: str, *, policy: TextPolicy = "preserve"
) -> tuple[dict[str, bytes], list[str]]:
    """All files' bytes after one patch, and the messages of its notes."""
    before = {path: FileText(*decode(as_bytes(content))) for path, content in files.items()}
    outcome = apply_operations(parse_patch(patch).operations, before)
    after = {path: file for path, file in before.items() if path not in outcome.deleted}
    after = {outcome.renamed.get(path, path): file for path, file in after.items()}
    after |= {**outcome.changed, **outcome.added}
    notes = [f"{note.path}: {note.message}" for note in outcome.notes]
    return {path: file.to_bytes(policy) for path, file in after.items()}, notes


@pytest.fixture
def edit_bytes() -> Callable[..., bytes]:
    return edited


@pytest.fixture
def patch_bytes() -> Callable[..., tuple[dict[str, bytes], list[str]]]:
    return patched
