"""A decision for good: the rule that would have settled an approval, as TOML to paste into the configuration.

What is remembered with an answer ends with the agent's session (SPEC 8.0.11); only the reviewed file lasts, and
nobody writes it but a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from devtools_lsp.fs.names import always_ask
from devtools_lsp.pipeline import remembering
from devtools_lsp.pipeline.remembering import remembered_rule
from devtools_lsp.pipeline.rules import Question
from devtools_lsp.ports import GateCall


def kept_rule(item: Mapping[str, Any], *, array: str = "gate.rules") -> str | None:
    """The rule for an approval's payload, as an entry of the named array of tables; None when none can say it."""
    if item.get("rememberText") is None or item.get("truncated", {}).get("args"):
        return None
    call = GateCall(
        item["step"], item["args"], tuple(item["targets"]), tuple(item["mayCreate"]), tuple(item["engines"] or ())
    )
    rule = remembered_rule(Question(call, item["agent"]), always_ask)
    return remembering.kept_rule(rule, array=array) if rule is not None else None
