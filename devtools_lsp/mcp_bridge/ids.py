"""Which of the open requests a client means when it names one by its id."""

from __future__ import annotations

from collections.abc import Container

from devtools_lsp.wire.messages import RequestId


def meant_request(request: RequestId, known: Container[RequestId]) -> RequestId | None:
    """The id as it was sent, for one of `known`, or None. Clients of some languages give the number back as text.

    7 and "7" are two requests all the same, when both are open.
    """
    if request in known:
        return request
    other: RequestId | None = str(request) if isinstance(request, int) else _number(request)
    return other if other is not None and other in known else None


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
