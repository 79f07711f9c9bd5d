"""The devtools.toml that `init` proposes: what was found, written for a person to read and change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from devtools_lsp.engines.detect import Detected, Found
from devtools_lsp.pipeline.remembering import toml_value

HEAD = """\
# What devtools-lsp may do in this repository. Read it before you rely on it: nothing runs that is not listed here.
# Changes take effect while the daemon runs; a mistake keeps the old settings and is told by `devtools-lsp status`.

[workspace]
text = "preserve"            # keep line ends, byte order marks and encodings as they are; or "normalize"
symlinks = "reject"          # never write through a symbolic link; or "inside"

[gate]
mode = "editor"              # whatever would write waits for a person; "allow" and "deny" ask nobody
timeout_s = 300              # an approval that nobody answers is declined after this
no_editor = "fail"           # with nobody attached decline at once; or "wait"

# [[gate.rules]]             # your own rules, before the built-in ones; deny always wins
# step = "edit"
# paths = ["docs/**"]
# decision = "allow"         # allow | ask | deny

[policy]
deny_write = []              # patterns that no tool may write; .git and editors' settings never are writable
"""


def propose_configuration(detected: Detected) -> str:
    """The text of a configuration with the wanted engines on and the other known ones explained."""
    sections = [HEAD, *(_table(entry) for entry in detected.engines if entry.wanted)]
    others = [entry for entry in detected.engines if not entry.wanted]
    if others:
        lines = ["# Not used here. To use one, add its table:", "#"]
        lines += [f"#   [engines.{entry.preset}]   {entry.title}: {_one_line(entry.note)}" for entry in others]
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def _table(entry: Found) -> str:
    found = f"found {entry.program}" if entry.program else "found"
    configured = f", configured by {entry.configured_by}" if entry.configured_by else ""
    head = f"# {entry.title}: {found}{configured}; {entry.files} file(s) here"
    return "\n".join([head, f"[engines.{entry.preset}]", *_keys(entry.table)]) + "\n"


def _keys(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {toml_value(value)}" for key, value in table.items()]


def _one_line(text: str) -> str:
    return " ".join(text.split()) or "installed"
