"""The forms in which model providers take tools and exchange calls for results (SPEC 7.6). Pure.

Owns the difference between three wire forms: Anthropic's messages, OpenAI's responses, and the chat completions that
OpenAI and most other servers speak. Runs no tool and talks to nobody; no provider's library is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import msgspec

from devtools_lsp.errors import BadArgumentError

Provider = Literal["anthropic", "openai", "openai-chat"]
ToolForm = Literal["mcp", Provider]
"""`mcp` is our own: {name, description, inputSchema, annotations}."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A model's wish to call a tool. `given` are its arguments as the provider passes them on."""

    provider: Provider
    id: str
    name: str
    given: object

    def arguments(self) -> dict[str, Any]:
        """The arguments as an object; raises BadArgumentError for a model that wrote something else."""
        found: object = self.given
        if isinstance(found, str):
            try:
                # A tool without required arguments is called with an empty text by some models.
                found = msgspec.json.decode(found) if found.strip() else {}
            except (msgspec.DecodeError, RecursionError) as error:
                raise BadArgumentError(
                    f"{self.name}: the arguments are not valid JSON ({error})", step=self.name, reason="malformed"
                ) from None
        if not isinstance(found, Mapping):
            raise BadArgumentError(f"{self.name}: the arguments must be an object", step=self.name, reason="malformed")
        return dict(cast("Mapping[str, Any]", found))


def tool_definitions(tools: Sequence[Mapping[str, Any]], form: ToolForm) -> list[dict[str, Any]]:
    """Tools as `devtools/tools` lists them, in a form; raises BadArgumentError for a form that there is not."""
    if form not in ("mcp", *get_args(Provider)):
        raise BadArgumentError(f"there is no form {form!r}; the forms are mcp, {', '.join(get_args(Provider))}")
    return [_definition(tool, form) for tool in tools]


def _definition(tool: Mapping[str, Any], form: ToolForm) -> dict[str, Any]:
    if form == "mcp":
        return dict(tool)
    named = {"name": tool["name"], "description": tool["description"]}
    if form == "anthropic":
        return {**named, "input_schema": tool["inputSchema"]}
    # Strict mode knows no optional arguments, and the responses form assumes it unless told otherwise.
    function = {**named, "parameters": tool["inputSchema"], "strict": False}
    return {"type": "function", **function} if form == "openai" else {"type": "function", "function": function}


def read_tool_use(block: object) -> ToolUse:
    """A provider's call of a tool, as plain data or as the object of its own library; told apart by shape.

    Anthropic: a `tool_use` block of a message's content. OpenAI: a `function_call` item of a response's output, or
    an entry of a chat message's `tool_calls`. Raises BadArgumentError for anything else.
    """
    kind = _member(block, "type")
    if kind == "tool_use":
        return _tool_use("anthropic", _member(block, "id"), block, "input")
    if kind == "function_call":
        return _tool_use("openai", _member(block, "call_id"), block, "arguments")
    function = _member(block, "function")
    if function is not None:
        return _tool_use("openai-chat", _member(block, "id"), function, "arguments")
    raise BadArgumentError(
        f"this is no call of a tool (type {kind!r}); give a tool_use block, a function_call item or an entry of "
        "tool_calls",
        reason="malformed",
    )


def _tool_use(provider: Provider, call_id: object, named: object, arguments: str) -> ToolUse:
    name = _member(named, "name")
    if not isinstance(call_id, str) or not isinstance(name, str):
        raise BadArgumentError(f"a call of a tool in the form {provider} has an id and a name", reason="malformed")
    return ToolUse(provider, call_id, name, _member(named, arguments))


def _member(value: object, name: str) -> object:
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value).get(name)
    return getattr(value, name, None)


def tool_result(use: ToolUse, text: str, *, refused: bool) -> dict[str, Any]:
    """What goes back to the model for a call; `refused` marks an error where the provider has a place for that."""
    if use.provider == "anthropic":
        return {"type": "tool_result", "tool_use_id": use.id, "content": text, "is_error": refused}
    if use.provider == "openai":
        return {"type": "function_call_output", "call_id": use.id, "output": text}
    return {"role": "tool", "tool_call_id": use.id, "content": text}
