"""The bench for the people's side of the daemon: a clock that tests turn, a gate with proposals, views that record."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.core.changeset import FileChange, Preview
from devtools_lsp.core.diagnostics import Diagnostic, Pending
from devtools_lsp.core.hunks import hunks_between, render_unified
from devtools_lsp.core.workspace import sha256
from devtools_lsp.daemon.approval_payload import Approval, Resolution
from devtools_lsp.daemon.approvals import Answer, Approvals, GateSettings
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.pipeline.rule_tables import read_rules
from devtools_lsp.ports import Cancellation, Decision, Edited, GateCall, GateContext


async def until(condition: Callable[[], object], what: str = "the condition", timeout_s: float = 10.0) -> None:
    """Poll; fail with words when it does not come true in time."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)


class ManualClock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), future))
        await future

    @property
    def sleeping(self) -> int:
        return sum(not future.done() for _, _, future in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Let time pass, and give what it woke a turn."""
        self.now += seconds
        while self._sleepers and self._sleepers[0][0] <= self.now:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)


class RecordingView:
    """Keeps what it was told, as (event, approval id, detail)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Any]] = []

    def requested(self, approval: Approval) -> None:
        self.told.append(("requested", approval.id, [pending.reason for pending in approval.shown.pending]))

    def updated(self, approval: Approval) -> None:
        self.told.append(("updated", approval.id, [pending.reason for pending in approval.shown.pending]))

    def resolved(self, approval: Approval, resolution: Resolution) -> None:
        self.told.append(("resolved", approval.id, (resolution.status, resolution.by)))

    def events(self, approval_id: str) -> list[str]:
        return [event for event, known, _ in self.told if known == approval_id]


@dataclass
class Asked:
    """One gate call under way."""

    task: asyncio.Task[Decision]
    signal: Cancellation
    diffs: list[int] = field(default_factory=list)
    previews: list[int] = field(default_factory=list)


@dataclass
class GateBench:
    """Approvals over a real directory, asked as the pipeline asks them."""

    root: Path
    clock: ManualClock
    approvals: Approvals
    started: list[Asked] = field(default_factory=list)

    def put(self, files: Mapping[str, str | bytes]) -> None:
        for path, content in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def change(self, path: str, after: str | None, *, source: str | None = None) -> FileChange:
        """The proposal of one file against what is on disk."""
        host = self.root / (source or path)
        before = host.read_bytes() if host.exists() else None
        old = before.decode().replace("\r\n", "\n") if before is not None else ""
        kind = "renamed" if source else "added" if before is None else "deleted" if after is None else "modified"
        return FileChange(
            path=path,
            kind=kind,
            base_hash=sha256(before) if before is not None else None,
            hunks=hunks_between(old, after or "", path=path),
            from_=source,
        )

    def ask(
        self,
        step: str = "edit",
        changes: Sequence[FileChange] = (),
        *,
        args: Mapping[str, Any] | None = None,
        targets: Sequence[str] | None = None,
        agent: str = "claude",
        session: str = "s1",
        in_place: bool = False,
        introduced: Sequence[Diagnostic] = (),
        pending: Sequence[Pending] = (),
        consequences: Awaitable[None] | None = None,
        fails: Exception | None = None,
    ) -> Asked:
        """Ask the gate in a task; `consequences` is awaited before the preview is complete."""
        shown = Preview(render_unified(changes), list(changes), [], [], [], [])
        asked = Asked(asyncio.Future(), Cancellation())  # type: ignore[arg-type]

        async def diff() -> Preview:
            asked.diffs.append(1)
            return shown

        async def preview() -> Preview:
            asked.previews.append(1)
            if consequences is not None:
                await consequences
            if fails is not None:
                raise fails
            return Preview(shown.diff, shown.files, [], list(introduced), [], list(pending))

        paths = [change.from_ or change.path for change in changes if change.kind != "added"]
        created = [change.path for change in changes if change.kind == "added"]
        call = GateCall(
            step,
            {"persists": True} if args is None else dict(args),
            tuple(paths if targets is None else targets),
            tuple(created),
        )
        context = GateContext(
            plan=f"p{len(self.started) + 1}",
            step_index=1,
            agent=agent,
            signal=asked.signal,
            diff=diff,
            preview=preview,
            session=session,
            in_place=in_place,
        )
        asked.task = asyncio.get_running_loop().create_task(self.approvals(context, call))
        self.started.append(asked)
        return asked

    def edit(self, path: str, after: str, **more: Any) -> Asked:
        return self.ask("edit", [self.change(path, after)], **more)

    async def waiting(self, count: int = 1) -> Approval:
        """The newest of `count` waiting approvals, once there are that many."""
        await until(lambda: len(self.approvals.items()) == count, f"{count} waiting approvals")
        return self.approvals.items()[-1]

    async def decide(self, approval_id: str, approve: bool = True, role: Any = "editor", **more: Any) -> Any:
        edited = tuple(Edited(**entry) for entry in more.pop("edited", ()))
        return await self.approvals.decide(approval_id, Answer(approve, edited=edited, **more), role)

    def configure(self, *rules: Mapping[str, Any], **settings: Any) -> None:
        self.approvals.configure(GateSettings(rules=read_rules(rules), **settings))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def bench(tmp_path: Path, clock: ManualClock):
    root = tmp_path / "project"
    root.mkdir()
    approvals = Approvals(
        clock, Disk(root), GateSettings(), always_asks=lambda path: path.rpartition("/")[2] == "package.json"
    )
    bench = GateBench(root, clock, approvals)
    yield bench
    await approvals.close()
    for asked in bench.started:
        asked.task.cancel()
    await asyncio.gather(*(asked.task for asked in bench.started), return_exceptions=True)


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """Poll a condition with a bound."""
    return until


@pytest.fixture
def view(bench: GateBench) -> RecordingView:
    """A view that decides, attached."""
    found = RecordingView()
    bench.approvals.attach(found, decides=True)
    return found


@pytest.fixture
def new_view() -> Callable[[], RecordingView]:
    return RecordingView
