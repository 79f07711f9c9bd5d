"""Editors with views of their own: no question in a message, and the words and texts that they show."""

from __future__ import annotations

from typing import Any

import pytest

from devtools_lsp.daemon.approval_choice import DiffParams, shown_document
from devtools_lsp.daemon.disk import Disk

OWN_VIEWS = {"devtools": {"showDiff": True, "approvals": True}}


async def test_an_editor_that_shows_approvals_itself_is_asked_nothing_in_a_message(daemon: Any, eventually: Any):
    plain = await daemon.editor()
    own = await daemon.editor(initializationOptions=OWN_VIEWS)
    choices = iter([None])
    plain.answers["window/showMessageRequest"] = lambda params: next(choices)
    asked = daemon.gate.ask("bash", args={"command": "make"}, targets=[])
    approval = await daemon.gate.waiting()
    await eventually(lambda: plain.asked and own.told("devtools/approvalRequested"))
    assert own.told("devtools/approvalRequested")[0]["id"] == approval.id
    decided = await own.request("devtools/decide", {"id": approval.id, "approve": True})
    assert decided["applied"]
    assert (await asked.task).approved
    assert [method for method, _ in own.asked] == []


@pytest.mark.parametrize(
    ("part", "keys"),
    [
        ("words", {"id", "headline", "details"}),
        ("text", {"id", "headline", "details", "text"}),
        ("texts", {"id", "headline", "details", "diff", "files", "invisible"}),
    ],
)
async def test_a_person_is_shown_as_much_as_was_asked_for(daemon: Any, eventually: Any, part: Any, keys: set[str]):
    await daemon.editor()
    daemon.gate.put({"a.py": "one\n"})
    daemon.gate.edit("a.py", "two\n")
    approval = await daemon.gate.waiting()
    await eventually(lambda: not approval.shown.pending)
    document = shown_document(approval, Disk(daemon.gate.root), DiffParams(approval.id, part=part))
    assert document.keys() == keys
    assert document["headline"] == "claude wants to edit a.py (+1 -1)"
    assert document["details"] == ["introduces and resolves nothing"]
    assert "+two" in document.get("text", document.get("diff", "+two"))


async def test_invisible_characters_of_a_command_are_written_out_in_its_words(daemon: Any):
    own = await daemon.editor(initializationOptions=OWN_VIEWS)
    assert own is not None
    daemon.gate.ask("bash", args={"command": "echo \u202egnp.sh"}, targets=[])
    approval = await daemon.gate.waiting()
    headline = shown_document(approval, Disk(daemon.gate.root), DiffParams(approval.id, part="words"))["headline"]
    assert "\u202e" not in headline
    assert "U+202E" in headline
