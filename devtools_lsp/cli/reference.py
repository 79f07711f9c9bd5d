"""REFERENCE.md, generated: settings from the configuration's models, engine keys, presets, tools and errors.

`python -m devtools_lsp.cli.reference` writes it; a test fails when it is stale. What a setting means is said where the
setting is defined; only the words about engine keys stand here, beside a test that none is missing.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from devtools_lsp import errors
from devtools_lsp.agent.forge import GRANULAR, describe_step
from devtools_lsp.agent.workspace_tools import describe_workspace_tools
from devtools_lsp.cli.outputs import OUTPUTS
from devtools_lsp.config import FileModel
from devtools_lsp.engines.presets import preset_names
from devtools_lsp.engines.spec import spec_from_table
from devtools_lsp.errors import DevToolsError

DOCUMENT = Path(__file__).parent.parent / "REFERENCE.md"

RULE_KEYS = {
    "decision": "`allow`, `ask` or `deny`. Any matching deny wins, else the first match counts.",
    "name": "What people are shown; default: the rule's place.",
    "step": "A step or a list of them: acquire, read_lines, search, edit, apply_patch, edit_file, write_file, format, "
    "lint, check, write, bash, undo. Default: every step.",
    "paths": "Patterns. Deny and ask match when any path concerned matches, allow only when all do.",
    "agent": "The agent's name; `*` is a wildcard.",
    "fix": "Only lint with (true) or without (false) fix.",
    "command": "The bash command; `*` is a wildcard.",
    "max_changed_lines": "A limit on the size of the diff: an allow rule holds while it is kept.",
    "no_new_errors": "A limit: an allow rule holds only when the checkers find no new error.",
    "match": "Examples that the rule must match, verified when the file is read.",
    "not_match": "Examples that it must not match.",
}

ENGINE_KEYS = {
    "preset": "A known engine (below); every other key then overrides one of its.",
    "kind": "`language-server` or `command`.",
    "command": "The command line. A bare name is looked for in the root's `.venv`, `venv` and `node_modules/.bin`, "
    "then in `search`, then on PATH, then beside devtools-lsp itself.",
    "capabilities": "Any of `format`, `lint`, `check`, `fix`.",
    "extensions": "File extensions without the dot; `*` for all.",
    "title": "Its name for people.",
    "homepage": "Where it comes from.",
    "remedy": "What to do when it is not installed.",
    "runner": "A command line put before the command, such as a container's.",
    "search": "More directories to look for the program in.",
    "interpreter": "The project's Python, for checkers that need it.",
    "environment": "Environment variables for its process.",
    "timeout_s": "Seconds for one answer.",
    "version": "The command that prints its version.",
    "direct": "How to find the real program behind a launcher.",
    "direct_only": "Whether the launcher itself must not be used.",
    "config_files": "Names of its configuration files, for finding and reporting the one in force.",
    "project_files": "Names that mark a project directory, where a command runs.",
    "settings": "What `workspace/configuration` answers, by section.",
    "initialization": "The server's `initializationOptions`.",
    "language_ids": "LSP language id by extension.",
    "diagnostics": "`pull`, `push` or `tsserver` (through typescript-language-server): how findings are got.",
    "needs_result_id": "A report without a result id counts as not judged.",
    "preambles": "A push server that keeps what a file includes apart and publishes early findings from an old state "
    "of that, as clangd does: it gets a file anew where that may have changed, and is waited for until it says it is "
    "done.",
    "cancels": "Whether requests that are given up are cancelled, or left to run to their end (for servers that answer "
    "a cancelled request wrongly).",
    "sticky_findings": "The server repeats old findings of a file after others changed; it is made to look again.",
    "dependents": "How files that depend on an edit are found: `references`, `workspace`, `unknown` (they are not "
    "judged, and that is said), or `none` (a finding depends on its own file alone).",
    "dependents_deadline_s": "Seconds for judging dependents; the rest is pending.",
    "dependents_limit": "Dependents judged at most.",
    "shadow": "Judge created, deleted and moved files in a copy of the tree.",
    "fix_kinds": "Code action kinds that lint with fix applies.",
    "syntax_rules": "Rules that mean the file could not be parsed.",
    "sources": "LSP sources whose findings count; default: all.",
    "start": "`eager` with the daemon, or `lazy` with the first call.",
    "start_timeout_s": "Seconds for starting.",
    "hung_after_s": "Seconds without any answer until the server counts as hung and is restarted.",
    "stop_grace_s": "Seconds between being asked to end and being killed.",
    "sees_new_files": "The server judges files that exist only in memory.",
    "idle_stop_s": "Seconds without use until it is stopped; the next call starts it again.",
    "interpreter_setting": "Where in `settings` the interpreter goes.",
    "judges_closed": "The server judges files that are not open.",
    "format": "A command that formats, in place of the server.",
    "lint": "A command that lints, in place of the server.",
    "check": "A command that checks, in place of the server.",
    "fix": "A command that fixes, in place of the server.",
    "input": "How a command gets the text: `stdin`, `files` (their names), `project` (it looks at all), or `in-place`. "
    "One that works in place writes wherever the names lead; give it a `runner` that can write the root alone.",
    "output": "A table: `form` says how a command's output is read (`text`, `json`, `sarif`, `lines` or `none`), "
    "`patterns` and `json` find the findings in it.",
    "ok_exits": "Exit codes that mean nothing was found.",
    "findings_exits": "Exit codes that mean something was found.",
    "scope": "Patterns that an in-place command may change.",
    "needs": "Powers that an in-place command needs: `delete`, `rename`, `mkdir`.",
    "cwd": "`project` (the nearest project directory) or `root`.",
    "leaves_processes": "The command leaves processes behind that are ended with the engine.",
    "private_cache": "Give it a cache directory of its own.",
    "warm": "`dmypy`: keep mypy's daemon warm.",
    "targets": "What a whole-project command is pointed at.",
    "probe": "Files for `doctor` to try it on.",
}

_HEAD = """\
# Reference

