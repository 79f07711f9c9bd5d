"""Commands that do what an agent does: call, plan, undo, tools; and status and stop."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from devtools_lsp import discovery
from devtools_lsp.cli.calling import Request, send
from devtools_lsp.cli.options import (
    EXIT_ERROR_DIAGNOSTICS,
    EXIT_OK,
    JsonOption,
    RootOption,
    SessionOption,
    Terminal,
    checked_root,
    read_json,
    refuse,
    run,
    tell_version,
)
from devtools_lsp.errors import BadArgumentError, NotReadError, UnknownStepError

AgentOption = Annotated[str, typer.Option("--agent", help="The name that the gate, people and the log see.")]
SurfaceOption = Annotated[
    str, typer.Option("--surface", help="Which set of tools: granular, composite or workspace; see `tools`.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (call, plan, undo, tools, status, stop):
        app.command()(command)


def call(
    tool: Annotated[str, typer.Argument(help="The tool's name, e.g. edit, lint, check.")],
    args: Annotated[str | None, typer.Option("--args", help="Arguments as JSON; default: standard input.")] = None,
    root: RootOption = None,
    agent: AgentOption = "terminal",
    session: SessionOption = None,
    surface: SurfaceOption = "granular",
    as_json: JsonOption = False,
) -> None:
    """Call one tool; starts the daemon when none runs.

    `devtools-lsp tools` lists the tools with an example of each. Exit code 0 = ok, 1 = done with error diagnostics,
    2 = refused or failed (the error object on stderr), 130 = interrupted (with what had landed).
    """
    arguments = read_json(args, "--args")
    found = checked_root(root)

    async def ask(request: Request) -> dict[str, Any]:
        try:
            return await request.client.call(tool, arguments, progress=request.progress, signal=request.signal)
        except UnknownStepError as error:
            raise _of_another_surface(error, tool, surface) from None
        except NotReadError as error:
            if session is not None:
                raise
            hint = "each `devtools-lsp call` is a session of its own, so give both calls the same --session NAME"
            raise NotReadError(f"{error.message}; {hint}", step=error.step, path=error.path) from None

    _finish(run(send(found, ask, agent=agent, session=session, surface=_surface(surface))), as_json)


def _of_another_surface(error: UnknownStepError, tool: str, surface: str) -> UnknownStepError:
    """The refusal of a tool that another surface has says which; any other stays as it is."""
    from devtools_lsp.agent.forge import COMPOSITE_TOOL, GRANULAR
    from devtools_lsp.agent.workspace_tools import describe_workspace_tools

    surfaces = {"granular": GRANULAR, "composite": (COMPOSITE_TOOL,), "workspace": tuple(describe_workspace_tools())}
    other = next((name for name, tools in surfaces.items() if tool in tools and name != surface), None)
    if other is None:
        return error
    message = f"the surface {surface} has no tool {tool!r}; the surface {other} has it: add --surface {other}"
    return UnknownStepError(message, step=tool, retry="afterCorrection", alternatives=error.alternatives)


def plan(
    paths: Annotated[list[str] | None, typer.Argument(help="Files and patterns that the steps work on.")] = None,
    ops: Annotated[
        str | None, typer.Option("--ops", help="The steps as a JSON list of {step, args}; default: standard input.")
    ] = None,
    root: RootOption = None,
    agent: AgentOption = "terminal",
    as_json: JsonOption = False,
) -> None:
    """Run a plan of several steps in one call: in memory, and saved at its `write` steps.

    For example: devtools-lsp plan 'src/**/*.py' --ops '[{"step": "lint", "args": {"fix": true}}, {"step": "check"},
    {"step": "write"}]'. Exit codes as for `call`.
    """
    steps = read_json(ops, "--ops")
    found = checked_root(root)

    async def ask(request: Request) -> dict[str, Any]:
        return await request.client.ops(paths or [], steps, progress=request.progress, signal=request.signal)

    _finish(run(send(found, ask, agent=agent, surface="composite")), as_json)


def undo(
    plan: Annotated[str | None, typer.Argument(help="The plan's id; default: the last plan that wrote.")] = None,
    root: RootOption = None,
    agent: AgentOption = "terminal",
    as_json: JsonOption = False,
) -> None:
    """Revert the last plan that wrote, or the one named, where its files still hold what it wrote.

    A file that changed since is named and left alone. Exit codes as for `call`.
    """
    found = checked_root(root)

    async def ask(request: Request) -> dict[str, Any]:
        return await request.client.undo(plan, progress=request.progress, signal=request.signal)

    _finish(run(send(found, ask, agent=agent)), as_json)


def tools(root: RootOption = None, surface: SurfaceOption = "granular", as_json: JsonOption = False) -> None:
    """List the tools of a surface as agents see them, with an example each; --json adds their schemas."""
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
    """Show the daemon, its engines, who is attached and what waits; exit code 2 when none runs."""
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
    watching = len(state.get("watching", []))
    out.print(
        f"gate {state['gate']['mode']}  editors {len(state['editors'])}  watching terminals {watching}  "
        f"agents {len(state['agents'])}  pending approvals {state['pendingApprovals']}"
    )
    if state["gate"]["mode"] == "editor" and not state["editors"] and not watching:
        out.print(
            "nobody is there to approve: attach an editor, or run `devtools-lsp approvals --watch`", style="yellow"
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
    """Stop the daemon of this root, of whatever version; exit code 0 also when none runs."""
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


def _finish(result: dict[str, Any], as_json: bool) -> None:
    """Print a result and end with its exit code."""
    terminal = Terminal.of(as_json)
    if as_json:
        terminal.show(result)
    else:
        from devtools_lsp.agent.render import render_text

        typer.echo(render_text(result).rstrip("\n"))
    raise typer.Exit(EXIT_OK if result["ok"] else EXIT_ERROR_DIAGNOSTICS)
