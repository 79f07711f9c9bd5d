"""How a question ends, whoever answers it and whenever: late, lost, stale, expired, withdrawn, remembered, changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.place import ASK, Agent, Place, edit_of, op, until

RULES = """
[[gate.rules]]
name = "secrets"
step = "edit"
paths = ["SECRET.md"]
decision = "deny"
"""


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place]) -> Place:
    return new_place(ASK + RULES)


@pytest.fixture(autouse=True)
def visit(place: Place) -> Iterator[None]:
    yield from place.visit()


@pytest.fixture
def agent(place: Place) -> Agent:
    return place.agent("ada")


@pytest.fixture
def terminal(place: Place) -> Agent:
    """A person at a terminal who watches."""
    found = place.terminal()
    found.wire.request("devtools/approvals", {"watch": True})
    return found


def patch(*lines: str) -> dict[str, str]:
    return {"patch": "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])}


# -- nobody, somebody ----------------------------------------------------------------------------------------------


def test_with_nobody_there_it_is_declined_at_once_and_says_so(place: Place, agent: Agent):
    place.put({"a.txt": "a\n"})
    data = agent.refused("edit", edit_of("a.txt", "a", "b"))
    assert (data["code"], data["reason"], data["retry"]) == ("E_DEV_GATE_DECLINED", "noDecider", "no")
    assert "approvals --watch" in data["message"]
    data = agent.refused("write_file", {"path": "new.txt", "content": ""}, surface="workspace")
    assert (data["code"], data["reason"]) == ("E_DEV_GATE_DECLINED", "noDecider")
    assert set(place.tree()) == {"devtools.toml", "a.txt"}


def test_a_terminal_counts_only_while_it_watches(place: Place, agent: Agent):
    terminal = place.terminal()
    assert terminal.approvals() == []
    assert agent.refused("edit", edit_of("a.txt", "a", "b"))["reason"] == "noDecider"


def test_an_editor_is_listed_from_when_it_can_be_asked_until_it_cannot(place: Place, agent: Agent):
    """SPEC 8.0.9: whoever counts as somebody is in `status`, and nobody else is."""
    place.put({"a.txt": "a\n"})
    edit = edit_of("a.txt", "a", "b")
    wire = place.wire()
    hello = {"processId": None, "rootUri": place.root.as_uri(), "clientInfo": {"name": "Vim"}, "capabilities": {}}
    wire.request("initialize", hello)
    assert agent.status()["editors"] == []
    assert agent.refused("edit", edit)["reason"] == "noDecider"
    wire.notify("initialized", {})
    until(lambda: agent.status()["editors"], "the editor to be listed")
    assert agent.status()["editors"] == [{"name": "Vim", "version": ""}]
    asked = agent.begin("edit", edit)
    wire.request("devtools/decide", {"id": agent.waiting()[0]["id"], "approve": True})
    agent.wire.result(asked)
    wire.request("shutdown")
    assert agent.status()["editors"] == []
    assert agent.refused("edit", edit_of("a.txt", "b", "c"))["reason"] == "noDecider"


def test_reading_and_thinking_ask_nobody(place: Place, agent: Agent):
    place.put({"a.txt": "a\n"})
    assert agent.call("read_lines", {"path": "a.txt", "start": 1})["reads"]
    assert agent.ops(["a.txt"], op("edit", **edit_of("a.txt", "a", "b")))["unwritten"] == ["a.txt"]
    assert agent.call("grep", {"pattern": "a"}, surface="workspace")["ok"]
    assert agent.call("glob", {"pattern": "*"}, surface="workspace")["ok"]
    assert agent.call("read_file", {"path": "a.txt"}, surface="workspace")["ok"]


# -- what cannot land is not asked ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "asked"),
    [
        ("edit", edit_of("a.txt", "absent", "b"), "E_DEV_STEP_FAILED", ["acquire"]),
        ("edit", edit_of("twice.txt", "a", "b"), "E_DEV_STEP_FAILED", ["acquire"]),
        ("edit", edit_of("nowhere.txt", "a", "b"), "E_DEV_BAD_ARG", []),
        ("edit", edit_of("../a.txt", "a", "b"), "E_DEV_POLICY", []),
        ("edit", edit_of("/etc/hosts", "a", "b"), "E_DEV_POLICY", []),
        ("edit", edit_of("link.txt", "a", "b"), "E_DEV_POLICY", []),
        ("edit", edit_of("linked/a.txt", "a", "b"), "E_DEV_POLICY", []),
        ("edit", edit_of(".git/config", "a", "b"), "E_DEV_POLICY", []),
        ("edit", edit_of("devtools.toml", "a", "b"), "E_DEV_POLICY", []),
        ("apply_patch", patch("*** Add File: .git/hooks/pre-commit", "+x"), "E_DEV_POLICY", []),
        ("apply_patch", patch("*** Add File: ../x", "+x"), "E_DEV_POLICY", []),
        ("apply_patch", patch("*** Add File: linked/x", "+x"), "E_DEV_POLICY", []),
        ("apply_patch", patch("*** Add File: a.txt", "+x"), "E_DEV_STEP_FAILED", []),
        ("apply_patch", patch("*** Update File: a.txt", "@@", "-absent", "+x"), "E_DEV_STEP_FAILED", ["acquire"]),
        ("apply_patch", patch("*** Update File: a.txt", "*** Move to: .git/a", "@@", "-a", "+x"), "E_DEV_POLICY", []),
        ("apply_patch", {"patch": "*** Begin Patch\n*** Fly\n*** End Patch\n"}, "E_DEV_BAD_ARG", []),
    ],
)
def test_what_could_not_land_is_asked_of_nobody(
    place: Place, agent: Agent, terminal: Agent, tool: str, arguments: Any, code: str, asked: list[str]
):
    place.put({"a.txt": "a\n", "twice.txt": "a\na\n"})
    outside = place.base / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "a.txt").write_text("a\n")
    for name, target in (("link.txt", outside / "a.txt"), ("linked", outside)):
        if not (place.root / name).is_symlink():
            (place.root / name).symlink_to(target)
    before = place.activity(event="gate")
    tree = place.tree()
    assert agent.refused(tool, arguments)["code"] == code
    assert [entry["step"] for entry in place.activity(event="gate")[len(before) :]] == asked
    assert terminal.approvals() == []
    assert not terminal.wire.told("devtools/approvalRequested")
    assert place.tree() == tree
    assert sorted(path.name for path in outside.iterdir()) == ["a.txt"]


# -- endings -------------------------------------------------------------------------------------------------------


def test_what_is_approved_from_the_terminal_lands(place: Place, agent: Agent, terminal: Agent):
    place.put({"a.txt": "a\n"})
    call = agent.begin_edit("a.txt", "a", "b")
    (item,) = terminal.waiting()
    assert terminal.decide(item["id"], approve=True)["by"] == "terminal"
    assert agent.wire.result(call)["decision"]["by"] == "terminal"
    assert place.text("a.txt") == "b\n"


def test_the_note_of_a_denial_reaches_the_agent(place: Place, agent: Agent, terminal: Agent):
    place.put({"a.txt": "a\n"})
    call = agent.begin_edit("a.txt", "a", "b")
    (item,) = terminal.waiting()
    terminal.decide(item["id"], approve=False, note="use c instead")
    data = agent.error(call)
    assert (data["reason"], data["note"]) == ("denied", "use c instead")
    assert "use c instead" in data["message"]
    assert place.text("a.txt") == "a\n"


def test_the_first_answer_wins(place: Place, agent: Agent, terminal: Agent):
    place.put({"a.txt": "a\n"})
    others = [place.terminal() for _ in range(8)]
    call = agent.begin_edit("a.txt", "a", "b")
    (item,) = terminal.waiting()
    sent = [
        (other, other.wire.start("devtools/decide", {"id": item["id"], "approve": index % 2 == 0}))
        for index, other in enumerate(others)
    ]
    answers = [other.wire.result(request) for other, request in sent]
    assert [answer["applied"] for answer in answers].count(True) == 1
    assert len({answer["status"] for answer in answers}) == 1
    approved = answers[0]["status"] == "approved"
    answer = agent.wire.answer(call)
    assert ("result" in answer) == approved
    assert place.text("a.txt") == ("b\n" if approved else "a\n")
    assert len(terminal.wire.told("devtools/approvalResolved")) == 1


@pytest.mark.parametrize("leave", ["cancel", "vanish"])
def test_a_question_that_nobody_waits_for_is_withdrawn(place: Place, agent: Agent, terminal: Agent, leave: str):
    place.put({"a.txt": "a\n"})
    call = agent.begin_edit("a.txt", "a", "b")
    (item,) = terminal.waiting()
    if leave == "cancel":
        agent.wire.notify("$/cancelRequest", {"id": call})
        assert agent.error(call)["code"] == "E_DEV_CANCELLED"
    else:
        agent.wire.vanish()
    assert terminal.wire.wait_told("devtools/approvalResolved") == {
        "id": item["id"],
        "status": "withdrawn",
        "by": "agent",
    }
    assert terminal.decide(item["id"], approve=True)["status"] == "withdrawn"
    assert place.text("a.txt") == "a\n"
    until(lambda: len(place.activity(event="gate", plan=item["plan"])) == 2, "both questions to be in the log")


def test_a_file_that_changed_meanwhile_is_noticed(place: Place, agent: Agent, terminal: Agent):
    """P83: approved was another file; the person's own text stays."""
    place.put({"a.txt": "a\nb\n"})
    call = agent.begin_edit("a.txt", "a", "A")
    (item,) = terminal.waiting()
    place.put({"a.txt": "a\nmine\n"})
    decided = terminal.decide(item["id"], approve=True)
    assert (decided["status"], decided["applied"]) == ("stale", False)
    data = agent.error(call)
    assert (data["code"], data["reason"], data["retry"], data["paths"]) == ("E_DEV_CONFLICT", "stale", "yes", ["a.txt"])
    assert place.text("a.txt") == "a\nmine\n"


