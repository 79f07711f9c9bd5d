"""What the bridge offers beside calls: lists that follow the configuration, artifacts, and nothing else on stdout."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from devtools_lsp import mcp_bridge
from devtools_lsp.errors import InvalidConfigError
from tests.e2e.place import ALLOW, RUFF, Place

FINDINGS = 450
UNUSED = "".join(f"import module_{number:04}\n" for number in range(FINDINGS // 2)) * 2


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place]) -> Place:
    return new_place(ALLOW + RUFF, {"a.py": UNUSED, "b.py": "import os\n", "ruff.toml": 'lint.select = ["F401"]\n'})


def names(listed: Any) -> list[str]:
    return [tool.name for tool in listed.tools]


async def test_lists_follow_the_configuration(new_place: Callable[..., Place], speak: Any, soon: Any):
    place = new_place(ALLOW)
    told: list[Any] = []
    async with speak(place, told=told) as old, speak(place, era="auto") as new:
        assert names(await old.list_tools()) == ["read_lines", "edit", "apply_patch"]
        assert names(await new.list_tools()) == ["read_lines", "edit", "apply_patch"]
        async with new.listen(tools_list_changed=True) as subscription:
            place.configure(ALLOW + RUFF)
            await soon(lambda: told, "the notification")
            async with asyncio.timeout(20):
                event = await anext(aiter(subscription))
        assert [message.method for message in told] == ["notifications/tools/list_changed"]
        assert type(event).__name__ == "ToolsListChanged"
        assert names(await old.list_tools()) == ["read_lines", "edit", "apply_patch", "format", "lint"]
        assert names(await new.list_tools()) == ["read_lines", "edit", "apply_patch", "format", "lint"]
        # A change that changes no tool is none to tell of.
        place.configure(ALLOW + RUFF + "[reply]\ninline_tokens = 100\n")
        place.configure(ALLOW + RUFF + "[workspace]\nread_only = true\n")
        await soon(lambda: len(told) == 2, "the second notification")
        assert names(await old.list_tools()) == ["read_lines", "lint"]


async def test_artifacts_are_resources_in_pages(place: Place, speak: Any):
    async with speak(place) as client:
        result = await client.call_tool("lint", {"paths": ["*.py"]})
        content = result.structured_content
        assert content["truncated"]
        uri = f"devtools://artifact/{content['artifact']['handle']}"
        assert f"the whole of it: resource {uri}" in result.content[0].text
        listed = (await client.list_resources()).resources
        assert [(entry.uri, entry.mime_type) for entry in listed] == [(uri, "application/json")]
        assert str(content["artifact"]["total"]) in listed[0].title
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "devtools://artifact/{handle}{?path,severity,engineId,offset,limit}"

        seen: list[dict[str, Any]] = []
        following: str | None = uri
        while following is not None:
            (page,) = (await client.read_resource(following)).contents
            assert page.uri == following
            body = json.loads(page.text)
            assert body["offset"] == len(seen)
            seen += body["items"]
            assert f"of {content['artifact']['total']:,}" in body["note"]
            following = body.get("next")
            assert following is None or following in body["note"]
        assert len(seen) == content["artifact"]["total"] == content["counts"]["warning"] + content["counts"]["error"]

        (page,) = (await client.read_resource(f"{uri}?path=b.py&severity=error&limit=5")).contents
        filtered = json.loads(page.text)
        assert {item["path"] for item in filtered["items"]} <= {"b.py"}
        (page,) = (await client.read_resource(f"{uri}?engineId=&limit=5")).contents
        assert json.loads(page.text)["items"] == [], "the runtime itself had nothing to say"
        (page,) = (await client.read_resource(f"{uri}?path=a.py&limit=3&offset=2")).contents
        assert json.loads(page.text)["next"] == f"{uri}?path=a.py&limit=3&offset=5"

        for wrong, told in [
            ("devtools://artifact/nothing", "unknown or has expired"),
            ("devtools://elsewhere/x", "no such resource"),
            (f"{uri}?limit=many", "must be a whole number"),
            (f"{uri}?colour=red", "unknown filter"),
        ]:
            with pytest.raises(MCPError) as refused:
                await client.read_resource(wrong)
            assert told in refused.value.message
            assert refused.value.data["code"] == "E_DEV_BAD_ARG"


def test_nothing_but_messages_on_stdout_and_an_answer_to_everything(place: Place, raw: Any):
    bridge = raw(place)
    bridge.send(b"not json at all\n", b'{"jsonrpc": "2.0"}\n', b"\n")
    assert [bridge.receive()["error"]["code"] for _ in range(2)] == [-32700, -32600]
    greeting = bridge.introduce(name="\x1b[31mred\u202e" + "x" * 300)
    assert greeting["result"]["serverInfo"]["name"] == "devtools-lsp"
    agents = [agent["name"] for agent in place.terminal().status()["agents"]]
    assert "[31mred " + "x" * 120 in agents, "what could deceive is taken out of the name"
    # One write of half a request, then the rest with the next one.
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
    body = json.dumps({**call, "params": {"name": "read_lines", "arguments": {"path": "b.py", "start": 1}}}).encode()
    bridge.send(body[:40])
    bridge.send(body[40:] + b"\n" + json.dumps({"jsonrpc": "2.0", "id": 8, "method": "no/such"}).encode() + b"\n")
    answers = {answer["id"]: answer for answer in (bridge.receive(), bridge.receive())}
    assert "import os" in answers[7]["result"]["content"][0]["text"]
    assert answers[8]["error"]["code"] == -32601
    code, rest, faults = bridge.end()
    assert (code, rest) == (0, b""), faults


def test_a_root_at_fault_is_refused_on_stderr(place: Place):
    done = place.cli("mcp", "--root", str(place.base / "nowhere"), rooted=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert json.loads(done.stderr)["code"] == "E_INVALID_DEV_PIPELINE_CONFIG"


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mcp_bridge, "find_spec", lambda _name: None)
    with pytest.raises(InvalidConfigError, match=r"pip install 'devtools-lsp\[mcp\]'"):
        mcp_bridge.require_sdk()


def test_no_other_command_pays_for_the_sdk():
    script = (
        "import sys, devtools_lsp.cli, devtools_lsp.client, devtools_lsp.daemon.serving, devtools_lsp.stdio_proxy\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'mcp', 'mcp_types', 'anyio', 'starlette'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"anyio"}, "watchfiles needs anyio"
