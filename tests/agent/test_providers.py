"""The wire forms of model providers: tools go out, calls come in, and results go back in the form of the call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from devtools_lsp.agent.providers import read_tool_use, tool_definitions, tool_result
from devtools_lsp.errors import BadArgumentError

SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
TOOL = {"name": "glob", "description": "Find files.", "inputSchema": SCHEMA, "annotations": {"title": "Glob"}}

ANTHROPIC = {"type": "tool_use", "id": "toolu_1", "name": "glob", "input": {"pattern": "*.py"}}
OPENAI = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "glob",
    "arguments": '{"pattern": "*.py"}',
}
CHAT = {"id": "call_2", "type": "function", "function": {"name": "glob", "arguments": '{"pattern": "*.py"}'}}


def objects(value: Any) -> Any:
    """The same as the providers' own libraries have it: members are attributes, arguments stay as they are."""
    if not isinstance(value, dict):
        return value
    return SimpleNamespace(**{name: entry if name == "input" else objects(entry) for name, entry in value.items()})


@pytest.mark.parametrize(
    ("form", "definition"),
    [
        ("mcp", TOOL),
        ("anthropic", {"name": "glob", "description": "Find files.", "input_schema": SCHEMA}),
        (
            "openai",
            {
                "type": "function",
                "name": "glob",
                "description": "Find files.",
                "parameters": SCHEMA,
                "strict": False,
            },
        ),
        (
            "openai-chat",
            {
                "type": "function",
                "function": {"name": "glob", "description": "Find files.", "parameters": SCHEMA, "strict": False},
            },
        ),
    ],
)
def test_tools_go_out_in_the_form_of_the_provider(form: Any, definition: dict[str, Any]):
    assert tool_definitions([TOOL], form) == [definition]


def test_a_form_that_there_is_not_is_refused_with_those_there_are():
    with pytest.raises(BadArgumentError, match="mcp, anthropic, openai, openai-chat"):
        tool_definitions([TOOL], "gemini")  # type: ignore[arg-type]


@pytest.mark.parametrize("own", [dict, objects])
@pytest.mark.parametrize(
    ("block", "result"),
    [
        (ANTHROPIC, {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py", "is_error": True}),
        (OPENAI, {"type": "function_call_output", "call_id": "call_1", "output": "a.py"}),
        (CHAT, {"role": "tool", "tool_call_id": "call_2", "content": "a.py"}),
    ],
)
def test_a_call_comes_in_and_its_result_goes_back_in_the_same_form(block: dict[str, Any], result: Any, own: Any):
    use = read_tool_use(own(block))
    assert (use.name, use.arguments()) == ("glob", {"pattern": "*.py"})
    assert tool_result(use, "a.py", refused=True) == result


@pytest.mark.parametrize(
    "block",
    [
        None,
        "glob",
        {},
        {"type": "text", "text": "I will call glob"},
        {"type": "tool_use", "name": "glob", "input": {}},
        {"type": "function_call", "call_id": "c", "arguments": "{}"},
        {"id": "c", "function": {"arguments": "{}"}},
        {"id": 3, "function": {"name": "glob", "arguments": "{}"}},
    ],
)
def test_what_is_no_call_is_refused(block: object):
    with pytest.raises(BadArgumentError):
        read_tool_use(block)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"pattern": "*.py"', "not valid JSON"),
        ("[1]", "must be an object"),
        ("null", "must be an object"),
        ("NaN", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        (None, "must be an object"),
        (["pattern"], "must be an object"),
    ],
)
def test_arguments_that_are_no_object_are_the_models_to_correct(written: object, said: str):
    use = read_tool_use({"id": "c", "function": {"name": "glob", "arguments": written}})
    with pytest.raises(BadArgumentError, match=said) as caught:
        use.arguments()
    assert (caught.value.step, caught.value.retry) == ("glob", "afterCorrection")


def test_no_text_at_all_means_no_arguments():
    assert read_tool_use({**OPENAI, "arguments": " "}).arguments() == {}
