"""The configuration of one workspace: the models of `devtools.toml`, reading and checking it (SPEC 8.1).

Unknown keys are refused with the nearest known one. Rules and engines are validated by the rooms that own them,
so that one message serves the file, the library and `doctor` alike. Nothing here starts anything.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from devtools_lsp.core.wording import complaint, place
from devtools_lsp.engines.spec import EngineSpec, spec_from_table
from devtools_lsp.errors import InvalidConfigError
from devtools_lsp.paths import PathPattern
from devtools_lsp.pipeline.parts import Bounds
from devtools_lsp.pipeline.remembering import RulesPlace
from devtools_lsp.pipeline.rule_tables import read_rules
from devtools_lsp.pipeline.rules import Rule

FILE_NAME = "devtools.toml"
PYPROJECT_NAME = "pyproject.toml"
PYPROJECT_TABLE = "devtools-lsp"


class Section(BaseModel):
    """Base of every section: unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class WorkspaceSection(Section):
    """`[workspace]`: how text is kept, links, and how much one plan may acquire."""

    text: Literal["preserve", "normalize"] = Field(
        default="preserve",
        description="`preserve` keeps line ends, byte order marks and encodings; `normalize` rewrites a changed file "
        "as UTF-8 with LF and says so.",
    )
    symlinks: Literal["reject", "inside"] = Field(
        default="reject",
        description="`reject`: nothing is written through a symbolic link, reads follow those that stay inside; "
        "`inside`: both follow. The root is never left.",
    )
    read_only: bool = Field(default=False, description="Hide and refuse every tool that changes files, bash included.")
    max_files: int = Field(default=500, ge=1, description="Files that one plan may acquire.")
    max_bytes_per_file: int = Field(
        default=2 * 1024 * 1024, ge=1, description="Bytes of one acquired file; windows of larger ones can be read."
    )
    max_total_bytes: int = Field(default=32 * 1024 * 1024, ge=1, description="Bytes of all files of one plan.")
    max_depth: int = Field(default=20, ge=1, description="Path components of an acquired file.")

    def bounds(self) -> Bounds:
        """The pipeline's form of the limits."""
        return Bounds(self.max_files, self.max_bytes_per_file, self.max_total_bytes, self.max_depth)


class GateSection(Section):
    """`[gate]` and `[[gate.rules]]`: who answers, how long it may take, and the user's own rules in order."""

    mode: Literal["editor", "allow", "deny"] = Field(
        default="editor",
        description="What no rule settles: `editor` asks a person for everything that would write, `allow` and `deny` "
        "ask nobody (names that always ask are asked about in `allow`, too).",
    )
    timeout_s: float = Field(
        default=300, gt=0, strict=False, description="Seconds until an approval that nobody answers is declined."
    )
    preview_deadline_s: float = Field(
        default=2, gt=0, strict=False, description="Seconds that checkers may take to say what a change would break."
    )
    no_editor: Literal["fail", "wait"] = Field(
        default="fail", description="With nobody attached: decline at once, or wait for somebody."
    )
    rules: list[dict[str, Any]] = Field(
        default_factory=list[dict[str, Any]],
        description="`[[gate.rules]]`: your own rules in order; see below.",
    )


class PolicySection(Section):
    """`[policy]`: what may be written and read. Deny wins; some names are refused whatever stands here."""

    allow_write: list[str] = Field(
        default_factory=lambda: ["**"], description="Patterns that may be written; what none covers is refused."
    )
    deny_write: list[str] = Field(default_factory=list[str], description="Patterns that may not be written.")
    deny_read: list[str] = Field(
        description="Patterns that may not be read; setting it replaces the default list.",
        default_factory=lambda: [
            "**/.env",
            "**/.env.*",
            "**/*.pem",
            "**/id_rsa",
            "**/id_ecdsa",
            "**/id_ed25519",
        ],
    )


class EditorsSection(Section):
    """`[editors]`: which findings editors are shown, and whether they are pushed or pulled."""

    publish: Literal["agent", "open", "off"] = Field(
        default="agent",
        description="Findings of agents' runs, also of every open document, or none (where the editor runs the same "
        "linter itself).",
    )
    diagnostics: Literal["push", "pull"] = Field(
        default="push", description="How editors that attach from then on get their diagnostics."
    )


class ShellSection(Section):
    """`[shell]`: the bash tool and its confinement."""

    enabled: bool = Field(default=True, description="Whether bash is offered at all.")
    sandbox: Literal["auto", "bwrap", "none"] = Field(
        default="auto", description="`auto` uses bubblewrap where it works; `bwrap` insists on it; `none` does without."
    )
    require_sandbox: bool = Field(default=False, description="Refuse commands where no sandbox works.")
    env_allow: list[str] | None = Field(
        default=None, description="Environment variables that commands inherit, in place of the built-in list."
    )
    inherit_env: bool = Field(default=False, description="Pass the daemon's whole environment.")
    runner: list[str] = Field(
        default_factory=list[str], description="A command line put before each command, such as a container's."
    )
    timeout_s: float = Field(default=120, gt=0, strict=False, description="Seconds until a command is ended.")
    max_output_bytes: int = Field(
        default=1024 * 1024, ge=1024, description="Bytes of output that are kept, from its head and its tail."
    )


