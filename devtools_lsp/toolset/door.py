"""`DevToolset`: the workspace tools inside one's own process, opened, called, cancelled and closed.

What a tool does is said in `agent/workspace_tools.py`, how a root is composed in `app`, and what providers want in
`agent/providers.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from devtools_lsp import discovery
from devtools_lsp.agent import providers
from devtools_lsp.agent.forge import Invocation, Progress
from devtools_lsp.agent.providers import ToolForm
from devtools_lsp.agent.render import refusal_text, render_answer, reply_text
from devtools_lsp.app import App, World, build
from devtools_lsp.errors import CallCancelledError, DevToolsError, InvalidConfigError, StepUnavailableError
from devtools_lsp.pipeline.stopping import StoppedError, Stopping
from devtools_lsp.ports import Cancellation, Decision, Gate, GateCall, GateContext
from devtools_lsp.toolset.ending import Work, done_or_stopped, ended, fault, outcome
from devtools_lsp.toolset.workspace import Workspace
from devtools_lsp.wire.messages import Output

_log = logging.getLogger(__name__)

ProgressCallback = Callable[[dict[str, Any]], Awaitable[None] | None]
"""Told `{kind: output, stream, text}` while a command runs, as the daemon's client is; a coroutine is awaited."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """What lives between `open` and `close`."""

    app: App
    spool: tempfile.TemporaryDirectory[str]

    async def close(self) -> None:
        await self.app.close()
        await asyncio.to_thread(self.spool.cleanup)


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    """One call: the task that does the work, and the switch that ends it."""

    work: Work
    switch: Cancellation


