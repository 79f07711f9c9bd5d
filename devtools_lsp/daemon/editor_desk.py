"""Where one editor decides: code actions, commands, questions in a message, and the diff (SPEC 8.0.8).

Owns how a person's gesture in a plain LSP client becomes an answer. Whether it counts, `Approvals` says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from devtools_lsp.daemon.approval_choice import Answer
from devtools_lsp.daemon.approval_payload import Approval, Decided
from devtools_lsp.daemon.approval_words import (
    LF,
    MAX_TEXT_BYTES,
    action_subject,
    diff_text,
    fitting,
    request_message,
    wire_size,
)
from devtools_lsp.daemon.approvals import Approvals
from devtools_lsp.daemon.diagnostics_hub import DiagnosticsHub
from devtools_lsp.daemon.doors import Channel
from devtools_lsp.daemon.lsp_protocol import EditorProtocol
from devtools_lsp.errors import BadArgumentError, DevToolsError
from devtools_lsp.wire.framing import FrameTooLargeError
from devtools_lsp.wire.messages import InvalidParamsError, MethodNotFoundError

_log = logging.getLogger(__name__)

APPROVE, DENY = "devtools.approve", "devtools.deny"
REMEMBER, SHOW_DIFF = "devtools.rememberAndApprove", "devtools.showDiff"
COMMANDS = (APPROVE, DENY, REMEMBER, SHOW_DIFF)
DIFF_SCHEME = "devtools-diff"

MAX_QUESTIONS = 8
"""How many questions stand in one editor's messages at once; further ones follow as these are answered."""

MAX_MESSAGE_BYTES = 6000
"""How much of a diff stands in a message, for a client that can show it in no better way."""

DiffWay = Literal["content", "file", "notification"]


class CommandArgument(msgspec.Struct, frozen=True):
    """The one argument of every command; `note` may come with an answer."""

    id: str
    note: str | None = None


class _OwnViews(msgspec.Struct, rename="camel"):
    """What an editor shows itself, as its `initializationOptions: {devtools: {...}}` say.

    `show_diff`: it takes `devtools/showDiff`. `approvals`: it puts questions to the person that no file can carry,
    so that none is asked in a message.
    """

    show_diff: bool = False
    approvals: bool = False


class _Options(msgspec.Struct):
    devtools: _OwnViews = msgspec.field(default_factory=_OwnViews)