def test_a_file_that_appears_where_one_was_to_be_added(place: Place, agent: Agent, terminal: Agent):
    call = agent.begin("apply_patch", patch("*** Add File: later.txt", "+agent"))
    (item,) = terminal.waiting()
    place.put({"later.txt": "person\n"})
    assert terminal.decide(item["id"], approve=True)["status"] == "stale"
    assert agent.error(call)["code"] == "E_DEV_CONFLICT"
    assert place.text("later.txt") == "person\n"
    (place.root / "later.txt").unlink()


def test_the_watcher_notices_without_an_answer(place: Place, agent: Agent, terminal: Agent):
    place.put({"a.txt": "a\n"})
    call = agent.begin_edit("a.txt", "a", "A")
    terminal.waiting()
    place.put({"a.txt": "b\n"})
    assert terminal.wire.wait_told("devtools/approvalResolved")["status"] == "stale"
    assert agent.error(call)["code"] == "E_DEV_CONFLICT"


# -- more than yes and no -------------------------------------------------------------------------------------------


def test_hunks_may_be_dropped_and_rewritten(place: Place, agent: Agent, terminal: Agent):
    """8.0.10: what the person took is what is written, and the agent is told."""
    middle = "".join(f"{number}\n" for number in range(20))
    place.put({"h.txt": f"first\n{middle}second\n{middle}third\n"})
    edits = [{"find": name, "replace": name.upper()} for name in ("first", "second", "third")]
    call = agent.begin("edit", {"path": "h.txt", "edits": edits})
    (item,) = terminal.waiting()
    first, second, third = item["files"][0]["hunks"]
    text = third["text"].replace("+THIRD", "+3rd")
    terminal.decide(
        item["id"], approve=True, drop=[second["id"]], edited=[{"hunkId": third["id"], "text": text}], note="shorter"
    )
    result = agent.wire.result(call)
    assert result["decision"] == {
        "approved": True,
        "edited": [third["id"]],
        "dropped": [second["id"]],
        "note": "shorter",
        "by": "terminal",
    }
    assert place.text("h.txt") == f"FIRST\n{middle}second\n{middle}3rd\n"
    assert first["oldStart"] == 1


