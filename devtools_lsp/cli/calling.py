"""Sending one request that may take long: what it prints meanwhile, and what Ctrl-C makes of it.

The first Ctrl-C cancels the request in the daemon and waits (bounded) for its word on what had landed; the second
one waits for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT
from typing import Any

import typer

from devtools_lsp.cli.options import InterruptedCallError, tell_version
from devtools_lsp.client import Client, ProgressCallback, connect
from devtools_lsp.errors import CallCancelledError, DevToolsError
from devtools_lsp.ports import Cancellation
from devtools_lsp.wire.messages import Surface


@dataclass(frozen=True, slots=True)
class Request:
    """What a request is sent with."""

    client: Client
    progress: ProgressCallback
    signal: Cancellation


async def send(
    root: Path,
    ask: Callable[[Request], Awaitable[dict[str, Any]]],
    *,
    agent: str,
    surface: Surface | None = None,
    session: str | None = None,
) -> dict[str, Any]:
    """Connect as that agent, starting the daemon when none runs, and return what `ask` gets from it.

    Raises InterruptedCallError after Ctrl-C, and whatever `connect` and the request raise.
    """
    interrupted, waiting = Cancellation(), WaitingLines()
    _listen_to_interrupts(interrupted)
    client = await _connected(root, interrupted, agent=agent, surface=surface, session=session)
    async with client:
        tell_version(client)
        try:
            return await ask(Request(client, waiting, interrupted))
        except DevToolsError as error:
            if not interrupted.cancelled:
                raise
            withdrawn = "; whatever of it waited for a person is withdrawn" if waiting.asked else ""
            error = DevToolsError.from_wire({**error.to_wire(), "message": f"interrupted: {error.message}{withdrawn}"})
            raise InterruptedCallError(error) from None


def _listen_to_interrupts(interrupted: Cancellation) -> None:
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        interrupted.cancel("Ctrl-C")
        # Whoever presses it again means it: the default handler ends the process at once.
        loop.remove_signal_handler(SIGINT)

    loop.add_signal_handler(SIGINT, interrupt)


async def _connected(
    root: Path, interrupted: Cancellation, *, agent: str, surface: Surface | None, session: str | None
) -> Client:
    connecting = asyncio.ensure_future(connect(root, name=agent, surface=surface, session=session))
    await interrupted.wait_or_done(connecting)
    if not connecting.done():
        connecting.cancel()
        await asyncio.wait({connecting})
        raise InterruptedCallError(CallCancelledError("interrupted before the request was sent; nothing was done"))
    return connecting.result()


class WaitingLines:
    """Prints what a call does meanwhile on standard error, so that standard output holds the result alone."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    @property
    def asked(self) -> bool:
        """Whether a person was asked about the call."""
        return bool(self._said)

    def __call__(self, value: dict[str, Any]) -> None:
        """One piece of progress; that somebody still waits is said once."""
        if value.get("kind") == "output":
            typer.echo(value.get("text", ""), err=True)
            return
        approval = value.get("approval")
        if approval is not None and approval not in self._said:
            self._said.add(approval)
            typer.echo(f"{value['message']}  (devtools-lsp approve {approval})", err=True)
