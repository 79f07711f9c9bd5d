"""The bridge's own words and addresses, without a daemon."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devtools_lsp.errors import BadArgumentError
from devtools_lsp.mcp_bridge import words


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Claude Code", "Claude Code"),
        (None, "mcp"),
        ("", "mcp"),
        (" \n\t", "mcp"),
        ("a\x1b[2Kb", "a [2Kb"),
        ("evil\u202egnp.exe", "evil gnp.exe"),
        ("x" * 500, "x" * 128),
        (7, "mcp"),
    ],
)
def test_an_agents_name_is_fit_to_be_shown(given: object, name: str):
    assert words.agent(given, "1.0") == (name, "1.0")


@pytest.mark.parametrize(
    ("uri", "handle", "filters"),
    [
        ("devtools://artifact/aB-_9", "aB-_9", {}),
        ("devtools://artifact/h?offset=5&limit=2", "h", {"offset": 5, "limit": 2}),
        ("devtools://artifact/h?path=a%20b/%C3%A4.py&severity=error", "h", {"path": "a b/ä.py", "severity": "error"}),
        ("devtools://artifact/h?engineId=ruff", "h", {"engine_id": "ruff"}),
        ("devtools://artifact/h?engineId=", "h", {"engine_id": None}),
    ],
)
def test_an_address_is_read(uri: str, handle: str, filters: dict[str, Any]):
    assert words.read_artifact_uri(uri) == words.ArtifactAddress(handle, filters)


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("file:///etc/passwd", "no such resource"),
        ("devtools://artifact/", "no such resource"),
        ("devtools://artifact/a/b", "no such resource"),
        ("devtools://other/a", "no such resource"),
        ("devtools://artifact/h?offset=-1", "whole number"),
        ("devtools://artifact/h?limit=٣", "whole number"),
        ("devtools://artifact/h?severity=bad", "error, warning or info"),
        ("devtools://artifact/h?other=1", "the filters are"),
    ],
)
def test_an_address_that_is_none_is_refused(uri: str, told: str):
    with pytest.raises(BadArgumentError, match=told):
        words.read_artifact_uri(uri)


def test_a_page_says_where_it_is_and_how_to_go_on():
    page = {"items": [{"message": "ä"}, {"message": "b"}], "offset": 4, "total": 9, "nextOffset": 6}
    body = json.loads(words.page_text("devtools://artifact/h?offset=4&path=a%20b.py", page))
    assert body["note"] == "items 5 to 6 of 9; read devtools://artifact/h?path=a+b.py&offset=6 for the next"
    assert words.read_artifact_uri(body["next"]).filters == {"path": "a b.py", "offset": 6}
    assert body["items"] == page["items"]
    last = json.loads(words.page_text("devtools://artifact/h", {"items": [], "offset": 0, "total": 0}))
    assert last == {"note": "no items here; 0 in all", "offset": 0, "total": 0, "items": []}


@pytest.mark.parametrize(
    ("tools", "gate", "said", "unsaid"),
    [
        (
            ["read_lines", "edit", "lint", "check"],
            "editor",
            ["run lint and check", "approval"],
            ["dev_plan", "read-only"],
        ),
        (["read_lines", "edit"], "allow", ["as a whole"], ["approval", "not judged", "Then run"]),
        (["dev_plan"], "editor", ["without a write step", "approval", "not judged"], ["read_file"]),
        (["read_file", "edit_file", "bash"], "deny", ["read_file before edit_file"], ["approval", "dev_plan"]),
        (["read_file", "glob", "grep"], "editor", ["read-only"], ["approval", "edit_file"]),
    ],
)
def test_instructions_are_about_what_is_offered(tools: list[str], gate: str, said: list[str], unsaid: list[str]):
    text = words.instructions("/work", [{"name": name} for name in tools], gate, "another version")
    assert text.startswith("Tools for the repository at /work;")
    assert text.endswith("another version")
    assert [part for part in said if part not in text] == []
    assert [part for part in unsaid if part in text] == []
