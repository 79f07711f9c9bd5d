"""The daemon's own composition: from a root to the two doors, everything behind them started and wired.

Owns who is told what: the gate's approvals, the activity log, the editors, the engines, the watcher. Each of them
knows only its own business.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from devtools_lsp import __version__, discovery
from devtools_lsp.app import World, build
from devtools_lsp.config import FILE_NAME, PYPROJECT_NAME, Configuration, load_configuration
from devtools_lsp.daemon.activity import ActivityLog
from devtools_lsp.daemon.agents import AgentDesk
from devtools_lsp.daemon.approval_marks import ApprovalMarks
from devtools_lsp.daemon.approvals import Approvals, GateSettings
from devtools_lsp.daemon.buffers import EditorBuffers
from devtools_lsp.daemon.diagnostics_hub import DiagnosticsHub, JudgeRequest
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.daemon.doors import Doors, Host, Peer
from devtools_lsp.daemon.editors import EditorRooms, Editors
from devtools_lsp.daemon.findings import Judgement
from devtools_lsp.daemon.landed import Landed
from devtools_lsp.daemon.lifecycle import serve
from devtools_lsp.daemon.watching import Watcher
from devtools_lsp.engines.tree import FileEvent
from devtools_lsp.errors import DevToolsError
from devtools_lsp.fs.names import always_ask
from devtools_lsp.pipeline.parts import SystemClock
from devtools_lsp.pipeline.rejudging import judge_files

_log = logging.getLogger(__name__)

REJUDGE_DEADLINE_S = 10.0


async def serve_root(root: Path, *, ready: Callable[[str], None]) -> str:
    """Run the daemon of a root until it ends; returns why it ended. See `lifecycle.serve` for what it raises."""
    configuration = load_configuration(root)
    idle_s = configuration.file.daemon.idle_exit_s or None
    return await serve(root, lambda host: _open(host, configuration), idle_s=idle_s, ready=ready)


async def _open(host: Host, configuration: Configuration) -> Doors:
    service = await asyncio.to_thread(Service, host, configuration)
    try:
        await service.start()
    except BaseException:
        await service.close()
        raise
    # What is loaded by then stays for good. The collector went over all of it now and then, which held the loop for
    # longer than anything else does. Of a client that is here already it may keep a few objects, once.
    service.editors.prepare().add_done_callback(lambda _loaded: gc.freeze())
    return Doors(agents=service.agents, editors=service.editors, close=service.close)


def gate_settings(configuration: Configuration) -> GateSettings:
    """The configuration's `[gate]` as the approvals take it."""
    gate = configuration.file.gate
    return GateSettings(
        mode=gate.mode,
        timeout_s=gate.timeout_s,
        preview_deadline_s=gate.preview_deadline_s,
        no_editor=gate.no_editor,
        rules=configuration.rules,
        rules_place=configuration.rules_place,
    )