def test_a_whole_file_may_be_given_instead(place: Place, agent: Agent, terminal: Agent):
    place.put({"w.txt": "a\n"})
    call = agent.begin_edit("w.txt", "a", "b")
    (item,) = terminal.waiting()
    terminal.decide(item["id"], approve=True, edited=[{"path": "w.txt", "content": "mine\n"}])
    assert agent.wire.result(call)["decision"]["edited"] == ["w.txt"]
    assert place.text("w.txt") == "mine\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {"drop": ["nonsense"]},
        {"edited": [{"hunkId": "nonsense", "text": "+x\n"}]},
        {"edited": [{"path": "other.txt", "content": ""}]},
        {"approve": False, "remember": True},
    ],
)
def test_an_answer_that_does_not_fit_leaves_the_question_open(
    place: Place, agent: Agent, terminal: Agent, wrong: dict[str, Any]
):
    place.put({"w.txt": "a\n"})
    call = agent.begin_edit("w.txt", "a", "b")
    (item,) = terminal.waiting()
    error = terminal.wire.refused("devtools/decide", {"id": item["id"], "approve": True, **wrong})
    assert error["data"]["code"] == "E_DEV_BAD_ARG"
    assert [entry["id"] for entry in terminal.approvals()] == [item["id"]]
    terminal.decide(item["id"], approve=False)
    assert agent.error(call)["reason"] == "denied"
    assert place.text("w.txt") == "a\n"


