"""Commands for the person who decides: approvals, approve, deny, log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from devtools_lsp.cli.options import EXIT_REFUSED, JsonOption, RootOption, Terminal, checked_root, run, tell_version

IdArgument = Annotated[str, typer.Argument(help="The approval's id, or the number behind its dash.")]
RECONNECT_S = 1.0
NoteOption = Annotated[str | None, typer.Option("--note", help="A sentence for the agent.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (approvals, approve, deny, log):
        app.command()(command)


def approvals(
    root: RootOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Stay, and count as somebody who can decide.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List what waits for a person, with the diff.

    With --watch each new approval is printed as it comes, until Ctrl-C; it starts the daemon when none runs.
    """
    found = checked_root(root)
    terminal = Terminal.of(as_json)

    async def work() -> None:
        from devtools_lsp.client import connect

        async with await connect(found, name="terminal", role="terminal", start=False) as client:
            tell_version(client)
            items = await client.approvals()
            if as_json:
                terminal.show(items)
                return
            if not items:
                terminal.out.print("nothing waits for a decision")
            for item in items:
                _print_approval(terminal, item)

    run(_watch(found, terminal) if watch else work())


async def _watch(root: Path, terminal: Terminal) -> None:
    """Show approvals as they come, for as long as the person lets it; a daemon that ends is waited for."""
    from devtools_lsp.client import ConnectionLostError
    from devtools_lsp.discovery import NotRunningError

    start = True
    while True:
        try:
            await _watch_one(root, terminal, start=start)
        except ConnectionLostError:
            if not terminal.as_json:
                terminal.out.print("the daemon ended; what waited is lost. Waiting for the next one", style="yellow")
        except NotRunningError:
            await asyncio.sleep(RECONNECT_S)
        # A daemon that somebody stopped is not started again behind their back.
        start = False