Generated from the code; `python -m devtools_lsp.cli.reference` writes it anew.

## Configuration

`devtools.toml` at the root, or `[tool.devtools-lsp]` in pyproject.toml. Unknown keys are refused with the nearest known
one. Changes take effect while the daemon runs; a faulty file keeps the old settings in force, and `devtools-lsp status`
says so.
"""


def render_reference() -> str:
    """The whole page."""
    return (
        "\n".join(
            [_HEAD, *_sections(), *_rules(), *_engines(), *_presets(), *_tools(), *_terminal(), *_errors()]
        ).rstrip("\n")
        + "\n"
    )


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


def _sections() -> Iterator[str]:
    for name, field in FileModel.model_fields.items():
        section = field.annotation
        if not (isinstance(section, type) and issubclass(section, BaseModel)):
            continue
        yield f"### [{name}]\n"
        rows = [
            (f"`{key}`", f"`{_default(entry)}`", entry.description or "") for key, entry in section.model_fields.items()
        ]
        yield from _table(("key", "default", "meaning"), rows)


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined or value is None:
        return "(none)"
    return json.dumps(value)


def _rules() -> Iterator[str]:
    yield "### [[gate.rules]]\n"
    yield from _table(("key", "meaning"), [(f"`{key}`", words) for key, words in RULE_KEYS.items()])


def _engines() -> Iterator[str]:
    yield "### [engines.NAME]\n"
    yield "Nothing runs unless it is listed; the table's name is the `engineId` of its findings.\n"
    yield from _table(("key", "meaning"), [(f"`{key}`", words) for key, words in ENGINE_KEYS.items()])


def _presets() -> Iterator[str]:
    yield "### Presets\n"
    rows: list[tuple[str, ...]] = []
    for name in preset_names():
        spec = spec_from_table(name, {"preset": name})
        tested = "with the real tool" if spec.tested else "untested"
        rows.append((f"`{name}`", ", ".join(spec.capabilities), " ".join(spec.extensions), tested, spec.remedy))
    yield from _table(("preset", "does", "files", "tested", "install"), rows)


def _tools() -> Iterator[str]:
    yield "## Tools\n"
    yield "Schemas: `devtools-lsp tools --surface granular|composite|workspace --json`.\n"
    granular = [(f"`{step}`", "granular", describe_step(step)) for step in GRANULAR]
    composite = [("`dev_plan`", "composite", describe_step("dev_plan"))]
    workspace = [(f"`{name}`", "workspace", words) for name, words in describe_workspace_tools().items()]
    yield from _table(("tool", "surface", "does"), [*granular, *composite, *workspace])


def _terminal() -> Iterator[str]:
    yield "## Terminal\n"
    yield "Exit codes: 0 ok, 1 done with error diagnostics, 2 refused or failed, 130 interrupted. With 2 and 130 the"
    yield "error object stands on standard error in one line; at a terminal, without `--json`, as sentences instead."
    yield "What `--json` prints on standard output; keys with `?` are there when they have something to say:\n"
    rows: list[tuple[str, ...]] = []
    for command, output in OUTPUTS.items():
        keys = ", ".join([*output.keys, *(f"{key}?" for key in output.optional)])
        rows.append((f"`{command}`", f"{output.form} {{{keys}}}", output.words))
    yield from _table(("command", "prints", "which"), rows)


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield "JSON-RPC code -32050 with `data: {code, reason?, message, retry, ...}`; `retry` says what may help.\n"
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, DevToolsError)]
    rows = [
        (f"`{kind.code}`", (inspect.getdoc(kind) or "").split("\n")[0], kind.default_retry)
        for kind in sorted(kinds, key=lambda kind: kind.code)
        if kind is not DevToolsError
    ]
    yield from _table(("code", "when", "retry"), rows)
    yield f"Reasons: {', '.join(f'`{reason}`' for reason in sorted(errors.REASONS))}.\n"


if __name__ == "__main__":
    DOCUMENT.write_text(render_reference(), encoding="utf-8")
