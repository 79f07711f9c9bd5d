"""Editors with views of their own: no question in a message, and the words and texts that they show."""

from __future__ import annotations

from typing import Any

import pytest

from devtools_lsp.daemon.approval_choice import DiffParams, shown_document
from devtools_lsp.daemon.approval_words import fitting, wire_size
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.errors import BadArgumentError

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
        ("hunks", {"id", "headline", "details", "files"}),
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


NUMBERS = "".join(f"{number}\n" for number in range(1, 41))


async def test_what_the_rest_would_make_is_shown_while_hunks_are_left_out(daemon: Any):
    """I5: the texts that a person sees while choosing are those that their choice writes."""
    await daemon.editor(initializationOptions=OWN_VIEWS)
    disk = Disk(daemon.gate.root)
    daemon.gate.put({"a.py": NUMBERS})
    changed = NUMBERS.replace("5\n6\n", "five\nfive and a half\n6\n", 1).replace("20\n", "", 1).replace("35\n", "35!\n")
    daemon.gate.edit("a.py", changed)
    approval = await daemon.gate.waiting()
    first, second, third = (hunk.id for hunk in approval.shown.files[0].hunks)

    def shown(*drop: str, part: Any = "texts") -> dict[str, Any]:
        return shown_document(approval, disk, DiffParams(approval.id, part=part, drop=drop))

    def places(document: dict[str, Any]) -> list[tuple[Any, ...]]:
        keys = ("id", "dropped", "start", "lines", "added", "removed", "summary")
        return [tuple(hunk[key] for key in keys) for hunk in document["files"][0]["hunks"]]

    whole = shown()
    assert whole["files"][0]["after"] == changed
    assert places(whole) == places(shown(part="hunks"))
    assert places(whole) == [
        (first, False, 5, 2, 2, 1, "+five"),
        (second, False, 21, 0, 0, 1, "-20"),
        (third, False, 35, 1, 1, 1, "+35!"),
    ]
    left = shown(first)
    assert left["files"][0]["after"] == NUMBERS.replace("20\n", "", 1).replace("35\n", "35!\n")
    assert places(left) == [
        (first, True, 5, 1, 2, 1, "+five"),
        (second, False, 20, 0, 0, 1, "-20"),
        (third, False, 34, 1, 1, 1, "+35!"),
    ]
    assert left["diff"].count("@@ -") == 2
    assert "@@ -32,7 +31,7 @@" in left["diff"]
    text = shown(first, second, part="text")["text"]
    assert "# left out: 2 of 3 hunks\n" in text
    assert "+five" not in text
    assert shown(first, second, third)["files"][0]["after"] == NUMBERS
    with pytest.raises(BadArgumentError, match="has no hunk 'h9'"):
        shown("h9")


async def test_an_addition_of_which_nothing_is_left_makes_no_file_and_a_deletion_keeps_one(daemon: Any):
    await daemon.editor(initializationOptions=OWN_VIEWS)
    disk = Disk(daemon.gate.root)
    daemon.gate.put({"gone.py": "1\n2\n"})
    daemon.gate.ask("apply_patch", [daemon.gate.change("new.py", "n\n"), daemon.gate.change("gone.py", None)])
    approval = await daemon.gate.waiting()
    drop = tuple(hunk.id for file in approval.shown.files for hunk in file.hunks)
    for dropped, wanted in (((), {"new.py": "n\n", "gone.py": None}), (drop, {"new.py": None, "gone.py": "1\n2\n"})):
        document = shown_document(approval, disk, DiffParams(approval.id, drop=dropped))
        assert {file["path"]: file["after"] for file in document["files"]} == wanted


async def test_a_diff_that_does_not_fit_says_what_is_missing_and_still_arrives(daemon: Any, eventually: Any):
    """Wide characters and line ends count as on the wire: the frame holds what is sent."""
    own = await daemon.editor(initializationOptions=OWN_VIEWS)
    text = "".join(f"{number:07d} {'界' * 40}\t{chr(1)}\n" for number in range(60_000))
    daemon.gate.ask("write_file", [daemon.gate.change("big.txt", text)], args={"path": "big.txt"})
    approval = await daemon.gate.waiting()
    result = await own.run({"command": "devtools.showDiff", "arguments": [{"id": approval.id}]})
    assert result == {"id": approval.id, "shown": "notification"}
    await eventually(lambda: own.told("devtools/showDiff"))
    (shown,) = own.told("devtools/showDiff")
    lines = shown["text"].split("\n")
    said = next(line for line in lines if line.startswith("# NOT ALL IS SHOWN: "))
    count = int(said.removeprefix("# NOT ALL IS SHOWN: ").split()[0])
    assert f"{count} of 60005 lines" in said
    assert len(shown["text"].split("\n\n", 1)[1].splitlines()) == count
    assert 5_000_000 < wire_size(shown["text"]) < 7_000_000
    assert len(fitting("界" * 4_000_000, 6_000_000)) == 1_000_000
    assert fitting("a\nb\n" * 10, 13) == "a\nb\n" * 2