# -- remembering ----------------------------------------------------------------------------------------------------


def test_one_prompt_for_a_patch_of_many_files_and_none_afterwards(place: Place, agent: Agent, terminal: Agent):
    """P88: remembered for the session and the directory; what is protected stays so, what always asks asks."""
    names = [f"many/{number}.txt" for number in range(6)]
    place.put({**dict.fromkeys(names, "a\n"), "many/package.json": "{}\n", "elsewhere.txt": "a\n"})
    lines = [line for name in names for line in (f"*** Update File: {name}", "@@", "-a", "+b")]
    call = agent.begin("apply_patch", patch(*lines))
    (item,) = terminal.waiting()
    assert [file["path"] for file in item["files"]] == names
    assert "many/" in item["rememberText"]
    assert "ada" in item["rememberText"]
    terminal.decide(item["id"], approve=True, remember=True)
    assert len(agent.wire.result(call)["written"]) == 6
    for name in names:
        assert "decision" not in agent.edit(name, "b", "c")
    agent.call("read_file", {"path": names[0]}, surface="workspace")
    replace = {"path": names[0], "old_string": "c", "new_string": "d"}
    assert agent.call("edit_file", replace, surface="workspace")["written"]
    assert agent.call("write_file", {"path": "many/new.txt", "content": "x\n"}, surface="workspace")["written"]
    assert len(terminal.wire.told("devtools/approvalRequested")) == 1
    rules = [rule for rule in agent.status()["gate"]["rules"] if rule["origin"] == "remembered"]
    assert [rule["name"] for rule in rules] == [item["rememberText"]]
    # Not these: another directory, a name that always asks, what is protected, another agent.
    for path, find in (("elsewhere.txt", "a"), ("many/package.json", "{}")):
        call = agent.begin_edit(path, find, "x")
        (item,) = terminal.waiting()
        terminal.decide(item["id"], approve=False)
        assert agent.error(call)["reason"] == "denied"
    assert (
        agent.refused("write_file", {"path": ".git/config", "content": ""}, surface="workspace")["code"]
        == "E_DEV_POLICY"
    )
    bob = place.agent("bob")
    call = bob.begin_edit("many/1.txt", "c", "x")
    (item,) = terminal.waiting()
    terminal.decide(item["id"], approve=False)
    assert bob.error(call)["reason"] == "denied"
    # It ends with the session, also for the same agent.
    agent.wire.close()
    again = place.agent("ada")
    call = again.begin_edit("many/1.txt", "c", "x")
    (item,) = terminal.waiting()
    terminal.decide(item["id"], approve=False)
    assert again.error(call)["reason"] == "denied"