class EditorDesk:
    """One editor's side of all approvals. `scratch` is a private directory for diffs that are shown as files."""

    def __init__(
        self,
        approvals: Approvals,
        hub: DiagnosticsHub,
        channel: Channel,
        protocol: EditorProtocol,
        scratch: Path | None,
    ) -> None:
        self._approvals = approvals
        self._hub = hub
        self._channel = channel
        self._protocol = protocol
        self._scratch = scratch
        self._literals = True
        self._way: DiffWay = "notification"
        self._own_views = _OwnViews()
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(MAX_QUESTIONS)
        self._files: set[Path] = set()

    def negotiate(self, params: types.InitializeParams) -> None:
        """Learn what this editor can show."""
        capabilities = params.capabilities
        self._own_views = _own_views(params)
        actions = capabilities.text_document.code_action if capabilities.text_document is not None else None
        self._literals = actions is None or actions.code_action_literal_support is not None
        window, workspace = capabilities.window, capabilities.workspace
        shows = window is not None and window.show_document is not None and window.show_document.support
        if self._own_views.show_diff or not shows:
            self._way = "notification"
        elif workspace is not None and workspace.text_document_content is not None:
            self._way = "content"
        else:
            self._way = "file" if self._scratch is not None else "notification"

    # -- actions and commands ------------------------------------------------------------------------------------

    def code_actions(self, path: str, params: types.CodeActionParams) -> list[types.CodeAction | types.Command]:
        """Approve, Deny, Remember and approve, Show diff for every approval that marks these lines."""
        only = params.context.only
        if only is not None and not any(str(getattr(kind, "value", kind)) in ("", "quickfix") for kind in only):
            return []
        named = {_approval_id(diagnostic): diagnostic for diagnostic in params.context.diagnostics}
        found: list[types.CodeAction | types.Command] = []
        first, last = params.range.start.line + 1, params.range.end.line + 1
        for approval_id, mark in self._hub.marks_on(path).items():
            here = mark.first_line <= last and mark.first_line + mark.lines > first
            if not here and approval_id not in named:
                continue
            approval = self._approvals.find(approval_id)
            shown = [named[approval_id]] if approval_id in named else []
            found += [self._action(approval, title, command, shown) for title, command in _offers(approval)]
        return found

    def _action(
        self, approval: Approval, title: str, command: str, diagnostics: list[types.Diagnostic]
    ) -> types.CodeAction | types.Command:
        whole = f"{title}: {action_subject(approval)}"
        if command == REMEMBER and approval.remember is not None:
            whole = f"{title}: {approval.remember.name}"
        run = types.Command(title=whole, command=command, arguments=[{"id": approval.id}])
        if not self._literals:
            return run
        return types.CodeAction(
            title=whole, kind=types.CodeActionKind.QuickFix, diagnostics=diagnostics or None, command=run
        )

    async def execute(self, command: str, arguments: list[Any]) -> object:
        """Run one of the commands; the answer is that of `devtools/decide`, or how the diff was shown."""
        if command not in COMMANDS:
            raise MethodNotFoundError(command)
        try:
            (argument,) = msgspec.convert(arguments, tuple[CommandArgument])
        except msgspec.ValidationError as error:
            raise InvalidParamsError(f"{command} takes [{{id}}]: {error}") from None
        if command == SHOW_DIFF:
            return await self.show_diff(argument.id)
        answer = Answer(approve=command != DENY, note=argument.note, remember=command == REMEMBER)
        return await self.decide(argument.id, answer)

    async def decide(self, approval_id: str, answer: Answer) -> dict[str, Any]:
        """Answer, and tell the person when the answer came too late to count."""
        decided = await self._approvals.decide(approval_id, answer, "editor")
        if not decided.applied:
            self.tell(f"Too late: it was {decided.status} by {decided.by} already.", types.MessageType.Info)
        elif answer.remember:
            self.tell(_until_when(decided), types.MessageType.Info)
        return msgspec.to_builtins(decided)

    # -- questions without a file --------------------------------------------------------------------------------

    def ask(self, approval: Approval) -> None:
        """Put the question in a message, where no file exists that could carry it."""
        if approval.id not in self._questions and not self._own_views.approvals:
            task = asyncio.get_running_loop().create_task(self._ask(approval))
            self._questions[approval.id] = task
            task.add_done_callback(lambda _task: self._questions.pop(approval.id, None))

    def forget(self, approval: Approval) -> None:
        """It was decided somewhere; an answer that still comes does nothing."""
        task = self._questions.pop(approval.id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        for path in [path for path in self._files if path.stem == approval.id]:
            self._files.discard(path)
            path.unlink(missing_ok=True)

    async def _ask(self, approval: Approval) -> None:
        async with self._places:
            try:
                message = request_message(approval)
                while approval.status == "pending":
                    again = await self._ask_once(approval, message)
                    if again is None:
                        return
                    message = again
            except (JsonRpcException, DevToolsError, FrameTooLargeError) as error:
                # The editor refused or could not show it; the approval waits on, in every list of pending ones.
                _log.info("the question for approval %s was not answered: %s", approval.id, error)

    async def _ask_once(self, approval: Approval, message: str) -> str | None:
        """Ask; returns what to ask next, None when there is nothing more to ask."""
        # Some clients preselect the first choice: Enter pressed by accident must not approve anything.
        first = SHOW_DIFF if approval.shown.diff else DENY
        offers = sorted(_offers(approval), key=lambda offer: offer[1] != first)
        titles = [title for title, command in offers if command != SHOW_DIFF or approval.shown.diff]
        params = types.ShowMessageRequestParams(
            type=types.MessageType.Warning,
            message=message,
            actions=[types.MessageActionItem(title=title) for title in titles],
        )
        chosen = await self._protocol.ask(types.WINDOW_SHOW_MESSAGE_REQUEST, params)
        command = dict(_offers(approval)).get(getattr(chosen, "title", ""))
        if command is None:
            # A dismissed message is no answer, and the question is gone from the screen.
            words = (
                f"Still waiting: {action_subject(approval)}. Answer with `devtools-lsp approve {approval.id}` or deny."
            )
            self.tell(words, types.MessageType.Info)
            return None
        if command == SHOW_DIFF:
            shown = await self.show_diff(approval.id)
            # The next question stands where the diff's message stood, so that it holds the diff itself.
            return _in_message(diff_text(approval)) if shown["shown"] == "message" else request_message(approval)
        await self.decide(approval.id, Answer(approve=command != DENY, remember=command == REMEMBER))
        return None

    # -- the diff ------------------------------------------------------------------------------------------------

    async def show_diff(self, approval_id: str) -> dict[str, str]:
        """Show a waiting approval's diff in the best way that the editor has; says which that was."""
        approval = self._approvals.find(approval_id)
        text = await asyncio.to_thread(diff_text, approval)
        if self._way != "notification":
            uri = f"{DIFF_SCHEME}:/{approval.id}.diff"
            if self._way == "file" and self._scratch is not None:
                uri = (await asyncio.to_thread(self._write, self._scratch, approval.id, text)).as_uri()
            params = types.ShowDocumentParams(uri=uri, take_focus=True)
            try:
                if (await self._protocol.ask(types.WINDOW_SHOW_DOCUMENT, params)).success:
                    return {"id": approval.id, "shown": self._way}
            except JsonRpcException as error:
                _log.info("the editor could not show %s: %s", uri, error)
        shown: dict[str, str] = {"id": approval.id, "text": text}
        # A frame holds both only while they are small; the text alone always fits.
        if wire_size(text) <= MAX_TEXT_BYTES // 2:
            shown["diff"] = approval.shown.diff
        self._channel.notify("devtools/showDiff", shown)
        if self._own_views.show_diff:
            return {"id": approval.id, "shown": "notification"}
        # A client that can open no document and does not know our notification still shows messages.
        self.tell(_in_message(text), types.MessageType.Info)
        return {"id": approval.id, "shown": "message"}

    async def content(self, uri: str) -> str:
        """The document of a diff URI."""
        name = uri.removeprefix(f"{DIFF_SCHEME}:").lstrip("/").removesuffix(".diff")
        if not uri.startswith(f"{DIFF_SCHEME}:"):
            raise BadArgumentError(f"no document is called {uri!r} here", reason="notFound")
        return await asyncio.to_thread(diff_text, self._approvals.find(name))

    def _write(self, scratch: Path, approval_id: str, text: str) -> Path:
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = scratch / f"{approval_id}.diff"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        path.chmod(0o600)
        self._files.add(path)
        return path

    # -- the rest ------------------------------------------------------------------------------------------------

    def tell(self, message: str, kind: types.MessageType) -> None:
        """Say something that needs no answer."""
        self._channel.notify(types.WINDOW_SHOW_MESSAGE, {"type": kind.value, "message": message})

    async def close(self) -> None:
        """The editor is gone: stop asking, remove what was written for it."""
        tasks = list(self._questions.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for path in self._files:
            path.unlink(missing_ok=True)
        self._files.clear()


def _in_message(text: str) -> str:
    part = fitting(text, MAX_MESSAGE_BYTES)
    more = text.count(LF) - part.count(LF)
    return part if part == text else f"{part}\n… {more} more lines: `devtools-lsp approvals`"


def _until_when(decided: Decided) -> str:
    if decided.rule is None:
        return "Remembered until the agent's session ends; no rule of the configuration can say it for good."
    words = f"Remembered until the agent's session ends; to keep it for good, add to {decided.rule_file}:"
    return f"{words}\n{decided.rule}"


def _offers(approval: Approval) -> list[tuple[str, str]]:
    remember = [("Remember and approve", REMEMBER)] if approval.remember is not None else []
    return [("Approve", APPROVE), ("Deny", DENY), *remember, ("Show diff", SHOW_DIFF)]


def _approval_id(diagnostic: types.Diagnostic) -> str | None:
    data = diagnostic.data
    if not isinstance(data, Mapping):
        return None
    found = cast("Mapping[str, object]", data).get("approvalId")
    return found if isinstance(found, str) else None


def _own_views(params: types.InitializeParams) -> _OwnViews:
    """Whatever else an editor sends there is none of ours."""
    try:
        return msgspec.convert(params.initialization_options or {}, _Options).devtools
    except msgspec.ValidationError:
        return _OwnViews()