class Service:
    """Everything that one daemon runs. Make it, `start` it, and `close` it."""

    def __init__(self, host: Host, configuration: Configuration) -> None:
        self._host = host
        root = host.root
        editors = configuration.file.editors
        clock = SystemClock()
        disk = Disk(root)
        self._state = discovery.state_directory(root)
        self._activity = ActivityLog(self._state / "activity.jsonl", clock)
        self._approvals = Approvals(
            clock, disk, gate_settings(configuration), always_asks=always_ask, activity=self._activity
        )
        buffers = EditorBuffers(disk)
        self._hub = DiagnosticsHub(disk, buffers, clock, publish=editors.publish, judge=self._judge)
        buffers.listen(self._hub.buffer_changed)
        rooms = EditorRooms(
            root=root, approvals=self._approvals, hub=self._hub, buffers=buffers, scratch=self._state / "diffs"
        )
        self.editors = Editors(rooms, pull=editors.diagnostics == "pull")
        self._approvals.attach(ApprovalMarks(self._hub), decides=False)
        self._observer = Landed(self.editors, self._hub, self._approvals, self._activity, self._tell_engines)
        lock = discovery.lock_path(host.socket_path)
        world = World(
            gate=self._approvals,
            buffers=buffers,
            observer=self._observer,
            clock=clock,
            own_paths=(str(self._state), str(host.socket_path), str(lock), *discovery.daemon_places()),
        )
        self._app = build(
            str(root), configuration, world, artifacts=self._state / "artifacts", on_engine=self._engine_event
        )
        self._watcher = Watcher(root, self._changed_outside, announce=self._watching_is_slow)
        self.agents = AgentDesk(host, self._app, self._approvals, self.status)
        self._troubles: dict[str, str] = {}
        self._reloading: set[asyncio.Task[None]] = set()
        self._one_reload = asyncio.Lock()

    async def start(self) -> None:
        """Begin to start the engines and to watch. An engine that is not installed prevents nothing."""
        recovered = self._app.opened.recovery.describe()
        for line in recovered:
            _log.warning("%s", line)
        if recovered:
            # Whoever runs into the old contents of a plan that was answered by silence asks the status first.
            self._troubles["recovery"] = "\n".join(recovered)
        await self._app.registry.start()
        await self._watcher.start()
        self.editors.prepare()

    # -- what happens --------------------------------------------------------------------------------------------

    async def _tell_engines(self, events: Sequence[FileEvent]) -> None:
        await self._app.registry.files_changed(events)

    def _watching_is_slow(self, sentence: str) -> None:
        self._troubles["watching"] = sentence
        _log.warning("%s", sentence)

    def _changed_outside(self, events: Sequence[FileEvent]) -> None:
        """Somebody else changed files: engines, findings, approvals learn of it; configuration is read again."""
        self._observer.changed_outside(events)
        if {FILE_NAME, PYPROJECT_NAME} & {event.path for event in events}:
            task = asyncio.get_running_loop().create_task(self.reload())
            self._reloading.add(task)
            task.add_done_callback(self._reloading.discard)

    async def reload(self) -> None:
        """Take a changed configuration; a faulty one is refused and said, and the old one stays in force."""
        # One after the other, so that what was written last is what is in force in the end.
        async with self._one_reload:
            try:
                await self._take(await asyncio.to_thread(load_configuration, self._host.root))
            except (DevToolsError, OSError) as error:
                self._troubles["configuration"] = f"{error}; the configuration from before stays in force"
                _log.warning("%s", self._troubles["configuration"])

    async def _take(self, configuration: Configuration) -> None:
        current = self._app.configuration
        if (configuration.file, configuration.source) != (current.file, current.source):
            await self._app.reload(configuration)
            self._approvals.configure(gate_settings(configuration))
            self.editors.configure(pull=configuration.file.editors.diagnostics == "pull")
            self._hub.configure(configuration.file.editors.publish)
            self.agents.tools_changed()
            for engine_id in {spec.id for spec in current.engines} - {spec.id for spec in configuration.engines}:
                self._observer.engine_event(engine_id, "removed")
        self._troubles.pop("configuration", None)

    def _engine_event(self, engine_id: str, what: str, details: Mapping[str, Any]) -> None:
        """An engine started, exited, failed or stopped."""
        if what in ("exited", "failed"):
            _log.warning("engine %s %s: %s", engine_id, what, dict(details))
        self._observer.engine_event(engine_id, "died" if what == "exited" else what)

    async def _judge(self, request: JudgeRequest) -> list[Judgement]:
        """Judge files for editors, outside any plan."""
        with self._app.lease() as pipeline:
            found = await judge_files(pipeline.parts, request.texts, request.engines, REJUDGE_DEADLINE_S)
        return [
            Judgement(
                judgement.engine_id,
                judgement.step,
                tuple(path for path in request.texts if path in judgement.judged),
                tuple(item for item in judgement.after if item.path in request.texts),
            )
            for judgement in found
        ]

    # -- what is known -------------------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """The answer to `devtools/status` (SPEC 8.0.5).

        Whoever counts as somebody to ask (8.0.9) is told, and nobody else: editors from when they can be asked, and as
        `watching`, when there are any, those who wait in a terminal.
        """
        peers = self._host.peers()
        watching = [_person(peer) for peer in self.agents.watching()]
        return {
            "root": str(self._host.root),
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(self._host.uptime_s, 3),
            "engines": await asyncio.to_thread(self._app.registry.status),
            "editors": [_person(peer) for peer in self.editors.attached],
            "agents": [{**_person(peer), "session": peer.session} for peer in peers if peer.role == "agent"],
            **({"watching": watching} if watching else {}),
            "pendingApprovals": len(self._approvals.items()),
            "gate": {
                "mode": self._approvals.settings.mode,
                "rules": [rule.to_wire() for rule in self._approvals.rules.all_rules()],
            },
            "stateDir": str(self._state),
            "skipped": [*self._troubles.values(), *self._app.registry.skipped()],
        }

    async def close(self) -> None:
        """The daemon ends: nobody is asked any more, engines stop, files are let go of."""
        await self._watcher.close()
        for task in list(self._reloading):
            task.cancel()
        await asyncio.gather(*self._reloading, return_exceptions=True)
        await self._approvals.close()
        await self._hub.close()
        await self._app.close()
        self._activity.close()


def _person(peer: Peer) -> dict[str, str]:
    return {"name": peer.name, "version": peer.version}
