"""What an engine is, as plain data: the presets' and the configuration's one schema.

Owns the fields, their defaults and the messages about mistakes in them. It starts nothing and looks for nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from devtools_lsp.engines.presets import preset_names, preset_table
from devtools_lsp.errors import InvalidConfigError

Ability = Literal["format", "lint", "check", "fix"]
EngineKind = Literal["language-server", "command"]
Input = Literal["stdin", "files", "project", "in-place"]
OutputForm = Literal["text", "json", "sarif", "lines", "none"]
Dependents = Literal["none", "workspace", "references", "unknown"]

Words = tuple[str, ...]


class JsonMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a JSON output keeps things: dotted paths; `items` from the top, the others from one item.

    `nested` names a list inside an item whose entries are the findings (the item then gives the path only).
    `lines` means one JSON value a line, each an item.
    """

    lines: bool = False

    items: str = ""
    nested: str = ""
    path: str = ""
    line: str = ""
    column: str = ""
    end_line: str = ""
    end_column: str = ""
    message: str = "message"
    rule: str = ""
    severity: str = ""


class Output(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to read what a command prints.

    `text` is the formatted file itself. `lines` is matched line by line against `patterns` (regular expressions
    with the named groups path, line, column, end_line, end_column, severity, rule, message); lines that match
    none are no findings. `line_base` and `column_base` number the first line and column; `columns` is their unit,
    where `ascii` means that they are right in ASCII lines only, and left out in others.
    """

    form: OutputForm = "none"
    stream: Literal["stdout", "stderr", "both"] = "stdout"
    patterns: Words = ()
    json: JsonMap = JsonMap()
    severities: dict[str, Literal["error", "warning", "info"]] = {}
    severity: Literal["error", "warning", "info"] = "error"
    line_base: int = 1
    column_base: int = 1
    columns: Literal["code-points", "utf-16", "utf-8", "ascii"] = "code-points"
    end_exclusive: bool = True
    ignore: Words = ()


class CommandSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One command line. Placeholders in `command`: `{path}` (the file, absolute), `{relative}` (from the working
    directory), `{files}` (a word of its own: all files), `{root}`, `{config}` (a word of its own: the nearest of
    `config_files`, left out with the word before it when there is none).
    """

    command: Words
    input: Input = "stdin"
    output: Output = Output()
    ok_exits: tuple[int, ...] = (0,)
    findings_exits: tuple[int, ...] = ()
    shadow: bool = False


class Direct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The real program behind a launcher: glob patterns below the launcher's environment (the directory that holds
    `bin`, or `node_modules`). `arguments` that are patterns become the file found; all must be found.
    """

    program: str
    arguments: Words = ()


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine. REFERENCE.md says what each key means; times are in seconds."""

    id: str
    kind: EngineKind
    command: Words
    capabilities: tuple[Ability, ...]
    extensions: Words
    preset: str | None = None
    tested: bool = False
    title: str = ""
    homepage: str = ""
    remedy: str = ""
    runner: Words = ()
    search: Words = ()
    interpreter: str = ""
    environment: dict[str, str] = {}
    timeout_s: float = 30.0
    version: Words = ()
    direct: tuple[Direct, ...] = ()
    direct_only: bool = False
    config_files: Words = ()
    project_files: Words = ()
    # language servers
    settings: dict[str, Any] = {}
    initialization: Any = None
    language_ids: dict[str, str] = {}
    diagnostics: Literal["pull", "push", "tsserver"] = "pull"
    needs_result_id: bool = False
    preambles: bool = False
    cancels: bool = True
    sticky_findings: bool = False
    dependents: Dependents = "none"
    dependents_deadline_s: float = 2.0
    dependents_limit: int = 500
    shadow: bool = False
    fix_kinds: Words = ()
    syntax_rules: Words = ()
    sources: Words = ()
    start: Literal["eager", "lazy"] = "eager"
    start_timeout_s: float = 30.0
    hung_after_s: float = 60.0
    stop_grace_s: float = 2.0
    sees_new_files: bool = False
    idle_stop_s: float = 1800.0
    interpreter_setting: str = ""
    judges_closed: bool = False
    # commands, and single capabilities of a language server that a command serves better
    format: CommandSpec | None = None
    lint: CommandSpec | None = None
    check: CommandSpec | None = None
    fix: CommandSpec | None = None
    input: Input | None = None
    output: Output | None = None
    ok_exits: tuple[int, ...] | None = None
    findings_exits: tuple[int, ...] | None = None
    scope: Words = ()
    needs: Words = ()
    cwd: Literal["project", "root"] = "project"
    leaves_processes: bool = False
    private_cache: bool = False
    warm: Literal["", "dmypy"] = ""
    targets: Words = (".",)
    probe: dict[str, str] = {}

    def command_for(self, ability: Ability) -> CommandSpec | None:
        """The command that serves an ability: its own table, else (for kind `command`) the engine's line."""
        own = {"format": self.format, "lint": self.lint, "check": self.check, "fix": self.fix}[ability]
        if own is not None:
            return own
        if self.kind != "command":
            return None
        fallback = Output(form="text" if ability == "format" else "none")
        return CommandSpec(
            command=self.command,
            input=self.input or "stdin",
            output=self.output or fallback,
            ok_exits=self.ok_exits if self.ok_exits is not None else (0,),
            findings_exits=self.findings_exits if self.findings_exits is not None else (),
        )


_FIELDS: dict[str, str] = {field.encode_name: field.name for field in msgspec.structs.fields(EngineSpec)}
_MERGED = frozenset({"settings", "environment", "language_ids", "initialization", "output"})
_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")