async def _watch_one(root: Path, terminal: Terminal, *, start: bool) -> None:
    from devtools_lsp.client import connect

    events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    async with await connect(
        root,
        name="terminal",
        role="terminal",
        start=start,
        on_notification=lambda method, params: events.put_nowait((method, params)),
    ) as client:
        tell_version(client)
        items = await client.approvals(watch=True)
        if not terminal.as_json:
            terminal.out.print(f"watching {root}; {len(items) or 'nothing'} waiting", style="dim")
        for item in items:
            _print_approval(terminal, item)
        lost = asyncio.create_task(client.lost())
        while True:
            told = asyncio.create_task(events.get())
            await asyncio.wait({told, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not told.done():
                told.cancel()
                raise lost.result()
            _print_event(terminal, *told.result())


def _print_event(terminal: Terminal, method: str, params: Any) -> None:
    if method == "devtools/approvalRequested":
        _print_approval(terminal, params)
    elif method == "devtools/approvalUpdated" and not terminal.as_json:
        silent = not (params["introduced"] or params["resolved"] or params["pending"])
        found = "the checkers find nothing new and nothing resolved" if silent else "the checkers answered"
        terminal.out.print(f"{params['id']}: {found}", style="dim")
        _print_consequences(terminal, params)
    elif method == "devtools/approvalResolved" and not terminal.as_json:
        terminal.out.print(f"{params['id']}: {params['status']} by {params['by']}", style="dim")


def approve(
    approval: IdArgument,
    root: RootOption = None,
    note: NoteOption = None,
    remember: Annotated[
        bool,
        typer.Option(
            "--remember",
            help="From now on let this agent do the like without asking, until its session ends; `approvals` says in "
            "words what that covers. Prints the rule that would keep it for good.",
        ),
    ] = False,
    drop: Annotated[list[str] | None, typer.Option("--drop", help="Leave this hunk out; may be repeated.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Approve one pending step. Exit code 2 when the answer came too late to count."""
    _decide(approval, True, root, as_json, note=note, remember=remember, drop=drop or [])


def deny(approval: IdArgument, root: RootOption = None, note: NoteOption = None, as_json: JsonOption = False) -> None:
    """Deny one pending step; the agent is told the note. Exit code 2 when the answer came too late to count."""
    _decide(approval, False, root, as_json, note=note)


def _decide(approval: str, approved: bool, root: Path | None, as_json: bool, **options: Any) -> None:
    found = checked_root(root)

    async def work() -> dict[str, Any]:
        from devtools_lsp.client import connect

        async with await connect(found, name="terminal", role="terminal", start=False) as client:
            tell_version(client)
            waiting = await client.approvals()
            # The number behind the dash is enough; anything else must be the whole id, so that no other is meant.
            meant = [item for item in waiting if approval in (item["id"], item["id"].rpartition("-")[2])]
            name = meant[0]["id"] if meant else approval
            return await client.decide(name, approved, **options)

    answer = run(work())
    terminal = Terminal.of(as_json)
    remembers = answer["applied"] and bool(options.get("remember"))
    if as_json:
        terminal.show({"rule": None, **answer} if remembers else answer)
    else:
        late = "" if answer["applied"] else "  (this answer came too late and changed nothing)"
        terminal.out.print(f"{answer['id']}: {answer['status']} by {answer['by']}{late}")
        if remembers:
            _print_rule(terminal, answer.get("rule"), answer.get("ruleFile", "devtools.toml"))
    if not answer["applied"]:
        raise typer.Exit(EXIT_REFUSED)


def _print_rule(terminal: Terminal, rule: str | None, file: str) -> None:
    if rule is None:
        terminal.out.print("remembered until the agent's session ends; no rule of the configuration can say it")
        return
    typer.echo(f"remembered until the agent's session ends; to keep it for good, add to {file}:\n")
    typer.echo(rule, nl=False)


def escaped(text: str) -> str:
    """Text for the terminal: what a person decides on must not hold what a person cannot see."""
    from rich.markup import escape

    from devtools_lsp.core.invisible import reveal

    return escape(reveal(text))


def _print_approval(terminal: Terminal, item: dict[str, Any]) -> None:
    if terminal.as_json:
        print(json.dumps(item, ensure_ascii=False), flush=True)
        return
    from rich.syntax import Syntax

    from devtools_lsp.core.invisible import reveal

    out = terminal.out
    out.rule(
        f"[bold]{escaped(item['id'])}[/bold]  {escaped(item['agent'])} asks: {escaped(item['step'])}", align="left"
    )
    for key in ("command",):
        if key in item["args"]:
            out.print(escaped(str(item["args"][key])))
    for file in item["files"]:
        moved = f" (from {file['from']})" if file.get("from") else ""
        out.print(f"[bold]{escaped(file['kind'])}[/bold] {escaped(file['path'] + moved)}")
        for hunk in file["hunks"]:
            place = f"@@ -{hunk['oldStart']},{hunk['oldLines']} +{hunk['newStart']},{hunk['newLines']} @@"
            header = f"{place} (leave out with --drop {hunk['id']})"
            text = reveal(str(hunk["text"]))
            out.print(Syntax(f"{header}\n{text}", "diff", background_color="default", word_wrap=True))
    for entry in item["normalized"]:
        out.print(f"line ends or encoding change: {escaped(entry['path'])} {entry['from']} -> {entry['to']}")
    _print_consequences(terminal, item)
    out.print(f"devtools-lsp approve {item['id']}   devtools-lsp deny {item['id']} --note '...'", style="dim")
    if item.get("rememberText"):
        out.print(f"--remember: {escaped(item['rememberText'])}", style="dim")


def _print_consequences(terminal: Terminal, item: dict[str, Any]) -> None:
    """What the change would introduce and resolve, and what nobody could say."""
    for name, style in (("introduced", "red"), ("resolved", "green")):
        for finding in item[name]:
            place = f"{finding['path']}:{finding.get('line', '')}"
            terminal.out.print(f"{name}: {escaped(place)} {escaped(finding['message'])}", style=style)
    for entry in item["pending"]:
        terminal.out.print(
            f"not judged: {escaped(entry.get('path') or 'workspace')}: {escaped(entry['reason'])}", style="yellow"
        )


def log(
    root: RootOption = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="How many of the last lines.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show the activity log: gate answers, landed edits, failures. Works without a daemon."""
    from devtools_lsp import discovery
    from devtools_lsp.core.summary import first_names

    found = checked_root(root)
    path = discovery.state_directory(found) / "activity.jsonl"
    terminal = Terminal.of(as_json)
    if not path.is_file():
        if not as_json:
            terminal.out.print("no activity yet")
        return
    for line in path.read_text(encoding="utf-8").splitlines()[-lines:]:
        if as_json:
            print(line)
            continue
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            # The daemon was killed, or the disk was full, in the middle of a line.
            terminal.out.print(f"(not a whole line: {line[:80]})", markup=False)
            continue
        named: list[str] = entry.get("paths") or []
        files = first_names(named, 3)
        terminal.out.print(
            f"{entry['time']}  {entry['event']:8} {entry.get('step') or '':11} {entry.get('verdict') or '':19} "
            f"{entry.get('by') or '':9} {entry.get('agent') or '':12} {entry.get('plan') or '':14} {files}",
            markup=False,
        )
