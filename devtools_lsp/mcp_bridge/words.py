"""What the bridge says in words: where results are whole, instructions for the model, pages of an artifact.

Pure. What a result or a refusal looks like as text belongs to `agent/render.py`; here is what only an MCP client needs.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from devtools_lsp.agent.render import reply_text
from devtools_lsp.errors import BadArgumentError

ARTIFACT_TEMPLATE = "devtools://artifact/{handle}{?path,severity,engineId,offset,limit}"
NAMELESS_AGENT = "mcp"
LONGEST_NAME = 128

_UNSHOWABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
_SEVERITIES = ("error", "warning", "info")


class Agent(NamedTuple):
    """Who calls, as the daemon is told: the MCP client's name is the agent's at the gate."""

    name: str
    version: str


def agent(name: object, version: object) -> Agent:
    """The agent for a client's own words, without what could deceive a person who reads them."""
    return _agent(name if isinstance(name, str) else "", version if isinstance(version, str) else "")


@functools.lru_cache(maxsize=64)
def _agent(name: str, version: str) -> Agent:
    return Agent(_shown(name) or NAMELESS_AGENT, _shown(version))


def _shown(text: str) -> str:
    return _UNSHOWABLE.sub(" ", text).strip()[:LONGEST_NAME].strip()


# -- artifacts ---------------------------------------------------------------------------------------------------


def artifact_uri(handle: str, **filters: str | int) -> str:
    """Where an artifact is read, with the filters that are given."""
    query = f"?{urlencode(filters, quote_via=quote)}" if filters else ""
    return f"devtools://artifact/{handle}{query}"


@dataclass(frozen=True, slots=True)
class ArtifactAddress:
    """What a resource's URI asks for. `engine_id` None in `filters` asks for runtime notices."""

    handle: str
    filters: Mapping[str, Any]


def read_artifact_uri(uri: str) -> ArtifactAddress:
    """Take a URI apart; raises BadArgumentError that says what the URI should look like."""
    parts = urlsplit(uri)
    handle = parts.path.strip("/")
    if parts.scheme != "devtools" or parts.netloc != "artifact" or not handle or "/" in handle:
        raise BadArgumentError(f"no such resource: {uri[:200]!r}; the form is {ARTIFACT_TEMPLATE}", reason="notFound")
    filters: dict[str, Any] = {}
    for name, values in parse_qs(parts.query, keep_blank_values=True).items():
        value = values[-1]
        if name in ("offset", "limit"):
            if not value.isascii() or not value.isdigit():
                raise BadArgumentError(f"{name} is {value[:50]!r}; it must be a whole number", reason="malformed")
            filters[name] = int(value)
        elif name == "severity":
            if value not in _SEVERITIES:
                raise BadArgumentError(f"severity is {value[:50]!r}; it is error, warning or info", reason="malformed")
            filters[name] = value
        elif name == "engineId":
            filters["engine_id"] = value or None
        elif name == "path":
            filters[name] = value
        else:
            raise BadArgumentError(
                f"unknown filter {name[:50]!r}; the filters are path, severity, engineId, offset and limit",
                reason="malformed",
            )
    return ArtifactAddress(handle, filters)


def page_text(uri: str, page: Mapping[str, Any]) -> str:
    """A page of an artifact as JSON, one item a line, that says where it is in the whole and how to go on."""
    items: Sequence[Any] = page["items"]
    first, total = int(page["offset"]), int(page["total"])
    note = (
        f"items {first + 1:,} to {first + len(items):,} of {total:,}" if items else f"no items here; {total:,} in all"
    )
    head: dict[str, Any] = {"note": note, "offset": first, "total": total}
    if "nextOffset" in page:
        head["nextOffset"] = page["nextOffset"]
        head["next"] = _with_offset(uri, int(page["nextOffset"]))
        head["note"] += f"; read {head['next']} for the next"
    lines = ",\n".join(json.dumps(item, ensure_ascii=False) for item in items)
    return f'{json.dumps(head, ensure_ascii=False)[:-1]}, "items": [\n{lines}\n]}}'


def _with_offset(uri: str, offset: int) -> str:
    parts = urlsplit(uri)
    kept = [(name, values[-1]) for name, values in parse_qs(parts.query, keep_blank_values=True).items()]
    query = urlencode([*((name, value) for name, value in kept if name != "offset"), ("offset", offset)])
    return parts._replace(query=query).geturl()


# -- results and progress ----------------------------------------------------------------------------------------


def result_text(result: Mapping[str, Any]) -> str:
    """A result as a model reads it, with where the whole of it is when it was cut."""
    text = reply_text(result)
    if result.get("truncated"):
        text += f"the whole of it: resource {artifact_uri(result['artifact']['handle'])}\n"
    return text


def progress_text(value: Mapping[str, Any]) -> str:
    """One piece of progress: a line of output as it is, a report with the command that answers it."""
    if value.get("kind") == "output":
        return str(value.get("text", ""))
    approval = value.get("approval")
    return f"{value.get('message', '')}" + (f" (devtools-lsp approve {approval})" if approval else "")


# -- instructions ------------------------------------------------------------------------------------------------


def instructions(root: str, tools: Sequence[Mapping[str, Any]], gate_mode: str | None, note: str | None = None) -> str:
    """What the model should know beyond the tools' own descriptions, from what is offered now."""
    names = [str(tool["name"]) for tool in tools]
    lines = [f"Tools for the repository at {root}; paths are relative to it."]
    changing = [name for name in names if name not in ("read_lines", "check", "read_file", "glob", "grep")]
    if not changing:
        lines.append("The workspace is read-only.")
    if "dev_plan" in names:
        lines.append(
            "One dev_plan call can edit, lint, check and then write; without a write step nothing is saved, and check "
            "tells what the edit would break."
        )
    if "edit" in names or "apply_patch" in names:
        checks = [name for name in ("lint", "check") if name in names]
        judged = f" Then run {' and '.join(checks)} on the files you changed." if checks else ""
        lines.append(f"Changes are saved before a call returns, as a whole or not at all.{judged}")
    if "edit_file" in names:
        lines.append("Read a file with read_file before edit_file.")
    if changing and gate_mode == "editor":
        lines.append("A call that changes something may wait for a person's approval: let it wait, do not repeat it.")
    if any(name in names for name in ("dev_plan", "lint", "check")):
        lines.append("What is listed as not judged is unknown, not clean.")
    lines.append(
        "An error says whether to correct the call, to repeat it, or to give up. A result that was cut names the "
        "resource that has all of it: devtools://artifact/HANDLE (?offset, limit, severity, path)."
    )
    if note:
        lines.append(note)
    return "\n".join(lines)