def test_a_named_session_lasts_as_long_as_one_of_its_connections(place: Place, terminal: Agent):
    place.put({"s/a.txt": "a\n"})
    one, two = (place.agent("ada", session="work") for _ in range(2))
    call = one.begin_edit("s/a.txt", "a", "b")
    terminal.decide(terminal.waiting()[0]["id"], approve=True, remember=True)
    assert one.wire.result(call)["written"]
    one.wire.close()
    assert two.edit("s/a.txt", "b", "c")["written"]
    assert len(terminal.wire.told("devtools/approvalRequested")) == 1


def test_deny_beats_what_is_remembered(place: Place, agent: Agent, terminal: Agent):
    """P89."""
    place.put({"a.txt": "a\n", "SECRET.md": "a\n"})
    call = agent.begin_edit("a.txt", "a", "b")
    terminal.decide(terminal.waiting()[0]["id"], approve=True, remember=True)
    assert agent.wire.result(call)["written"]
    data = agent.refused("edit", edit_of("SECRET.md", "a", "b"))
    assert (data["code"], data["reason"]) == ("E_DEV_GATE_DECLINED", "denied")
    assert "secrets" in data["message"]
    assert place.text("SECRET.md") == "a\n"


def test_always_ask_names_cannot_be_remembered(place: Place, agent: Agent, terminal: Agent):
    place.put({"package.json": "{}\n"})
    call = agent.begin_edit("package.json", "{}", "[]")
    (item,) = terminal.waiting()
    assert item["rememberText"] is None
    error = terminal.wire.refused("devtools/decide", {"id": item["id"], "approve": True, "remember": True})
    assert error["data"]["code"] == "E_DEV_BAD_ARG"
    terminal.decide(item["id"], approve=True)
    assert agent.wire.result(call)["written"]


# -- what a person sees ---------------------------------------------------------------------------------------------


def test_every_changed_line_is_shown_and_what_is_invisible_is_marked(place: Place, agent: Agent, terminal: Agent):
    """P87."""
    before = "".join(f"old {number}\n" for number in range(500))
    after = "".join(f"new {number}\n" for number in range(499)) + "hidden \u202e\u200b\n"
    place.put({"long.txt": before})
    editor = place.editor()
    call = agent.begin("write_file", {"path": "long.txt", "content": after}, surface="workspace")
    shown = editor.wire.wait_told("devtools/approvalRequested")
    text = "".join(hunk["text"] for file in shown["files"] for hunk in file["hunks"])
    removed = "".join(line[1:] + "\n" for line in text.split("\n") if line.startswith("-"))
    added = "".join(line[1:] + "\n" for line in text.split("\n") if line.startswith("+"))
    assert (removed, added) == (before, after)
    mark = editor.wait_mark("long.txt")
    assert "+500 -500" in mark["message"]
    assert "U+202E" in mark["message"]
    terminal.decide(shown["id"], approve=False)
    assert agent.error(call)["reason"] == "denied"


