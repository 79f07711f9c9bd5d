"""Tools over MCP are the tools of the socket: names, schemas, results and refusals (SPEC 8.0.15)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import mcp_types as types
import pytest

from devtools_lsp.mcp_bridge.serving import tool_result
from tests.e2e.place import ALLOW, RUFF, Place

ERAS = ("legacy", "auto")
"""The protocol with its handshake, and the one in which every request stands for itself."""
UNSORTED = "import sys\nimport os\n\nprint(os)\n"


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place]) -> Place:
    return new_place(ALLOW + RUFF, {"a.py": "a = 1\n", "b.py": UNSORTED, "notes.txt": "one\ntwo\nthree\n"})


def plain(result: Any) -> dict[str, Any]:
    """A tool's result as it came over the wire."""
    return result.model_dump(by_alias=True, exclude_none=True, mode="json")


def timeless(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what differs from call to call."""
    data = {key: value for key, value in result.get("data", {}).items() if key != "durationS"}
    return {**result, "plan": "", "artifact": {**result["artifact"], "handle": ""}, "data": data}


CALLS: dict[str, list[tuple[str, dict[str, Any], str]]] = {
    "granular": [
        ("read_lines", {"path": "notes.txt", "start": 2, "end": 3}, "--- notes.txt lines 2-3 of 3\ntwo"),
        ("lint", {"paths": ["b.py"]}, "b.py:1:8: warning F401"),
        ("lint", {"paths": ["notes.txt"]}, "notes.txt"),
    ],
    "composite": [
        (
            "dev_plan",
            {
                "paths": ["a.py"],
                "ops": [{"step": "edit", "args": {"path": "a.py", "edits": [{"find": "1", "replace": "2"}]}}],
            },
            "not written to disk: 1 file",
        ),
    ],
    "workspace": [
        ("read_file", {"path": "notes.txt", "offset": 2, "limit": 1}, "     2\ttwo\n"),
        ("glob", {"pattern": "*.txt"}, "notes.txt"),
        ("grep", {"pattern": "^thr"}, "notes.txt"),
        ("bash", {"command": "printf hello; printf oops >&2"}, "hello"),
    ],
}


@pytest.mark.parametrize("is_error", [False, True])
def test_a_result_is_what_the_model_of_the_sdk_would_be(is_error: bool):
    structured = {"none": None, "inner": {"none": None, "list": [1, None, 2.5]}, "_meta": {}, "type": "x"}
    modelled = types.CallToolResult(
        content=[types.TextContent(text="words\n")], structured_content=structured, is_error=is_error
    )
    made = tool_result("words\n", structured, is_error=is_error)
    assert {**made, "resultType": "complete"} == plain(modelled)


@pytest.mark.parametrize(
    ("era", "surface"),
    [("legacy", "granular"), ("legacy", "composite"), ("legacy", "workspace"), ("auto", "granular")],
)
async def test_tools_and_results_are_those_of_the_socket(place: Place, speak: Any, era: str, surface: str):
    agent = place.agent(surface=surface)
    async with speak(place, "--surface", surface, era=era) as client:
        assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")
        assert client.server_info.name == "devtools-lsp"
        assert [plain(tool) for tool in (await client.list_tools()).tools] == agent.greeting["tools"]
        for tool, arguments, said in CALLS[surface]:
            expected = agent.call(tool, arguments)
            result = await client.call_tool(tool, arguments)
            assert not result.is_error
            assert timeless(result.structured_content) == timeless(expected), "nulls included"
            assert [block.type for block in result.content] == ["text"]
            assert said in result.content[0].text
            if surface == "workspace":
                assert result.content[0].text == expected["content"]
        told = client.instructions
    assert str(place.root) in told
    assert "approval" not in told, "the gate allows everything"
    assert len(told) < 1200


async def test_granular_tools_change_files(place: Place, speak: Any):
    place.put({"c.py": UNSORTED, "d.txt": "old\n"})
    async with speak(place) as client:
        edited = await client.call_tool("edit", {"path": "c.py", "edits": [{"find": "(os)", "replace": "(sys)"}]})
        fixed = await client.call_tool("lint", {"paths": ["c.py"], "fix": True})
        patched = await client.call_tool(
            "apply_patch", {"patch": "*** Begin Patch\n*** Update File: d.txt\n-old\n+new\n*** End Patch\n"}
        )
        formatted = await client.call_tool("format", {"paths": ["c.py"]})
    assert edited.structured_content["written"] == [{"path": "c.py", "kind": "modified"}]
    assert fixed.structured_content["counts"]["error"] == 0
    assert place.text("d.txt") == "new\n"
    assert "M  d.txt +1 -1" in patched.content[0].text
    assert formatted.structured_content["ok"]
    assert place.text("c.py") == "import sys\n\nprint(sys)\n"


async def test_a_workspace_session_lasts_as_long_as_the_client(place: Place, speak: Any):
    place.put({"e.txt": "one\n"})
    change = {"path": "e.txt", "old_string": "one", "new_string": "two"}
    async with speak(place, "--surface", "workspace") as client:
        unread = await client.call_tool("edit_file", change)
        await client.call_tool("read_file", {"path": "e.txt"})
        edited = await client.call_tool("edit_file", change)
        await client.call_tool("write_file", {"path": "deep/er/f.txt", "content": "x\n"})
    assert unread.structured_content["code"] == "E_DEV_NOT_READ"
    assert edited.content[0].text == "e.txt: edited\n"
    assert place.text("e.txt") == "two\n"
    assert place.text("deep/er/f.txt") == "x\n"


async def test_a_named_session_outlives_the_client(place: Place, speak: Any):
    place.put({"g.txt": "one\n"})
    async with speak(place, "--surface", "workspace", "--session", "kept") as client:
        await client.call_tool("read_file", {"path": "g.txt"})
    async with speak(place, "--surface", "workspace", "--session", "kept") as client:
        edited = await client.call_tool("edit_file", {"path": "g.txt", "old_string": "one", "new_string": "two"})
    assert not edited.is_error


REFUSALS: list[tuple[str, dict[str, Any], str, str]] = [
    ("no_such", {}, "E_DEV_UNKNOWN_STEP", "instead: read_lines"),
    ("check", {"paths": ["a.py"]}, "E_DEV_ENGINE_REQUIRED", "do not repeat the call"),
    ("edit", {"path": "a.py"}, "E_DEV_BAD_ARG", "'edits' is missing"),
    ("edit", {"path": "a.py", "edits": [{"find": "b", "replace": "c"}]}, "E_DEV_STEP_FAILED", "noMatch"),
    ("edit", {"path": "h.py", "edits": [{"find": "b", "replace": "c"}]}, "E_DEV_BAD_ARG", "h.py"),
    ("edit", {"path": "/etc/passwd", "edits": [{"find": "r", "replace": "c"}]}, "E_DEV_POLICY", "outsideRoot"),
    ("read_lines", {"path": "notes.txt", "start": 0}, "E_DEV_BAD_ARG", "correct the call and repeat it"),
]


@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_is_a_tool_error_with_its_data(place: Place, speak: Any, era: str):
    agent = place.agent()
    async with speak(place, era=era) as client:
        for tool, arguments, code, words in REFUSALS:
            expected = agent.refused(tool, arguments)
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert result.structured_content == expected
            assert expected["code"] == code
            assert result.content[0].text.startswith(code)
            assert words in result.content[0].text


async def test_findings_are_no_error_and_calls_run_at_the_same_time(place: Place, speak: Any):
    """isError is for error codes alone: a file that does not parse was linted well."""
    place.put({f"many/{number}.txt": "one\n" for number in range(20)} | {"broken.py": "def (:\n"})
    async with speak(place) as client:
        linted = await client.call_tool("lint", {"paths": ["broken.py"]})
        results = await asyncio.gather(
            *(
                client.call_tool("edit", {"path": f"many/{number}.txt", "edits": [{"find": "one", "replace": "two"}]})
                for number in range(20)
            )
        )
    assert linted.structured_content["counts"]["error"] > 0
    assert not linted.structured_content["ok"]
    assert not linted.is_error
    assert not [result for result in results if result.is_error]
    assert {place.text(f"many/{number}.txt") for number in range(20)} == {"two\n"}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
def test_the_older_protocols_get_the_text_and_nothing_of_the_newest(place: Place, raw: Any, version: str):
    bridge = raw(place)
    assert bridge.introduce(version)["result"]["protocolVersion"] == version
    result = bridge.request(1, "tools/call", name="read_lines", arguments={"path": "notes.txt", "start": 1, "end": 1})
    assert "--- notes.txt lines 1-1 of 3\none" in result["result"]["content"][0]["text"]
    assert set(result["result"]) == {"content", "structuredContent", "isError"}
    refused = bridge.request(2, "tools/call", name="edit", arguments={})
    assert refused["result"]["isError"] is True
    assert set(refused["result"]) == set(result["result"])
    assert bridge.end()[0] == 0
