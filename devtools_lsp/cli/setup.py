"""Commands that set up and run the daemon: serve, init, doctor, demo."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from devtools_lsp.cli.options import EXIT_REFUSED, JsonOption, RootOption, Terminal, checked_root, refuse, run
from devtools_lsp.errors import DevToolsError, InvalidConfigError


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (serve, init, doctor, demo):
        app.command()(command)


def serve(
    root: RootOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log what happens on standard error.")] = False,
) -> None:
    """Run the daemon of a root in the foreground; prints READY and the socket's path once it accepts.

    One daemon a root: a second one is told that the first runs. Ctrl-C ends it, and so does `devtools-lsp stop`.
    """
    found = checked_root(root)
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )

    async def work() -> str:
        from devtools_lsp.daemon.serving import serve_root

        return await serve_root(found, ready=lambda path: print(f"READY {path}", flush=True))

    reason = run(work())
    logging.getLogger("devtools_lsp").info("ended: %s", reason)


def init(
    root: RootOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file and write nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find installed engines and the project's interpreter, and write devtools.toml for review.

    An existing configuration is never overwritten.
    """
    from devtools_lsp.cli.proposal import propose_configuration
    from devtools_lsp.config import FILE_NAME, load_configuration
    from devtools_lsp.engines.detect import detect

    found = checked_root(root)
    target = found / FILE_NAME
    try:
        existing = load_configuration(found).source if not dry_run else None
        if existing is not None:
            raise InvalidConfigError(
                f"{existing.name} configures this root already; `devtools-lsp init --dry-run` prints what would be "
                "proposed now, for you to take from"
            )
        detected = detect(found)
    except DevToolsError as error:
        refuse(error)
    text = propose_configuration(detected)
    terminal = Terminal.of(as_json)
    names = [entry.preset for entry in detected.engines if entry.wanted]
    found_out = {"path": str(target), "engines": names, "interpreter": detected.interpreter}
    if dry_run:
        if as_json:
            terminal.show({**found_out, "text": text})
        else:
            typer.echo(text, nl=False)
        return
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        refuse(
            InvalidConfigError(
                f"cannot write {target}: {error.strerror}; `devtools-lsp init --dry-run` prints what would be in it"
            )
        )
    if as_json:
        terminal.show(found_out)
        return
    terminal.out.print(f"wrote {target}: engines {', '.join(names) or '(none found)'}; read it before you rely on it")
    if not names:
        terminal.out.print("install some (for Python: pip install ruff basedpyright) and add their tables")
    if detected.interpreter is not None:
        terminal.out.print(f"the project's interpreter: {detected.interpreter}")


def doctor(root: RootOption = None, as_json: JsonOption = False) -> None:
    """Examine the configuration, start every configured engine on a probe file, and say what to mend.

    Exit code 2 when something does not work.
    """
    from devtools_lsp.config import load_configuration

    found = checked_root(root)

    async def work() -> list[dict[str, Any]]:
        try:
            configuration = load_configuration(found)
        except DevToolsError as error:
            remedy = "mend the file; `devtools-lsp init --dry-run` prints one that works"
            return [{"name": "configuration", "ok": False, "message": error.message, "remedy": remedy}]
        return await _examine(found, configuration)

    reports = run(work())
    terminal = Terminal.of(as_json)
    if as_json:
        terminal.show({"root": str(found), "checks": reports})
    else:
        for report in reports:
            mark = "[green]ok  [/green]" if report["ok"] else "[red]FAIL[/red]"
            terminal.out.print(f"{mark} {report['name']}: {report['message']}")
            if report.get("remedy"):
                terminal.out.print(f"     {report['remedy']}")
    if not all(report["ok"] for report in reports):
        raise typer.Exit(EXIT_REFUSED)


def _place(name: str, find: Callable[[], Path]) -> dict[str, Any]:
    """Whether a place of ours can be had; the message of a refusal says what to set."""
    try:
        return {"name": name, "ok": True, "message": str(find())}
    except DevToolsError as error:
        return {"name": name, "ok": False, "message": error.message}


async def _examine(root: Path, configuration: Any) -> list[dict[str, Any]]:
    from devtools_lsp import discovery
    from devtools_lsp.app import confinement_of
    from devtools_lsp.engines.detect import probe
    from devtools_lsp.fs.recovery import parked_plans

    source = configuration.source
    reports: list[dict[str, Any]] = [
        {
            "name": "configuration",
            "ok": True,
            "message": source.name if source else "none: the defaults hold and no engine runs",
            **({} if source else {"remedy": "run `devtools-lsp init`"}),
        },
        _place("socket", lambda: discovery.socket_path(root)),
        _place("state directory", lambda: discovery.state_directory(root)),
    ]
    confinement = await confinement_of(str(root), configuration)
    reports.append(
        {"name": "confinement", "ok": True, "message": f"{confinement['level']}: {confinement['description']}"}
    )
    for plan in await asyncio.to_thread(parked_plans, str(root)):
        said, *places = plan.describe()
        reports.append({"name": "journal", "ok": True, "message": said, "remedy": "; ".join(map(str.strip, places))})
    if not configuration.engines:
        remedy = "install some (for Python: pip install ruff basedpyright), then see `devtools-lsp init --dry-run`"
        reports.append({"name": "engines", "ok": False, "message": "none is configured", "remedy": remedy})
    for spec in configuration.engines:
        # One after the other: engines that start at once would be slow for each other's sake.
        report = await probe(spec, root)
        times = [f"first answer {report.first_s:.2f} s"] if report.first_s is not None else []
        times += [f"warm {report.warm_s * 1000:.0f} ms"] if report.warm_s is not None else []
        about = ", ".join([f"{report.version or 'unknown version'}", report.path or "no program", *times])
        reports.append(
            {
                "name": f"engine {spec.id}",
                "ok": report.state == "ok",
                "message": f"{report.message} ({about})" if report.path else report.message,
                **({"remedy": report.remedy} if report.remedy else {}),
            }
        )
    return reports


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Do not pause between the acts.")] = False,
) -> None:
    """Watch an agent edit a copy of a real package while a headless editor approves.

    Exit code 1 when anything was not as it should be.
    """
    from devtools_lsp.demo import run_demo

    ok = run(run_demo(pause_s=0.0 if fast else 0.4))
    if not ok:
        raise typer.Exit(1)