def test_deletions_and_moves_are_shown_as_such(place: Place, agent: Agent):
    editor = place.editor()
    place.put({"gone.txt": "a\n", "old.txt": "a\nb\n"})
    call = agent.begin(
        "apply_patch",
        patch("*** Delete File: gone.txt", "*** Update File: old.txt", "*** Move to: sub/new.txt", "@@", "-a", "+A"),
    )
    shown = editor.wire.wait_told("devtools/approvalRequested")
    assert [(file["kind"], file.get("from"), file["path"]) for file in shown["files"]] == [
        ("deleted", None, "gone.txt"),
        ("renamed", "old.txt", "sub/new.txt"),
    ]
    assert (shown["targets"], shown["mayCreate"]) == (["gone.txt", "old.txt", "sub/new.txt"], ["sub/new.txt"])
    assert "DELETE" in editor.wait_mark("gone.txt")["message"]
    assert "sub/new.txt" in editor.wait_mark("old.txt")["message"]
    editor.choose("old.txt", "Approve")
    assert agent.wire.result(call)["written"] == [
        {"path": "sub/new.txt", "kind": "renamed", "from": "old.txt"},
        {"path": "gone.txt", "kind": "deleted"},
    ]
    landed = editor.wire.wait_told("devtools/landed")["files"]
    assert {"path": "gone.txt", "kind": "deleted", "ranges": []} in landed
    assert {"path": "sub/new.txt", "kind": "renamed", "from": "old.txt", "ranges": [{"start": 1, "end": 1}]} in landed


def test_show_diff_decides_nothing(place: Place, agent: Agent, terminal: Agent):
    """P85: looking, and closing what was looked at, leaves the question where it was."""
    place.put({"a.txt": "a\n"})
    editor = place.editor(window={"showDocument": {"support": True}})
    opened: list[Any] = []
    editor.wire.answers["window/showDocument"] = lambda params: opened.append(params) or {"success": True}
    call = agent.begin_edit("a.txt", "a", "b")
    editor.choose("a.txt", "Show diff")
    until(lambda: opened, "the diff to be opened")
    assert terminal.waiting()
    editor.choose("a.txt", "Remember and approve")
    assert agent.wire.result(call)["written"]


def test_a_write_that_writes_nothing_asks_nobody(place: Place, agent: Agent, terminal: Agent):
    """There is nothing that a person could approve; the question is in the log all the same."""
    place.put({"a.txt": "a\n"})
    result = agent.ops(["a.txt"], op("write"))
    assert result["written"] == []
    assert [line["step"] for line in place.activity(event="gate", plan=result["plan"])] == ["acquire", "write"]
    same = agent.call("write_file", {"path": "a.txt", "content": "a\n"}, surface="workspace")
    assert same["written"] == []
    assert not terminal.wire.told("devtools/approvalRequested")


def test_an_empty_file_is_something(place: Place, agent: Agent, terminal: Agent):
    call = agent.begin("write_file", {"path": "empty.txt", "content": ""}, surface="workspace")
    (item,) = terminal.waiting()
    assert [(file["path"], file["kind"], file["hunks"]) for file in item["files"]] == [("empty.txt", "added", [])]
    terminal.decide(item["id"], approve=True)
    assert agent.wire.result(call)["written"] == [{"path": "empty.txt", "kind": "added"}]
    assert place.text("empty.txt") == ""


# -- what a person took, also of an undo and of a command -----------------------------------------------------------

NUMBERS = "".join(f"{number}\n" for number in range(1, 21))


