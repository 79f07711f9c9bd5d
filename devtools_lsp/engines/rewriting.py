"""Texts that a language server rewrites: formatting, and the fix-all actions that a preset names.

Owns the requests and how their edits become a whole text. It asks through a `Session` and keeps nothing.
"""

from __future__ import annotations

import time

import msgspec

from devtools_lsp.engines.client import NO_TIME_S
from devtools_lsp.engines.messages import CodeAction, TextEdit, WorkspaceEdit
from devtools_lsp.engines.positions import TextPositions
from devtools_lsp.engines.session import Session
from devtools_lsp.text import apply_spans, to_lf

MAX_FIX_ROUNDS = 10

_EDITS: msgspec.json.Decoder[list[TextEdit] | None] = msgspec.json.Decoder(list[TextEdit] | None)
_ACTION: msgspec.json.Decoder[CodeAction] = msgspec.json.Decoder(CodeAction)
_ACTIONS: msgspec.json.Decoder[list[CodeAction] | None] = msgspec.json.Decoder(list[CodeAction] | None)


async def format_document(session: Session, path: str, *, deadline: float) -> str | None:
    """The formatted text of an open document, None when the server gives no edits: well formed, or refused.

    Raises NotOfferedError, ServerRefusedError, ValueError.
    """
    await session.wait_for_offer("textDocument/formatting", "documentFormattingProvider", path, deadline)
    document = session.documents[path]
    edits = await session.connection.request(
        "textDocument/formatting",
        {"textDocument": {"uri": session.uri(path)}, "options": {"tabSize": 4, "insertSpaces": True}},
        _EDITS,
        timeout_s=max(deadline - time.monotonic(), NO_TIME_S),
    )
    return _edited(session, document.text, edits) if edits is not None else None


def _edited(session: Session, text: str, edits: list[TextEdit]) -> str:
    return to_lf(apply_spans(text, TextPositions(text, session.encoding).from_lsp_edits(edits)))


async def fix_all(session: Session, path: str, *, deadline: float) -> str:
    """The text after the configured fix-all actions, in order; the document is left holding that text.

    Only the kinds in `fix_kinds` are taken. Raises NotOfferedError, ServerRefusedError, ValueError.
    """
    await session.wait_for_offer("textDocument/codeAction", "codeActionProvider", path, deadline)
    for kind in session.spec.fix_kinds:
        for _ in range(MAX_FIX_ROUNDS):
            if not await _fix_once(session, path, kind, deadline):
                break
    return session.documents[path].text


async def _fix_once(session: Session, path: str, kind: str, deadline: float) -> bool:
    document = session.documents[path]
    whole = TextPositions(document.text, session.encoding).whole()
    actions = await session.connection.request(
        "textDocument/codeAction",
        {
            "textDocument": {"uri": session.uri(path)},
            "range": msgspec.to_builtins(whole),
            "context": {"diagnostics": [], "only": [kind], "triggerKind": 1},
        },
        _ACTIONS,
        timeout_s=max(deadline - time.monotonic(), NO_TIME_S),
    )
    changed = False
    for action in actions or []:
        if action.disabled is not None or not _is_kind(action.kind, kind):
            continue
        edit = action.edit or await _resolve(session, action, deadline)
        text = _text_after(session, path, document.text, edit)
        if text is not None and text != document.text:
            session.sync(path, text)
            changed = True
            break  # Further actions describe the text before this one.
    return changed


async def _resolve(session: Session, action: CodeAction, deadline: float) -> WorkspaceEdit | None:
    if action.data is None and action.command is not None:
        return None
    resolved = await session.connection.request(
        "codeAction/resolve",
        {key: value for key, value in msgspec.to_builtins(action).items() if value is not None},
        _ACTION,
        timeout_s=max(deadline - time.monotonic(), NO_TIME_S),
    )
    return resolved.edit


def _text_after(session: Session, path: str, text: str, edit: WorkspaceEdit | None) -> str | None:
    """What an edit makes of this one document; None when it does not name it. Other documents are not touched."""
    if edit is None:
        return None
    uri = session.uri(path)
    edits = [
        change
        for document in edit.document_changes or []
        if document.text_document is not None and _same(session, document.text_document.uri, uri)
        for change in document.edits
    ]
    for name, changes in (edit.changes or {}).items():
        if _same(session, name, uri):
            edits.extend(changes)
    return _edited(session, text, edits) if edits else None


def _same(session: Session, one: str, other: str) -> bool:
    return one == other or (session.path(one) is not None and session.path(one) == session.path(other))


def _is_kind(kind: str | None, wanted: str) -> bool:
    return kind is not None and (kind == wanted or kind.startswith(f"{wanted}."))
