"""Commands that do what an agent does: call, plan, undo, status, stop."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from devtools_lsp import discovery
from devtools_lsp.cli.options import (
    EXIT_ERROR_DIAGNOSTICS,
    EXIT_OK,
    JsonOption,
    RootOption,
    Terminal,
    checked_root,
    read_json,
    refuse,
    run,
    tell_version,
)
from devtools_lsp.errors import BadArgumentError

AgentOption = Annotated[str, typer.Option("--agent", help="The name that the gate, people and the log see.")]
SessionOption = Annotated[str | None, typer.Option("--session", help="Ties what was read to a name across calls.")]
SurfaceOption = Annotated[str, typer.Option("--surface", help="granular, composite or workspace.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("call", help="Call one tool; starts the daemon when none runs.")(call)
    app.command("plan", help="Run a plan of several steps in one call.")(plan)
    app.command("undo", help="Revert the last plan, or the one named, where its files still hold what it wrote.")(undo)
    app.command("tools", help="List the tools of a surface with their schemas.")(tools)
    app.command("status", help="Show the daemon, its engines and what waits.")(status)
    app.command("stop", help="Stop the daemon of this root.")(stop)


def call(
    tool: Annotated[str, typer.Argument(help="The tool's name, e.g. edit, lint, check.")],
    args: Annotated[str | None, typer.Option("--args", help="Arguments as JSON; default: standard input.")] = None,
    root: RootOption = None,
    agent: AgentOption = "terminal",
    session: SessionOption = None,
    surface: SurfaceOption = "granular",
    as_json: JsonOption = False,
) -> None:
    """Exit code 0 = ok, 1 = done with error diagnostics, 2 = refused or failed (the error object on stderr)."""
    arguments = read_json(args, "--args")
    found = checked_root(root)

    async def work() -> dict[str, Any]:
        from devtools_lsp.client import connect

        async with await connect(found, name=agent, session=session, surface=_surface(surface)) as client:
            tell_version(client)
            return await client.call(tool, arguments, progress=WaitingLines())

    _finish(run(work()), as_json)


def plan(
    paths: Annotated[list[str] | None, typer.Argument(help="Files and patterns that the steps work on.")] = None,
    ops: Annotated[
        str | None, typer.Option("--ops", help="The steps as a JSON list of {step, args}; default: standard input.")
    ] = None,
    root: RootOption = None,
    agent: AgentOption = "terminal",
    as_json: JsonOption = False,
) -> None:
    """Exit codes as for `call`."""
    steps = read_json(ops, "--ops")
    found = checked_root(root)

    async def work() -> dict[str, Any]:
        from devtools_lsp.client import connect

        async with await connect(found, name=agent, surface="composite") as client:
            tell_version(client)
            return await client.ops(paths or [], steps, progress=WaitingLines())

    _finish(run(work()), as_json)


def undo(
    plan: Annotated[str | None, typer.Argument(help="The plan's id; default: the last plan that wrote.")] = None,
    root: RootOption = None,
    agent: AgentOption = "terminal",
    as_json: JsonOption = False,
) -> None:
    """Files that changed since are named and left alone."""
    found = checked_root(root)

    async def work() -> dict[str, Any]:
        from devtools_lsp.client import connect

        async with await connect(found, name=agent) as client:
            tell_version(client)
            return await client.undo(plan, progress=WaitingLines())

    _finish(run(work()), as_json)


def tools(root: RootOption = None, surface: SurfaceOption = "granular", as_json: JsonOption = False) -> None:
    """What an agent is offered."""
    found = checked_root(root)

    async def work() -> list[dict[str, Any]]:
        from devtools_lsp.client import connect

        async with await connect(found, name="terminal", role="terminal") as client:
            tell_version(client)
            return await client.tools(_surface(surface))

    offered = run(work())
    terminal = Terminal.of(as_json)
    if as_json:
        terminal.show(offered)
        return
    for entry in offered:
        schema = entry["inputSchema"]
        required = set(schema.get("required", ()))
        arguments = [name if name in required else f"{name}?" for name in schema["properties"]]
        terminal.out.print(f"[bold]{entry['name']}[/bold] {{{', '.join(arguments)}}}  {entry['description']}")
        example = json.dumps(schema["examples"][0], ensure_ascii=False)
        terminal.out.print(f"  --args '{example}'", style="dim", markup=False)


def status(root: RootOption = None, as_json: JsonOption = False) -> None:
    """Exit code 2 when no daemon runs."""
    found = checked_root(root)

    async def work() -> dict[str, Any]:
        from devtools_lsp.client import connect

        async with await connect(found, name="terminal", role="terminal", start=False) as client:
            tell_version(client)
            return await client.status()

    state = run(work())
    terminal = Terminal.of(as_json)
    if as_json:
        terminal.show(state)
        return
    _print_status(terminal, state)


def _print_status(terminal: Terminal, state: dict[str, Any]) -> None:
    from rich.table import Table

    out = terminal.out
    out.print(f"devtools-lsp {state['version']}  pid {state['pid']}  up {state['uptime_s']:.0f} s  {state['root']}")
    out.print(
        f"gate {state['gate']['mode']}  editors {len(state['editors'])}  agents {len(state['agents'])}  "
        f"pending approvals {state['pendingApprovals']}"
    )
    table = Table("engine", "state", "version", "pid", "MB", "path or reason", box=None, pad_edge=False)
    for engine in state["engines"]:
        memory = engine.get("rssBytes")
        table.add_row(
            engine["id"],
            engine["state"],
            engine.get("version") or "",
            str(engine.get("pid") or ""),
            f"{memory / 1e6:.0f}" if memory else "",
            engine.get("reason") or engine.get("path") or "",
        )
    if state["engines"]:
        out.print(table)
    else:
        out.print("no engines are configured; `devtools-lsp init` proposes some")
    for line in state.get("skipped", []):
        out.print(f"attention: {line}", style="bold yellow", markup=False)
    out.print(f"socket: {discovery.socket_path(state['root'])}")
    out.print(f"state directory: {state['stateDir']}")


def stop(root: RootOption = None, as_json: JsonOption = False) -> None:
    """Works for a daemon of any version; exit code 0 also when none runs."""
    found = checked_root(root)

    async def work() -> str:
        from devtools_lsp.client import stop_daemon

        return await stop_daemon(found)

    ended = run(work())
    if as_json:
        Terminal.of(as_json).show({"stop": ended})
    else:
        typer.echo(ended)


def _surface(name: str) -> Any:
    if name not in ("granular", "composite", "workspace"):
        refuse(BadArgumentError(f"--surface is granular, composite or workspace, not {name!r}", reason="malformed"))
    return name


class WaitingLines:
    """Prints what a call does meanwhile on standard error, so that standard output holds the result alone."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, value: dict[str, Any]) -> None:
        """One piece of progress; that somebody still waits is said once."""
        if value.get("kind") == "output":
            typer.echo(value.get("text", ""), err=True)
            return
        approval = value.get("approval")
        if approval is not None and approval not in self._said:
            self._said.add(approval)
            typer.echo(f"{value['message']}  (devtools-lsp approve {approval})", err=True)


def _finish(result: dict[str, Any], as_json: bool) -> None:
    """Print a result and end with its exit code."""
    terminal = Terminal.of(as_json)
    if as_json:
        terminal.show(result)
    else:
        from devtools_lsp.agent.render import render_text

        typer.echo(render_text(result))
    raise typer.Exit(EXIT_OK if result["ok"] else EXIT_ERROR_DIAGNOSTICS)
