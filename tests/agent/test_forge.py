"""Tools forged from steps: schemas, narrowing, overrides, and that the gate sees the step's own name."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.agent.forge import Invocation, forge_dev_tools
from devtools_lsp.agent.schemas import schema_of
from devtools_lsp.agent.sessions import SessionMemory
from devtools_lsp.agent.shell import ShellSettings
from devtools_lsp.agent.workspace_tools import WorkspaceTools
from devtools_lsp.errors import DevToolsError
from devtools_lsp.pipeline.steps import STEP_ARGUMENTS
from devtools_lsp.ports import Cancellation
from tests.contract.bench import Scene, finder, formatter


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    root = tmp_path / "root"
    root.mkdir()
    made = Scene(root)
    yield made
    if made.file_system is not None:
        made.file_system.close()


def who() -> Invocation:
    return Invocation("agent", "session", Cancellation())


def everything(scene: Scene) -> Scene:
    fixer = finder("lint", "bad", kind="lints")
    from dataclasses import replace

    fixable = replace(fixer, lints=(replace(fixer.lints[0], fixable=True),))
    scene.engines = [formatter("upper", str.upper), fixable, finder("words", "bad")]
    return scene


PORTABLE = {
    "type", "description", "properties", "required", "items", "enum", "minimum", "maximum", "minLength", "minItems",
    "additionalProperties", "examples",
}  # fmt: skip
"""Keywords that a function declaration of any common provider may carry, or that every harness knows to leave out."""


def nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every schema inside a schema; property names and examples are none."""
    yield schema
    for entry in schema.get("properties", {}).values():
        yield from nodes(entry)
    if "items" in schema:
        yield from nodes(schema["items"])


@pytest.mark.parametrize("surface", ["granular", "composite", "workspace"])
def test_schemas_are_what_model_providers_accept(scene: Scene, surface):
    """What OpenAI, Anthropic and Gemini take as a function's parameters, and what harnesses make of it on the way.

    Gemini refuses alternatives below an array and exclusive bounds; Codex turns a node without a type into a string.
    """
    pipeline = everything(scene).pipeline
    if surface == "workspace":
        shell = ShellSettings()
        tools = WorkspaceTools(pipeline, memory=SessionMemory(), deny=lambda _path: False, shell=shell).tools()
    else:
        tools = forge_dev_tools(pipeline, surface)
    for tool in tools.to_wire():
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}", tool["name"])
        assert 0 < len(tool["description"]) <= 1024
        schema = tool["inputSchema"]
        assert schema["type"] == "object"
        assert schema["examples"]
        assert set(tool["annotations"]) == {
            "title",
            "readOnlyHint",
            "destructiveHint",
            "idempotentHint",
            "openWorldHint",
        }
        for node in nodes(schema):
            assert isinstance(node["type"], str)
            assert set(node) <= PORTABLE
            assert all(isinstance(value, str) for value in node.get("enum", ()))
            if node["type"] == "array":
                assert "items" in node
            if node["type"] == "object":
                assert node["additionalProperties"] is False
                assert set(node.get("required", ())) <= set(node["properties"])
                for name, entry in node["properties"].items():
                    assert entry.get("description"), f"{tool['name']}: {name} has no description"


def test_a_plans_arguments_say_which_step_takes_which(scene: Scene):
    (plan,) = forge_dev_tools(everything(scene).pipeline, "composite").to_wire()
    args = plan["inputSchema"]["properties"]["ops"]["items"]["properties"]["args"]
    assert args["description"] == (
        "The step's arguments. read_lines: path, start, end?; edit: path, edits; apply_patch: patch; write: paths?; "
        "format: paths?; lint: paths?, fix?; check: none."
    )
    for step, model in STEP_ARGUMENTS.items():
        for name, entry in schema_of(model)["properties"].items():
            merged = {key: value for key, value in args["properties"][name].items() if key != "description"}
            alone = {key: value for key, value in entry.items() if key != "description"}
            assert merged == alone, f"{step} and an earlier step differ about {name}"


def test_the_examples_are_valid_calls(scene: Scene):
    from devtools_lsp.pipeline.steps import compile_ops

    everything(scene)
    for tool in forge_dev_tools(scene.pipeline, "granular").to_wire():
        args = {key: value for key, value in tool["inputSchema"]["examples"][0].items() if key != "paths"}
        compile_ops([{"step": tool["name"], "args": args}])
    (plan,) = forge_dev_tools(scene.pipeline, "composite").to_wire()
    compile_ops(plan["inputSchema"]["examples"][0]["ops"])


def test_granular_tools_are_the_steps_without_write(scene: Scene):
    tools = forge_dev_tools(everything(scene).pipeline)
    assert list(tools.tools) == ["read_lines", "edit", "apply_patch", "format", "lint", "check"]
    assert {tool.name for tool in tools.tools.values() if tool.read_only} == {"read_lines", "check"}
    required = {name: tool.input_schema.get("required") for name, tool in tools.tools.items()}
    assert required == {
        "read_lines": ["path", "start"],
        "edit": ["path", "edits"],
        "apply_patch": ["patch"],
        "format": ["paths"],
        "lint": ["paths"],
        "check": ["paths"],
    }


