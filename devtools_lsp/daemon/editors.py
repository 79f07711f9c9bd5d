"""All attached editors: the door that makes their sessions, and what is announced to every one of them.

Implements `doors.EditorDoor` and `ApprovalView`. An announcement is encoded once, however many editors there are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from devtools_lsp.daemon.approval_payload import REQUESTED, RESOLVED, UPDATED, Approval, Resolution, announcement
from devtools_lsp.daemon.doors import Peer
from devtools_lsp.daemon.editor_rooms import EditorRooms
from devtools_lsp.ports import LandedFile, PlanIdentity
from devtools_lsp.wire.framing import FrameTooLargeError
from devtools_lsp.wire.messages import Notification, encode

if TYPE_CHECKING:
    from devtools_lsp.daemon.editor_session import EditorSession

__all__ = ["EditorRooms", "Editors"]

_log = logging.getLogger(__name__)


class Editors:
    """Every editor that is attached now. `pull` is the configuration's, for those that come from here on."""

    def __init__(self, rooms: EditorRooms, *, pull: bool = False) -> None:
        self._rooms = rooms
        self._pull = pull
        self._sessions: dict[EditorSession, None] = {}
        self._loading: asyncio.Task[None] | None = None
        rooms.approvals.attach(self, decides=False)

    def configure(self, *, pull: bool) -> None:
        """How editors that attach from here on get their diagnostics."""
        self._pull = pull

    @property
    def attached(self) -> list[Peer]:
        """Who can be asked now: from an editor's `initialized` until it shuts down or is gone."""
        return [session.peer for session in self._sessions]

    def prepare(self) -> asyncio.Task[None]:
        """Begin to load what sessions need, in a thread: it takes most of a second, and agents need none of it."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(asyncio.to_thread(_load))
        return self._loading

    async def open(self, peer: Peer) -> EditorSession:
        """A session for a peer whose first request is `initialize`."""
        await asyncio.shield(self.prepare())
        from devtools_lsp.daemon.editor_session import EditorSession

        return EditorSession(self._rooms, peer, pull=self._pull, came_or_went=self._came_or_went)

    def landed(self, who: PlanIdentity, files: Sequence[LandedFile]) -> None:
        """Tell every editor what an agent wrote, and where."""
        if not self._sessions:
            return
        shown: list[dict[str, Any]] = []
        for file in files:
            entry: dict[str, Any] = {"path": file.path, "kind": file.kind}
            if file.from_ is not None:
                entry["from"] = file.from_
            entry["ranges"] = [{"start": start, "end": end} for start, end in file.ranges]
            shown.append(entry)
        self._announce(
            encode(
                Notification(method="devtools/landed", params={"plan": who.plan, "agent": who.agent, "files": shown})
            )
        )

    # -- ApprovalView --------------------------------------------------------------------------------------------

    def requested(self, approval: Approval) -> None:
        """Announce it."""
        if self._sessions:
            self._announce(announcement(REQUESTED, approval))

    def updated(self, approval: Approval) -> None:
        """Announce what became known."""
        if self._sessions:
            self._announce(announcement(UPDATED, approval))

    def resolved(self, approval: Approval, resolution: Resolution) -> None:
        """Announce how it ended."""
        del approval
        self._announce(encode(Notification(method=RESOLVED, params=resolution)))

    def _announce(self, payload: bytes) -> None:
        for session in list(self._sessions):
            try:
                session.send(payload)
            except FrameTooLargeError as error:
                _log.warning("an announcement is too large for an editor: %s", error)

    def _came_or_went(self, session: EditorSession, came: bool) -> None:
        if came:
            self._sessions[session] = None
        else:
            self._sessions.pop(session, None)


def _load() -> None:
    from devtools_lsp.daemon import editor_session, lsp_protocol

    del editor_session
    lsp_protocol.prepare()