class DevToolset:
    """The workspace tools over one root: `async with DevToolset(Workspace(root), gate) as toolset`.

    `gate` is asked before every step, as in the daemon: one async function of (context, call) that returns a Decision.
    Reading asks too (`acquire`, `read_lines`, `search`); what changes files is `edit` and `write_file`, whose
    `args` say `persists`, and `bash`. `agent` is the name that the gate sees.

    `check_command` is given each command and refuses by raising a DevToolsError; `redact` takes secrets out of what
    commands print. Calls may run at the same time. Everything happens on the event loop that opened it.
    """

    def __init__(
        self,
        workspace: Workspace,
        gate: Gate,
        *,
        agent: str = "library",
        check_command: Callable[[str], None] | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        """Raises InvalidConfigError for what is no Workspace and no function. Touches nothing before `open`."""
        if not isinstance(workspace, Workspace):  # pyright: ignore[reportUnnecessaryIsInstance] -- embedders
            raise InvalidConfigError(f"DevToolset: workspace must be a Workspace, not {workspace!r}")
        for name, value in (("gate", gate), ("check_command", check_command), ("redact", redact)):
            if not callable(value) and (value is not None or name == "gate"):
                raise InvalidConfigError(f"DevToolset: {name} must be a function, not {value!r}")
        self.workspace = workspace
        self._gate = gate
        self._agent = agent
        self._check_command = check_command
        self._redact = redact
        self._opened: _Opened | None = None
        self._turn = asyncio.Lock()
        self._running: set[_Running] = set()

    # -- life ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the root and recover what a crash left; `async with` does it. Raises InvalidConfigError."""
        async with self._turn:
            if self._opened is not None:
                raise InvalidConfigError("DevToolset: it is open already; make another one, or share this one")
            opening = asyncio.ensure_future(asyncio.to_thread(self._open))
            try:
                self._opened = await asyncio.shield(opening)
            except asyncio.CancelledError:
                with contextlib.suppress(DevToolsError):
                    await (await opening).close()
                raise

    async def close(self) -> None:
        """End every call that runs, everything their commands started, and let go of the root. Bounded."""
        async with self._turn:
            opened, self._opened = self._opened, None
            if opened is None:
                return
            running = list(self._running)
            for call in running:
                call.switch.cancel("the toolset was closed")
            try:
                await asyncio.gather(*(ended(call.work) for call in running))
            finally:
                await opened.close()

    def _open(self) -> _Opened:
        spool = _spool_directory(self.workspace.root)
        try:
            world = World(
                gate=self._ask,
                own_paths=(spool.name, *discovery.daemon_places()),
                check_command=self._check_command,
                redact=self._redact,
            )
            return _Opened(
                build(str(self.workspace.root), self.workspace.configuration(), world, artifacts=Path(spool.name)),
                spool,
            )
        except BaseException:
            spool.cleanup()
            raise

    # -- tools ---------------------------------------------------------------------------------------------------

    def tools(self, form: ToolForm = "mcp") -> list[dict[str, Any]]:
        """The tools that are offered, in the form that a model's provider takes.

        `mcp`: [{name, description, inputSchema, annotations}], exactly as the daemon lists them; `anthropic`, `openai`
        (responses) and `openai-chat` (chat completions) go into a request's `tools`. Raises BadArgumentError for
        another form.
        """
        return providers.tool_definitions(copy.deepcopy(self._in_use().app.tools("workspace").to_wire()), form)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressCallback | None = None,
        signal: Cancellation | None = None,
        session: str = "default",
    ) -> dict[str, Any]:
        """Call one tool; returns the result of `devtools/call` (SPEC 3.12, 8.0.5) with `content` and `data`.

        `progress` is told what a command prints. What has been read is remembered by `session`, for edit_file and
        write_file. Raises DevToolsError.

        Cancelling the task that awaits ends the call and everything that its command started, before CancelledError
        goes on; its `__cause__` says what had landed. Turning `signal` does the same and raises CallCancelledError.
        """
        opened = self._in_use()
        switch = Cancellation()
        unsubscribe = signal.subscribe(lambda: switch.cancel(signal.reason)) if signal is not None else None
        who = Invocation(self._agent, session, switch)
        working = _work(opened.app, name, {} if arguments is None else arguments, who, _teller(progress))
        work = asyncio.get_running_loop().create_task(working, name=f"devtools {name}")
        call = _Running(work, switch)
        self._running.add(call)
        work.add_done_callback(lambda _: self._forget(call))
        try:
            await done_or_stopped(work, switch)
        except asyncio.CancelledError as cancelled:
            switch.cancel("the task that called was cancelled")
            await ended(work)
            raise cancelled from fault(work)
        finally:
            if unsubscribe is not None:
                unsubscribe()
        return outcome(work, name, switch)

    async def answer(
        self,
        tool_use: object,
        *,
        progress: ProgressCallback | None = None,
        signal: Cancellation | None = None,
        session: str = "default",
    ) -> dict[str, Any]:
        """Run a model's call of a tool and return what goes back to it: a refusal is an answer like any other.

        `tool_use` is a `tool_use` block (Anthropic), a `function_call` item or an entry of `tool_calls` (OpenAI), as
        data or as the provider's own object; the answer has the form that belongs to it. Raises BadArgumentError for
        anything else, for there is nobody to answer then.
        """
        use = providers.read_tool_use(tool_use)
        try:
            reply = await self.call(use.name, use.arguments(), progress=progress, signal=signal, session=session)
        except DevToolsError as error:
            return providers.tool_result(use, refusal_text(error), refused=True)
        return providers.tool_result(use, reply_text(reply) or "(no output)", refused=False)

    async def artifact(self, handle: str) -> dict[str, Any]:
        """The whole result behind a reply's `artifact`, where the reply was cut to its budget.

        Kept until the toolset is closed, within bounds. Raises BadArgumentError for a handle that is unknown or
        expired.
        """
        return msgspec.json.decode(await self._in_use().app.artifacts.read(handle))

    async def confinement(self) -> dict[str, str]:
        """How far commands are confined on this machine: {level, description}."""
        return await self._in_use().app.confinement()

    # -- inside --------------------------------------------------------------------------------------------------

    def _in_use(self) -> _Opened:
        if self._opened is None:
            raise StepUnavailableError("the toolset is not open; call it inside `async with DevToolset(...)`")
        return self._opened

    async def _ask(self, context: GateContext, call: GateCall) -> Decision:
        try:
            # Whoever asks a person here need not look at the switch: the question ends with the call.
            async with Stopping(context.signal):
                decision = await self._gate(context, call)
        except StoppedError:
            raise CallCancelledError(f"{context.signal.reason}: {call.step} was not approved yet") from None
        if not isinstance(decision, Decision):  # pyright: ignore[reportUnnecessaryIsInstance] -- embedders
            raise TypeError(f"it must return a devtools_lsp.Decision, not {decision!r}")
        return decision

    def _forget(self, call: _Running) -> None:
        self._running.discard(call)
        # Retrieved also where nobody waits any more, so that nothing is logged as lost.
        fault(call.work)


async def _work(
    app: App, name: str, arguments: Mapping[str, Any], who: Invocation, progress: Progress | None
) -> dict[str, Any]:
    with app.lease():
        answer = await app.tools("workspace").find(name).call(arguments, who, progress)
        budget = app.configuration.file.reply.inline_tokens
        return render_answer(answer, app.artifacts.spool(answer.result), inline_tokens=budget)


def _teller(progress: ProgressCallback | None) -> Progress | None:
    if progress is None:
        return None

    async def tell(stream: str, text: str) -> None:
        value = Output(stream="stderr" if stream == "stderr" else "stdout", text=text)
        try:
            told = progress(msgspec.to_builtins(value))
            if inspect.isawaitable(told):
                await told
        except Exception:
            # What an embedder makes of the output must not end the command.
            _log.exception("the progress callback failed")

    return tell


# -- places ------------------------------------------------------------------------------------------------------


def _spool_directory(root: Path) -> tempfile.TemporaryDirectory[str]:
    """A private directory outside the root, for results that are too large for a reply."""
    for place in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        real = Path(os.path.realpath(place))
        if real != root and root not in real.parents:
            with contextlib.suppress(OSError):
                return tempfile.TemporaryDirectory(prefix="devtools-lsp-", dir=real, ignore_cleanup_errors=True)
    raise InvalidConfigError(f"there is no temporary directory outside {root}; set TMPDIR to one")