class ReplySection(Section):
    """`[reply]`: how much of a result is told inline."""

    inline_tokens: int = Field(
        default=2000, ge=200, description="Tokens (4 bytes of JSON each) of a reply; the rest is in its artifact."
    )


class DaemonSection(Section):
    """`[daemon]`: the process itself. `idle_exit_s` 0 keeps it running without clients."""

    idle_exit_s: float = Field(
        default=1800, ge=0, strict=False, description="Seconds without clients until the daemon ends; 0 means never."
    )


class FileModel(Section):
    """The whole file."""

    workspace: WorkspaceSection = Field(default_factory=WorkspaceSection)
    gate: GateSection = Field(default_factory=GateSection)
    policy: PolicySection = Field(default_factory=PolicySection)
    engines: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    editors: EditorsSection = Field(default_factory=EditorsSection)
    shell: ShellSection = Field(default_factory=ShellSection)
    reply: ReplySection = Field(default_factory=ReplySection)
    daemon: DaemonSection = Field(default_factory=DaemonSection)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A checked configuration. `source` is the file it came from, None for the defaults."""

    file: FileModel
    rules: tuple[Rule, ...]
    engines: tuple[EngineSpec, ...]
    source: Path | None = None

    @property
    def rules_place(self) -> RulesPlace:
        """Where another rule is to be written; what has no configuration yet gets a file of its own."""
        if self.source is not None and self.source.name == PYPROJECT_NAME:
            return RulesPlace(PYPROJECT_NAME, f"tool.{PYPROJECT_TABLE}.gate.rules")
        return RulesPlace(FILE_NAME)


def load_configuration(root: Path) -> Configuration:
    """Read the root's configuration: `devtools.toml`, else `[tool.devtools-lsp]` in pyproject.toml, else defaults.

    Raises InvalidConfigError that names the file and the key.
    """
    own = root / FILE_NAME
    if own.is_file():
        return _parse(_read_toml(own), own)
    if own.is_symlink() or own.exists():
        # Somebody meant something by it; the defaults are not what they meant.
        raise InvalidConfigError(f"{FILE_NAME} is not a file; make it one, or remove it", path=FILE_NAME)
    project = root / PYPROJECT_NAME
    if project.is_file():
        tools: Any = _read_toml(project).get("tool")
        table = cast("dict[str, Any]", tools).get(PYPROJECT_TABLE) if isinstance(tools, dict) else None
        if table is not None:
            return _parse(table, project)
    return parse_configuration({})


def parse_configuration(table: Mapping[str, Any]) -> Configuration:
    """Check a configuration given as plain data, as programs that embed the pipeline do."""
    return _parse(table, None)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfigError(f"{path.name} is not valid TOML: {error}; mend that place", path=path.name) from None
    except UnicodeDecodeError as error:
        raise InvalidConfigError(
            f"{path.name} is not valid TOML: byte {error.start} is not UTF-8; save it as UTF-8", path=path.name
        ) from None
    except OSError as error:
        raise InvalidConfigError(
            f"{path.name} cannot be read: {error.strerror}; make it readable for this user", path=path.name
        ) from None


def _parse(table: Mapping[str, Any], source: Path | None) -> Configuration:
    name = source.name if source is not None else "configuration"
    try:
        model = FileModel.model_validate(table)
    except ValidationError as error:
        raise InvalidConfigError(f"{name}: {_explain(error)}", path=name) from None
    for section, key in (("policy", "allow_write"), ("policy", "deny_write"), ("policy", "deny_read")):
        for pattern in getattr(getattr(model, section), key):
            try:
                PathPattern.parse(pattern)
            except Exception as error:
                raise InvalidConfigError(f"{name}: {section}.{key}: {error}", path=name) from None
    try:
        rules = read_rules(model.gate.rules)
        engines = tuple(spec_from_table(engine_id, entry) for engine_id, entry in model.engines.items())
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{name}: {error.message}", path=name) from None
    return Configuration(model, rules, engines, source)


def _explain(error: ValidationError) -> str:
    sentences: list[str] = []
    for problem in error.errors(include_url=False)[:5]:
        location = place(problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = _known_keys(problem["loc"][:-1])
            near = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            sentences.append(f"unknown key {location!r}; {hint}")
        else:
            where = location or "the configuration"
            sentences.append(f"{where} {complaint(problem, mapping='a table')}")
    return "; ".join(sentences)


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = FileModel
    for part in location:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)
