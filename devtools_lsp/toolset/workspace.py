"""`Workspace`: where the tools of a library's toolset work and how far they may go, checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from devtools_lsp import discovery
from devtools_lsp.config import Configuration, parse_configuration
from devtools_lsp.errors import InvalidConfigError

SMALLEST_OUTPUT_BYTES = 1024


@dataclass(frozen=True, slots=True, init=False)
class Workspace:
    """Where tools work and how far they may go. Raises InvalidConfigError that names the setting.

    `root` is a directory; links are resolved, and the file system's root and the home directory are refused as too
    wide. `read_only` hides every tool that changes files, bash included; `allow_bash` false hides bash alone.
    `bash_timeout_s` (seconds) ends a command that asked for no limit of its own; of its output `max_output_bytes` are
    kept, from head and tail. Commands inherit a short list of environment variables: `env_allow` names others in
    its place, `inherit_env` passes all and makes `env_allow` moot.

    What may be written and read is what a daemon without configuration allows: everything below the root may be
    written except `.git`, `devtools.toml` and the like, and secrets (`.env`, private keys) are not read. The gate
    answers for the rest. A `devtools.toml` is not read: these settings stand in its place.
    """

    root: Path
    read_only: bool
    allow_bash: bool
    bash_timeout_s: float
    max_output_bytes: int
    inherit_env: bool
    env_allow: tuple[str, ...] | None

    def __init__(
        self,
        root: Path | str,
        read_only: bool = False,
        allow_bash: bool = True,
        bash_timeout_s: float = 120.0,
        max_output_bytes: int = 1024 * 1024,
        inherit_env: bool = False,
        env_allow: Sequence[str] | None = None,
    ) -> None:
        values = {
            "root": _root(root),
            "read_only": _flag("read_only", read_only),
            "allow_bash": _flag("allow_bash", allow_bash),
            "bash_timeout_s": _seconds("bash_timeout_s", bash_timeout_s),
            "max_output_bytes": _bytes("max_output_bytes", max_output_bytes),
            "inherit_env": _flag("inherit_env", inherit_env),
            "env_allow": _names("env_allow", env_allow),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def configuration(self) -> Configuration:
        """The settings as the configuration that a root is composed from."""
        return parse_configuration(
            {
                "workspace": {"read_only": self.read_only},
                "shell": {
                    "enabled": self.allow_bash,
                    "timeout_s": self.bash_timeout_s,
                    "max_output_bytes": self.max_output_bytes,
                    "inherit_env": self.inherit_env,
                    "env_allow": list(self.env_allow) if self.env_allow is not None else None,
                },
            }
        )


def _root(value: object) -> Path:
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise InvalidConfigError(f"Workspace: root must be a path, not {value!r}")
    return discovery.checked_root(value, "in Workspace(root=...)")


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidConfigError(f"Workspace: {name} must be True or False, not {value!r}")
    return value


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidConfigError(f"Workspace: {name} must be a positive number of seconds, not {value!r}")
    return float(value)


def _bytes(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < SMALLEST_OUTPUT_BYTES:
        raise InvalidConfigError(
            f"Workspace: {name} must be a whole number of at least {SMALLEST_OUTPUT_BYTES}, not {value!r}"
        )
    return value


def _names(name: str, value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidConfigError(f"Workspace: {name} must be a list of names of variables, not {value!r}")
    entries = tuple(cast("Sequence[object]", value))
    for entry in entries:
        if not isinstance(entry, str) or not entry or "=" in entry or "\0" in entry:
            raise InvalidConfigError(f"Workspace: {name} has {entry!r}, which is not the name of a variable")
    return cast("tuple[str, ...]", entries)