def test_a_step_that_no_engine_serves_is_not_offered(scene: Scene):
    scene.engines = [finder("words", "x")]
    tools = forge_dev_tools(scene.pipeline)
    assert list(tools.tools) == ["read_lines", "edit", "apply_patch", "check"]
    with pytest.raises(DevToolsError) as caught:
        tools.find("format")
    assert caught.value.code == "E_DEV_ENGINE_REQUIRED"
    assert "do not retry" in caught.value.message
    assert caught.value.alternatives == ["read_lines", "edit", "apply_patch", "check"]
    (plan,) = forge_dev_tools(scene.pipeline, "composite").to_wire()
    offered = plan["inputSchema"]["properties"]["ops"]["items"]["properties"]["step"]["enum"]
    assert offered == ["read_lines", "edit", "apply_patch", "write", "check"]


def test_a_linter_that_cannot_fix_offers_no_fix(scene: Scene):
    scene.engines = [finder("lint", "x", kind="lints")]
    tools = forge_dev_tools(scene.pipeline)
    assert "fix" not in tools.tools["lint"].input_schema["properties"]
    assert tools.tools["lint"].read_only


def test_read_only_hides_what_changes_files(scene: Scene):
    scene.options["read_only"] = True
    tools = forge_dev_tools(everything(scene).pipeline)
    assert list(tools.tools) == ["read_lines", "lint", "check"]
    assert "fix" not in tools.tools["lint"].input_schema["properties"]
    with pytest.raises(DevToolsError) as caught:
        tools.find("edit")
    assert caught.value.code == "E_DEV_READ_ONLY"
    (plan,) = forge_dev_tools(scene.pipeline, "composite").to_wire()
    offered = plan["inputSchema"]["properties"]["ops"]["items"]["properties"]["step"]["enum"]
    assert offered == ["read_lines", "lint", "check"]
    assert plan["annotations"]["readOnlyHint"] is True


@pytest.mark.parametrize(
    "ops",
    [
        [{"step": "write"}],
        [{"step": "lint", "args": {"fix": True}}],
        [{"step": "format"}],
        [{"step": "edit", "args": {"path": "a.txt", "edits": [{"find": "a", "replace": "b"}]}}],
    ],
)
async def test_read_only_refuses_plans_that_change_files(scene: Scene, ops):
    scene.options["read_only"] = True
    everything(scene).put({"a.txt": "a\n"})
    await scene.refused(scene.pipeline.ops(["a.txt"], ops), "E_DEV_READ_ONLY")


async def test_overrides_change_what_the_agent_sees_and_not_what_the_gate_sees(scene: Scene):
    scene.put({"a.txt": "a\n"})
    tools = forge_dev_tools(scene.pipeline, overrides={"edit": {"name": "change_text", "description": "mine"}})
    tool = tools.find("change_text")
    assert tool.description == "mine"
    await tool.call({"path": "a.txt", "edits": [{"find": "a", "replace": "b"}]}, who())
    assert scene.gate.steps == ["acquire", "edit"]
    with pytest.raises(DevToolsError):
        tools.find("edit")


@pytest.mark.parametrize(
    "overrides", [{"compile": {"name": "x"}}, {"edit": {"title": "x"}}, {"edit": {"name": "check"}}]
)
def test_bad_overrides_are_refused(scene: Scene, overrides):
    scene.engines = [finder("words", "x")]
    with pytest.raises(DevToolsError) as caught:
        forge_dev_tools(scene.pipeline, overrides=overrides)
    assert caught.value.code == "E_INVALID_DEV_PIPELINE_CONFIG"


async def test_paths_beside_a_path_are_united_and_belong_to_acquire(scene: Scene):
    scene.put({"a.txt": "a\n", "b.txt": "b\n"})
    tool = forge_dev_tools(scene.pipeline).find("read_lines")
    answer = await tool.call({"path": "a.txt", "start": 1, "paths": ["b.txt"]}, who())
    acquire, step = scene.gate.asked
    assert (acquire["args"], acquire["targets"]) == ({"paths": ["b.txt"]}, ["a.txt", "b.txt"])
    assert step["args"] == {"path": "a.txt", "start": 1}
    assert list(answer.result.reads) == ["a.txt"]


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("check", {}, "paths"),
        ("check", {"paths": []}, "paths"),
        ("check", {"paths": "a.txt"}, "paths"),
        ("check", {"paths": [1]}, "paths"),
        ("check", {"paths": ["a.txt"], "fix": True}, "fix"),
        ("edit", {"path": "a.txt", "edit": []}, "edit"),
        ("edit", [], "object"),
    ],
)
async def test_malformed_tool_arguments(scene: Scene, tool: str, arguments, named: str):
    scene.engines = [finder("words", "x")]
    scene.put({"a.txt": "a\n"})
    with pytest.raises(DevToolsError) as caught:
        await forge_dev_tools(scene.pipeline).find(tool).call(arguments, who())
    assert caught.value.code == "E_DEV_BAD_ARG"
    assert caught.value.step == tool
    assert named in caught.value.message


def test_an_unknown_tool_lists_those_there_are(scene: Scene):
    with pytest.raises(DevToolsError) as caught:
        forge_dev_tools(scene.pipeline).find("write")
    assert caught.value.code == "E_DEV_UNKNOWN_STEP"
    assert caught.value.alternatives == ["read_lines", "edit", "apply_patch"]


def test_a_refusal_keeps_nothing_of_those_it_was_told(scene: Scene):
    """Tools are forged once and refused often: frames of earlier callers would pile up in the error."""
    tools = forge_dev_tools(scene.pipeline)
    lengths: list[int] = []
    for _ in range(3):
        with pytest.raises(DevToolsError) as caught:
            tools.find("lint")
        lengths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert lengths[0] == lengths[1] == lengths[2]