def spec_from_table(engine_id: str, table: Mapping[str, Any]) -> EngineSpec:
    """The engine that a configuration table describes, over its preset if it names one.

    A key given in the table replaces the preset's; `settings`, `environment`, `language_ids`, `initialization`
    and `output` are merged key by key. Raises InvalidConfigError, which names the key and the nearest known one.
    """
    where = f"engines.{engine_id}"
    if not _ID.match(engine_id):
        raise InvalidConfigError(f"{where}: an engine's name has letters, digits, '.', '_' and '-', at most 64")
    base: dict[str, Any] = {}
    preset = table.get("preset")
    if preset is not None:
        if not isinstance(preset, str) or preset not in preset_names():
            raise InvalidConfigError(
                f"{where}.preset: there is no preset {preset!r}{_nearest(str(preset), preset_names())}; "
                f"presets are {', '.join(preset_names())}"
            )
        base = dict(preset_table(preset))
    for key in table:
        if key not in _FIELDS or key in ("id", "tested"):
            raise InvalidConfigError(f"{where}: unknown key {key!r}{_nearest(key, [*_FIELDS])}")
    merged = _merge(base, table, _MERGED)
    merged["id"] = engine_id
    for key in ("kind", "command", "capabilities", "extensions"):
        if key not in merged:
            raise InvalidConfigError(f"{where}: {key!r} is missing (or name a preset: {', '.join(preset_names())})")
    try:
        spec = msgspec.convert(merged, EngineSpec)
    except msgspec.ValidationError as error:
        raise InvalidConfigError(_explain(where, error)) from None
    _validate(where, spec)
    return spec


def _merge(base: Mapping[str, Any], over: Mapping[str, Any], deep: frozenset[str] | None) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        if (deep is None or key in deep) and isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[key] = _merge(known, value, None)  # pyright: ignore[reportUnknownArgumentType] -- TOML
        else:
            merged[key] = value
    return merged


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _explain(where: str, error: msgspec.ValidationError) -> str:
    """The fault with its key in front, as a sentence: msgspec names types in words of its own and the place last."""
    text = str(error)
    place = re.search(r" - at `\$\.?([^`]*)`$", text)
    at = f"{where}.{place[1]}" if place is not None and place[1] else where
    unknown = re.search(r"unknown field `([^`]+)`", text)
    if unknown is not None:
        known = sorted({field.encode_name for kind in _NESTED for field in msgspec.structs.fields(kind)})
        return f"{at}: unknown key {unknown[1]!r}{_nearest(unknown[1], known)}"
    missing = re.search(r"missing required field `([^`]+)`", text)
    if missing is not None:
        return f"{at}: {missing[1]!r} is missing; add it"
    types = re.match(r"Expected `([^`]+)`, got `([^`]+)`", text)
    if types is not None:
        wanted = [_TYPE_NAMES.get(name, name) for name in types[1].split(" | ") if name != "null"]
        return f"{at}: must be {' or '.join(wanted)}, not {_TYPE_NAMES.get(types[2], types[2])}"
    wrong = re.match(r"Invalid enum value (.*?) - at", text)
    if wrong is not None and place is not None:
        return f"{at}: must be one of {', '.join(map(repr, _choices(place[1])))}, not {wrong[1]}"
    return f"{at}: {text.removesuffix(place[0]) if place is not None else text}"


_TYPE_NAMES = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "a string",
}


def _choices(location: str) -> list[str]:
    """The words that a key may hold, from the annotation at a dotted place such as `lint.output.form`."""
    annotation: Any = EngineSpec
    for key in re.sub(r"\[[^\]]*\]", "", location).split("."):
        kinds = [kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type)]
        struct = next((kind for kind in kinds if issubclass(kind, msgspec.Struct)), None)
        annotation = get_type_hints(struct).get(key) if struct is not None else None
    return _literals(annotation)


def _literals(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [word for part in get_args(annotation) for word in _literals(part)]


_NESTED: tuple[type[msgspec.Struct], ...] = (CommandSpec, Output, JsonMap, Direct)


def _validate(where: str, spec: EngineSpec) -> None:
    def refuse(key: str, why: str) -> None:
        raise InvalidConfigError(f"{where}.{key}: {why}")

    if not spec.command:
        refuse("command", "must name a program")
    if not spec.capabilities:
        refuse("capabilities", f"must list at least one of {', '.join(get_args(Ability))}")
    if "fix" in spec.capabilities and "lint" not in spec.capabilities:
        refuse("capabilities", "'fix' is a form of 'lint': list 'lint' too")
    for key in ("timeout_s", "start_timeout_s", "idle_stop_s"):
        if not getattr(spec, key) > 0:
            refuse(key, "must be greater than 0 seconds")
    for extension in spec.extensions:
        if extension.startswith(".") or extension != extension.lower():
            refuse("extensions", f"{extension!r} must be lower-case and without its dot ('*' for all, '' for none)")
    for ability in spec.capabilities:
        command = spec.command_for(ability)
        if command is None:
            continue
        if not command.command:
            refuse(f"{ability}.command", "must name a program")
        if command.input == "files" and not any(
            "{files}" in word or "{path}" in word or "{relative}" in word for word in command.command
        ):
            refuse(f"{ability}.command", "input 'files' needs {files}, {path} or {relative} among its words")
        if ability == "format" and command.input == "stdin" and command.output.form != "text":
            refuse(f"{ability}.output", 'a formatter that reads stdin must print the text: form = "text"')
        for pattern in (*command.output.patterns, *command.output.ignore):
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise InvalidConfigError(f"{where}.{ability}.output: pattern {pattern!r}: {error}") from error
            if pattern in command.output.patterns and "message" not in compiled.groupindex:
                refuse(f"{ability}.output", f"pattern {pattern!r} has no group named 'message'")
