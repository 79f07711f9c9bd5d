"""The agents' door: the table of `devtools/*` methods, each a few lines that call one function elsewhere.

Owns what a call needs beside its tool: a plan id, progress while somebody decides, the artifact and the reply. It
holds no rule about what may happen; the pipeline and the gate do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from devtools_lsp import __version__
from devtools_lsp.agent.forge import Invocation, SurfaceName, ToolAnswer
from devtools_lsp.app import App
from devtools_lsp.daemon.approval_choice import Answer, DiffParams, shown_document
from devtools_lsp.daemon.approval_payload import REQUESTED, RESOLVED, UPDATED, Approval, announcement, list_to_wire
from devtools_lsp.daemon.approvals import Approvals, Resolution
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.daemon.doors import CallScope, Host, Peer
from devtools_lsp.daemon.replies import Reply
from devtools_lsp.errors import PolicyError
from devtools_lsp.pipeline.guarded import Caller
from devtools_lsp.pipeline.off_loop import off_loop
from devtools_lsp.pipeline.pipeline import new_plan_id
from devtools_lsp.ports import Edited, PlanIdentity
from devtools_lsp.wire.messages import (
    ApprovalsParams,
    ArtifactParams,
    CallParams,
    DecideParams,
    EditedParam,
    MethodNotFoundError,
    NoParams,
    OpsParams,
    Output,
    Report,
    ToolsParams,
    UndoParams,
    decode_params,
    encode,
)


class _Asked(msgspec.Struct, frozen=True):
    """One request on its way to its handler."""

    peer: Peer
    params: msgspec.Raw
    call: CallScope


Params = TypeVar("Params")

Handler = Callable[[_Asked], Awaitable[object]]
Work = Callable[[str, Callable[[ToolAnswer], None]], Awaitable[ToolAnswer]]
"""Does what was called under a plan id, and may tell its answer beforehand."""

DEFAULT_SURFACE: SurfaceName = "granular"


class AgentDesk:
    """Implements `doors.AgentDoor` over one composed root."""

    def __init__(
        self, host: Host, app: App, approvals: Approvals, status: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        self._host = host
        self._app = app
        self._approvals = approvals
        self._status = status
        self._disk = Disk(host.root)
        self._running: dict[str, CallScope] = {}
        self._told: set[asyncio.Task[None]] = set()
        self._watching: dict[Peer, TerminalView] = {}
        self._methods: dict[str, Handler] = {
            "devtools/tools": self._tools,
            "devtools/call": self._call,
            "devtools/ops": self._ops,
            "devtools/artifact": self._artifact,
            "devtools/status": self._show_status,
            "devtools/approvals": self._list_approvals,
            "devtools/decide": self._decide,
            "devtools/diff": self._diff,
            "devtools/undo": self._undo,
        }
        approvals.attach(self, decides=False)

    # -- AgentDoor -----------------------------------------------------------------------------------------------

    async def attach(self, peer: Peer) -> object:
        """The answer to `devtools/initialize`."""
        surface = _surface(peer)
        return {
            "server": "devtools-lsp",
            "version": __version__,
            "root": self._app.root,
            "surface": surface,
            "tools": self._app.tools(surface).to_wire(),
            "gate": {"mode": self._approvals.settings.mode},
            "confinement": await self._app.confinement(),
        }

    async def call(self, peer: Peer, method: str, params: msgspec.Raw, call: CallScope) -> object:
        """Answer one request; raises MethodNotFoundError for methods that are not in the table."""
        handler = self._methods.get(method)
        if handler is None:
            raise MethodNotFoundError(method)
        return await handler(_Asked(peer, params, call))

    def detached(self, peer: Peer) -> None:
        """A peer is gone: it watches no more, and what was remembered for its session ends with it."""
        view = self._watching.pop(peer, None)
        if view is not None:
            self._approvals.detach(view)
        if not any(other.session == peer.session for other in self._host.peers() if other is not peer):
            self._approvals.end_session(peer.session)
        if peer.session == peer.connection:
            # It was given no name under which somebody could come back to what it has read.
            self._app.end_session(peer.session)

    def watching(self) -> list[Peer]:
        """The terminals that wait in `approvals --watch`: somebody who can decide."""
        return [peer for peer in self._watching if peer.role == "terminal"]

    def tools_changed(self) -> None:
        """What is offered may have changed: agents that keep a list, as an MCP bridge does, ask again."""
        for peer in self._host.peers():
            if peer.role == "agent":
                peer.channel.notify("devtools/toolsChanged", {})

    # -- the table -----------------------------------------------------------------------------------------------

    async def _tools(self, asked: _Asked) -> object:
        wanted = decode_params(asked.params, ToolsParams).surface
        return {"tools": self._app.tools(wanted or _surface(asked.peer)).to_wire()}

    async def _call(self, asked: _Asked) -> object:
        wanted = await _decoded(asked.params, CallParams)
        surface = wanted.surface or _surface(asked.peer)

        async def work(plan: str, foretold: Callable[[ToolAnswer], None]) -> ToolAnswer:
            tool = self._app.tools(surface).find(wanted.name)
            who = Invocation(asked.peer.name, asked.peer.session, asked.call.signal, plan, foretold)
            printed = partial(_print, asked.call) if asked.call.listens else None
            return await tool.call(wanted.arguments, who, printed)

        return await self._run(asked.call, work)

    async def _ops(self, asked: _Asked) -> object:
        wanted = await _decoded(asked.params, OpsParams)

        async def work(plan: str, _foretold: Callable[[ToolAnswer], None]) -> ToolAnswer:
            result = await self._app.pipeline.ops(
                wanted.paths,
                wanted.ops,
                agent=asked.peer.name,
                session=asked.peer.session,
                signal=asked.call.signal,
                plan=plan,
            )
            return ToolAnswer(result)

        return await self._run(asked.call, work)

    async def _undo(self, asked: _Asked) -> object:
        wanted = decode_params(asked.params, UndoParams)

        async def work(plan: str, _foretold: Callable[[ToolAnswer], None]) -> ToolAnswer:
            caller = Caller(PlanIdentity(plan, asked.peer.name, asked.peer.session), asked.call.signal)
            return ToolAnswer(await self._app.pipeline.undo(wanted.plan, caller))

        return await self._run(asked.call, work)

    async def _run(self, call: CallScope, work: Work) -> object:
        """Run one call under a plan id of its own, spool its result, and make the reply of it."""
        plan = new_plan_id()
        self._running[plan] = call
        reply = Reply(self._app.artifacts, self._app.configuration.file.reply.inline_tokens)
        try:
            with self._app.lease():
                answer = await work(plan, reply.foretell)
        finally:
            del self._running[plan]
        return await reply.to(answer)

    async def _artifact(self, asked: _Asked) -> object:
        wanted = decode_params(asked.params, ArtifactParams)
        return await self._app.artifacts.page(
            wanted.handle, wanted.path, wanted.severity, wanted.engine_id, wanted.offset, wanted.limit
        )

    async def _show_status(self, asked: _Asked) -> object:
        decode_params(asked.params, NoParams)
        return await self._status()

    async def _list_approvals(self, asked: _Asked) -> object:
        wanted = decode_params(asked.params, ApprovalsParams)
        if wanted.watch and asked.peer.decides and asked.peer not in self._watching:
            view = TerminalView(asked.peer)
            self._watching[asked.peer] = view
            items = list_to_wire(self._approvals.items())
            self._approvals.attach(view, decides=True)
            view.caught_up()
            return {"items": items}
        items = self._approvals.items()
        if asked.peer.role == "editor" or asked.peer in self._watching:
            # Whoever is told what changes is given the list before anything else can change.
            return {"items": list_to_wire(items)}
        listed = await off_loop(
            sum(approval.weight for approval in items), lambda: msgspec.Raw(encode(list_to_wire(items)))
        )
        return {"items": listed}

    async def _decide(self, asked: _Asked) -> object:
        wanted = decode_params(asked.params, DecideParams)
        answer = Answer(
            approve=wanted.approve,
            note=wanted.note,
            remember=wanted.remember,
            edited=tuple(_edited(entry) for entry in wanted.edited),
            drop=tuple(wanted.drop),
        )
        return await self._approvals.decide(wanted.id, answer, asked.peer.role)

    async def _diff(self, asked: _Asked) -> object:
        wanted = decode_params(asked.params, DiffParams)
        if not asked.peer.decides:
            # It shows whole files, past what an agent may read.
            raise PolicyError(
                "only those who decide are shown the whole texts of an approval; read files with read_lines",
                reason="notDecider",
            )
        return await asyncio.to_thread(shown_document, self._approvals.find(wanted.id), self._disk, wanted)

    # -- ApprovalView: the caller learns that somebody is being asked ---------------------------------------------

    def requested(self, approval: Approval) -> None:
        """Tell the call that waits for this approval."""
        self._report(approval, f"{approval.step} waits for a person's approval")

    def updated(self, approval: Approval) -> None:
        """Consequences are for the person: the caller is told only that it still waits."""
        self._report(approval, f"{approval.step} still waits for a person's approval")

    def resolved(self, approval: Approval, resolution: Resolution) -> None:
        """Tell the call how it ended."""
        self._report(approval, f"{approval.step}: {resolution.status} by {resolution.by}", waits=False)

    def _report(self, approval: Approval, message: str, *, waits: bool = True) -> None:
        call = self._running.get(approval.plan)
        if call is None:
            return
        task = asyncio.get_running_loop().create_task(
            call.progress(Report(message=message, approval=approval.id if waits else None))
        )
        self._told.add(task)
        task.add_done_callback(self._told.discard)


class TerminalView:
    """A terminal that waits in `approvals --watch`: shown everything that comes after it was attached."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._catching_up = True

    def caught_up(self) -> None:
        """What waited before was listed in the answer; from here on there are notifications."""
        self._catching_up = False

    def requested(self, approval: Approval) -> None:
        """One waits."""
        if not self._catching_up:
            self._peer.channel.send(announcement(REQUESTED, approval))

    def updated(self, approval: Approval) -> None:
        """Its consequences became known."""
        self._peer.channel.send(announcement(UPDATED, approval))

    def resolved(self, approval: Approval, resolution: Resolution) -> None:
        """It ended."""
        del approval
        self._peer.channel.notify(RESOLVED, resolution)


async def _decoded(params: msgspec.Raw, kind: type[Params]) -> Params:
    return await off_loop(len(memoryview(params)), decode_params, params, kind)


def _edited(entry: EditedParam) -> Edited:
    text = entry.content if entry.path is not None else entry.text
    return Edited(text=text or "", path=entry.path, hunk_id=entry.hunk_id)


def _surface(peer: Peer) -> SurfaceName:
    if peer.surface == "composite" or peer.surface == "workspace":
        return peer.surface
    return DEFAULT_SURFACE


async def _print(call: CallScope, stream: str, text: str) -> None:
    await call.progress(Output(stream="stderr" if stream == "stderr" else "stdout", text=text))