def undone(agent: Agent, terminal: Agent, plan: str, choose: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Undo a plan as a person takes it: `choose` makes an answer of the approval's files by path."""
    request = agent.wire.start("devtools/undo", {"plan": plan})
    (item,) = terminal.waiting()
    terminal.decide(item["id"], approve=True, **choose({file["path"]: file for file in item["files"]}))
    return agent.wire.result(request)


def changed_everything(place: Place, agent: Agent, terminal: Agent) -> str:
    """A plan that edits a file in two places, moves one, deletes one and makes one."""
    place.put({"numbers.txt": NUMBERS, "moved.txt": "m\n", "gone.txt": "g\n"})
    call = agent.begin(
        "apply_patch",
        patch(
            *("*** Update File: numbers.txt", "@@", "-2", "+two", "@@", "-19", "+nineteen"),
            *("*** Update File: moved.txt", "*** Move to: there.txt", "@@", "-m", "+M"),
            *("*** Delete File: gone.txt", "*** Add File: made.txt", "+new"),
        ),
    )
    (item,) = terminal.waiting()
    terminal.decide(item["id"], approve=True)
    return agent.wire.result(call)["plan"]


def test_of_an_undo_a_person_may_drop_parts_and_give_texts(place: Place, agent: Agent, terminal: Agent):
    """8.0.10: what the decision says was taken is what is written."""
    plan = changed_everything(place, agent, terminal)

    def choose(files: dict[str, Any]) -> dict[str, Any]:
        first, _ = files["numbers.txt"]["hunks"]
        dropped = [first["id"], files["made.txt"]["hunks"][0]["id"], files["moved.txt"]["hunks"][0]["id"]]
        return {"drop": dropped, "edited": [{"path": "gone.txt", "content": "mine\n"}], "note": "not all"}

    result = undone(agent, terminal, plan, choose)
    assert place.text("numbers.txt") == NUMBERS.replace("\n2\n", "\ntwo\n")
    assert place.text("made.txt") == "new\n"
    assert place.text("moved.txt") == "M\n"
    assert place.text("gone.txt") == "mine\n"
    assert not (place.root / "there.txt").exists()
    assert result["decision"]["edited"] == ["gone.txt"]
    assert len(result["decision"]["dropped"]) == 3
    assert (result["decision"]["by"], result["decision"]["note"]) == ("terminal", "not all")
    assert {(entry["path"], entry["kind"]) for entry in result["written"]} == {
        ("moved.txt", "renamed"),
        ("numbers.txt", "modified"),
        ("gone.txt", "added"),
    }


def test_an_undo_of_which_nothing_is_taken_changes_nothing_and_can_be_asked_again(
    place: Place, agent: Agent, terminal: Agent
):
    place.put({"once.txt": "a\n"})
    call = agent.begin_edit("once.txt", "a", "b")
    terminal.decide(terminal.waiting()[0]["id"], approve=True)
    plan = agent.wire.result(call)["plan"]
    result = undone(agent, terminal, plan, lambda files: {"drop": [files["once.txt"]["hunks"][0]["id"]]})
    assert (result["written"], result["changes"], place.text("once.txt")) == ([], [], "b\n")
    assert undone(agent, terminal, plan, lambda _: {})["written"] == [{"path": "once.txt", "kind": "modified"}]
    assert place.text("once.txt") == "a\n"


def test_a_text_that_no_file_can_hold_is_refused_and_the_question_stays(place: Place, agent: Agent, terminal: Agent):
    place.put({"t.txt": "a\n"})
    call = agent.begin_edit("t.txt", "a", "b")
    (item,) = terminal.waiting()
    edited = [{"path": "t.txt", "content": "a\0\n"}]
    error = terminal.wire.refused("devtools/decide", {"id": item["id"], "approve": True, "edited": edited})
    assert (error["data"]["code"], error["data"]["reason"]) == ("E_DEV_BAD_ARG", "malformed")
    terminal.decide(item["id"], approve=True)
    assert agent.wire.result(call)["written"]


def test_what_a_person_said_of_a_command_reaches_the_agent(place: Place, agent: Agent, terminal: Agent):
    call = agent.begin("bash", {"command": "true"}, surface="workspace")
    terminal.decide(terminal.waiting()[0]["id"], approve=True, note="this once")
    decision = agent.wire.result(call)["decision"]
    assert decision == {"approved": True, "edited": [], "dropped": [], "by": "terminal", "note": "this once"}


def test_times_are_in_utc_and_ids_are_of_one_run(place: Place, agent: Agent, terminal: Agent):
    place.put({"a.txt": "a\n"})
    call = agent.begin_edit("a.txt", "a", "b")
    (item,) = terminal.waiting()
    assert re.fullmatch(r"[0-9a-f]{8}-[1-9][0-9]*", item["id"])
    terminal.decide(item["id"], approve=False)
    assert agent.error(call)["reason"] == "denied"


# -- over time ------------------------------------------------------------------------------------------------------


def test_an_expiry_is_told_to_everybody(place: Place, agent: Agent):
    """P91: not applied, and not silent."""
    place.reconfigure(ASK + "timeout_s = 0.3\n" + RULES)
    place.put({"a.txt": "a\n"})
    editor = place.editor()
    data = agent.refused("edit", edit_of("a.txt", "a", "b"))
    assert (data["code"], data["reason"]) == ("E_DEV_GATE_DECLINED", "expired")
    assert "not approved in time" in data["message"]
    resolved = editor.wire.wait_told("devtools/approvalResolved")
    assert (resolved["status"], resolved["by"]) == ("expired", "clock")
    assert "Nobody answered in time" in editor.wire.wait_told("window/showMessage")["message"]
    until(lambda: not editor.marks("a.txt"), "the mark to go")
    late = place.terminal().decide(resolved["id"], approve=True)
    assert (late["status"], late["applied"]) == ("expired", False)
    assert place.text("a.txt") == "a\n"


def test_it_may_wait_for_somebody_to_come(place: Place, agent: Agent):
    """no_editor = "wait": the question waits, and whoever comes is offered it."""
    place.reconfigure(ASK + 'no_editor = "wait"\n' + RULES)
    place.put({"a.txt": "a\n"})
    call = agent.begin_edit("a.txt", "a", "b")
    until(place.terminal().approvals, "the question to wait")
    place.editor().choose("a.txt", "Approve")
    assert agent.wire.result(call)["written"]
    assert place.text("a.txt") == "b\n"


def test_a_rule_that_comes_later_does_not_answer_what_waits_already(place: Place, agent: Agent, terminal: Agent):
    place.reconfigure(ASK + RULES)
    place.put({"a.txt": "a\n"})
    call = agent.begin_edit("a.txt", "a", "b")
    (item,) = terminal.waiting()
    place.reconfigure('[gate]\nmode = "allow"\n')
    assert [entry["id"] for entry in terminal.approvals()] == [item["id"]]
    assert agent.edit("a.txt", "a", "c")["written"]
    assert terminal.wire.wait_told("devtools/approvalResolved")["status"] == "stale"
    assert agent.error(call)["code"] == "E_DEV_CONFLICT"


def test_mode_deny_refuses_what_would_be_asked(place: Place, agent: Agent, terminal: Agent):
    place.reconfigure('[gate]\nmode = "deny"\n')
    place.put({"a.txt": "a\n"})
    assert agent.refused("edit", edit_of("a.txt", "a", "b"))["reason"] == "denied"
    assert agent.refused("bash", {"command": "true"}, surface="workspace")["reason"] == "denied"
    assert agent.call("read_lines", {"path": "a.txt", "start": 1})["ok"]
    assert not terminal.wire.told("devtools/approvalRequested")


def test_mode_allow_still_asks_about_names_that_always_ask(place: Place, agent: Agent, terminal: Agent):
    """P61: whatever is allowed, some names are refused and some are asked about."""
    place.reconfigure('[gate]\nmode = "allow"\n')
    place.put({"a.txt": "a\n", "package.json": "{}\n"})
    assert agent.edit("a.txt", "a", "b")["written"]
    for path in (".vscode/tasks.json", ".git/hooks/pre-commit", ".exrc", ".nvim.lua", ".envrc", ".husky/pre-commit"):
        data = agent.refused("write_file", {"path": path, "content": "x"}, surface="workspace")
        assert (data["code"], data["reason"], data["path"]) == ("E_DEV_POLICY", "protected", path)
    for path in ("package.json", "sub/Cargo.toml", ".github/workflows/ci.yml", "poetry.lock"):
        call = agent.begin("write_file", {"path": path, "content": "x"}, surface="workspace")
        (item,) = terminal.waiting()
        assert [file["path"] for file in item["files"]] == [path]
        terminal.decide(item["id"], approve=False)
        assert agent.error(call)["reason"] == "denied"
    assert place.text("package.json") == "{}\n"
