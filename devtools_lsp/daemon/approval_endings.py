"""The ids of approvals, and how each that does not wait any more has ended."""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict

from devtools_lsp.daemon.approval_payload import Resolution
from devtools_lsp.errors import BadArgumentError

KEPT_ENDINGS = 1000
"""How many ended approvals are remembered, so that a late answer is told how it ended."""

_ID = re.compile(r"([0-9a-f]{8})-([1-9][0-9]*)")


class Endings:
    """Those of one run of the daemon, which every id names: one from before a restart is known to be lost."""

    def __init__(self) -> None:
        self._run = secrets.token_hex(4)
        self._count = 0
        self._ended: OrderedDict[str, Resolution] = OrderedDict()

    def new_id(self) -> str:
        """The next approval's id."""
        self._count += 1
        return f"{self._run}-{self._count}"

    def keep(self, resolution: Resolution) -> None:
        """Remember how one ended."""
        self._ended[resolution.id] = resolution
        if len(self._ended) > KEPT_ENDINGS:
            self._ended.popitem(last=False)

    def of(self, approval_id: str) -> Resolution:
        """How one ended that does not wait: what is not remembered is lost. Raises BadArgumentError (`notFound`)."""
        known = self._ended.get(approval_id)
        if known is not None:
            return known
        parsed = _ID.fullmatch(approval_id)
        if parsed is None or (parsed[1] == self._run and int(parsed[2]) > self._count):
            raise BadArgumentError(
                f"there is no approval {approval_id!r}; `devtools-lsp approvals` lists those that wait",
                reason="notFound",
            )
        return Resolution(approval_id, "lost", "daemon")
