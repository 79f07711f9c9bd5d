"""Everybody at once: two editors of different encodings and two agents, over both transports, with real engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.place import ASK, BASEDPYRIGHT, RUFF, Agent, Editor, Place, edit_of, op, until

UNITS = {"utf-8": 16, "utf-16": 14, "utf-32": 13}
"""Where `undefined_name` starts in `FACE`, in the units of an encoding, counted from 0."""
FACE = "x = '😀'; y = undefined_name\n"
LIBRARY = "def area(side: int) -> int:\n    return side * side\n"
USE = "from library import area\n\nprint(area(3))\n"
PROJECT = {"face.py": FACE, "library.py": LIBRARY, "use.py": USE, "one.txt": "one\n", "two.txt": "two\n"}

PATIENT = ASK + "preview_deadline_s = 20\n"
ENGINES = RUFF + BASEDPYRIGHT
SAFE = """
[[gate.rules]]
name = "safe"
step = "edit"
decision = "allow"
no_new_errors = true
max_changed_lines = 3
"""


@pytest.fixture(scope="module")
def place(new_place: Callable[..., Place], engines: None) -> Place:
    return new_place(PATIENT + ENGINES, PROJECT)


@dataclass
class Company:
    """Who is there: `first` decides in this test, `second` watches; `ada` and `bob` are agents."""

    place: Place
    first: Editor
    second: Editor
    ada: Agent
    bob: Agent

    @property
    def editors(self) -> tuple[Editor, Editor]:
        return self.first, self.second


BOTH = pytest.mark.parametrize("company", ["socket", "stdio"], indirect=True)
"""The deciding editor comes over one transport and the watching one over the other, and the other way round."""


@pytest.fixture
def company(place: Place, request: pytest.FixtureRequest) -> Iterator[Company]:
    """The first editor comes over the transport of the test's name, by default the proxy, the other over the other."""
    transport = getattr(request, "param", "stdio")
    visit = place.visit()
    next(visit)
    place.put(PROJECT)
    over_stdio, over_socket = place.editor("utf-16", "utf-32", wire=place.stdio()), place.editor("utf-8")
    first, second = (over_stdio, over_socket) if transport == "stdio" else (over_socket, over_stdio)
    ada = place.agent("ada", surface="composite", wire=place.stdio() if hasattr(request, "param") else None)
    yield Company(place, first, second, ada, place.agent("bob"))
    next(visit, None)


def findings(editor: Editor, path: str) -> list[dict[str, Any]]:
    return [entry for entry in editor.shown(path) if entry.get("code") != "approval"]


def steps(place: Place, plan: str) -> list[tuple[str, str, str]]:
    return [(line["step"], line["verdict"], line["by"]) for line in place.activity(event="gate", plan=plan)]


@BOTH
def test_encodings_differ(company: Company):
    assert {editor.encoding for editor in company.editors} == {"utf-8", "utf-16"}


@BOTH
def test_findings_reach_every_editor_in_its_own_units(company: Company):
    result = company.bob.call("check", {"paths": ["face.py"]})
    found = next(entry for entry in result["diagnostics"] if entry["rule"] == "reportUndefinedVariable")
    assert (found["line"], found["column"], found["endColumn"]) == (1, 14, 28)
    assert found["outOfScope"] is False
    company.ada.call("lint", {"paths": ["face.py"]}, surface="granular")
    for editor in company.editors:
        until(
            lambda editor=editor: {e["source"] for e in findings(editor, "face.py")} == {"ruff", "basedpyright"},
            "both engines' findings",
        )
        shown = {entry["code"]: entry for entry in findings(editor, "face.py")}
        for engine, rule in (("ruff", "F821"), ("basedpyright", "reportUndefinedVariable")):
            entry = shown[rule]
            start = UNITS[editor.encoding]
            assert entry["source"] == engine
            assert entry["data"] == {"engineId": engine, "outOfScope": False}
            assert entry["range"] == {
                "start": {"line": 0, "character": start},
                "end": {"line": 0, "character": start + len("undefined_name")},
            }
            assert entry["severity"] == 1
    # What was fixed from outside is judged again and cleared by itself.
    company.place.put({"face.py": "x = '😀'; y = 1\n"})
    for editor in company.editors:
        until(
            lambda editor=editor: not [e for e in findings(editor, "face.py") if e["severity"] == 1], "the error to go"
        )


@BOTH
def test_two_agents_two_decisions(company: Company):
    """I2, I5: one is approved at one editor, one denied at the other; both are resolved everywhere."""
    place = company.place
    ada = company.ada.begin("edit", edit_of("one.txt", "one", "ONE"), surface="granular", progressToken="a")
    bob = company.bob.begin_edit("two.txt", "two", "TWO", progressToken="b")
    marks: dict[str, str] = {}
    for editor in company.editors:
        for path, agent in (("one.txt", "ada"), ("two.txt", "bob")):
            mark = editor.wait_mark(path)
            assert mark["source"] == "devtools-lsp"
            assert mark["severity"] == 3
            assert mark["range"]["start"] == {"line": 0, "character": 0}
            assert agent in mark["message"]
            assert mark["data"] == {"approvalId": mark["data"]["approvalId"], "engineId": None, "outOfScope": False}
            assert marks.setdefault(path, mark["data"]["approvalId"]) == mark["data"]["approvalId"]
    assert (place.text("one.txt"), place.text("two.txt")) == ("one\n", "two\n")
    assert company.first.choose("one.txt", "Approve")["status"] == "approved"
    assert company.second.choose("two.txt", "Deny")["status"] == "denied"
    done = company.ada.wire.result(ada)
    assert done["written"] == [{"path": "one.txt", "kind": "modified"}]
    assert done["decision"] == {"approved": True, "edited": [], "dropped": [], "by": "editor"}
    refused = company.bob.error(bob)
    assert (refused["code"], refused["reason"], refused["retry"]) == ("E_DEV_GATE_DECLINED", "denied", "no")
    assert refused["step"] == "edit"
    assert (place.text("one.txt"), place.text("two.txt")) == ("ONE\n", "two\n")
    for editor in company.editors:
        ended = {
            path: editor.wire.wait_told("devtools/approvalResolved", lambda told, path=path: told["id"] == marks[path])
            for path in marks
        }
        assert ended["one.txt"] == {"id": marks["one.txt"], "status": "approved", "by": "editor"}
        assert ended["two.txt"] == {"id": marks["two.txt"], "status": "denied", "by": "editor"}
        until(lambda editor=editor: not editor.marks("one.txt") and not editor.marks("two.txt"), "the marks to go")
        landed = editor.wire.wait_told("devtools/landed")
        assert (landed["plan"], landed["agent"]) == (done["plan"], "ada")
        assert landed["files"] == [{"path": "one.txt", "kind": "modified", "ranges": [{"start": 1, "end": 1}]}]
        assert len(editor.wire.told("devtools/landed")) == 1
        requested = [told["id"] for told in editor.wire.told("devtools/approvalRequested")]
        assert sorted(requested) == sorted(marks.values())
    assert steps(place, done["plan"]) == [("acquire", "approved", "rule"), ("edit", "approved", "editor")]
    (denied,) = place.activity(event="approval", agent="bob", verdict="denied")[-1:]
    assert steps(place, denied["plan"]) == [("acquire", "approved", "rule"), ("edit", "denied", "editor")]
    for agent, token in ((company.ada, "a"), (company.bob, "b")):
        told = agent.wire.told("$/progress")
        assert told
        assert {entry["token"] for entry in told} == {token}
        assert told[0]["value"]["approval"] in marks.values()


def test_an_edit_is_judged_before_it_is_on_disk(company: Company):
    result = company.ada.ops(
        ["library.py"], op("edit", **edit_of("library.py", "side * side", "str(side)")), op("check")
    )
    assert company.place.text("library.py") == LIBRARY
    (found,) = result["delta"]["introduced"]
    assert (found["path"], found["engineId"], found["severity"]) == ("library.py", "basedpyright", "error")
    assert (found["line"], found["outOfScope"]) == (2, False)
    assert result["delta"]["pending"] == []
    assert result["unwritten"] == ["library.py"]
    assert result["ok"] is False
    # Afterwards the engine judges what is on disk.
    assert company.bob.call("check", {"paths": ["library.py"]})["counts"]["error"] == 0


def test_what_breaks_elsewhere_is_told_and_is_out_of_scope(company: Company):
    """I9."""
    rename = edit_of("library.py", "area", "surface")
    result = company.ada.ops(["library.py"], op("edit", **rename), op("check"))
    broken = [entry for entry in result["delta"]["introduced"] if entry["path"] == "use.py"]
    assert "error" in [entry["severity"] for entry in broken]
    assert {entry["outOfScope"] for entry in broken} == {True}
    assert company.place.text("library.py") == LIBRARY
    call = company.bob.begin("edit", rename)
    mark = company.first.wait_mark("library.py")
    approval = company.first.wire.wait_told(
        "devtools/approvalUpdated", lambda told: told["id"] == mark["data"]["approvalId"] and told["introduced"]
    )
    assert ("use.py", True) in [(entry["path"], entry["outOfScope"]) for entry in approval["introduced"]]
    company.second.choose("library.py", "Deny")
    assert company.bob.error(call)["reason"] == "denied"


def test_a_plan_over_all_steps_with_one_approval(company: Company):
    """edit, lint with fix, format and check in memory; the person is asked once, at `write`."""
    company.place.put({"plan.py": "VALUE = 1\n"})
    call = company.ada.begin(
        "dev_plan",
        {
            "paths": ["plan.py"],
            "ops": [
                op("edit", **edit_of("plan.py", "VALUE = 1", "import os\nVALUE   =  2")),
                op("lint", fix=True),
                op("format"),
                op("check"),
                op("write"),
            ],
        },
    )
    company.first.choose("plan.py", "Approve")
    result = company.ada.wire.result(call)
    assert company.place.text("plan.py") == "VALUE = 2\n"
    assert result["written"] == [{"path": "plan.py", "kind": "modified"}]
    assert result["ok"] is True
    assert {engine["id"] for engine in result["engines"]} == {"ruff", "basedpyright"}
    assert [step for step, _, _ in steps(company.place, result["plan"])] == [
        "acquire", "edit", "lint", "format", "check", "write",
    ]  # fmt: skip
    assert len(company.first.wire.told("devtools/approvalRequested")) == 1


def test_a_new_file_is_asked_about_in_a_message(company: Company):
    """Without an existing file there is no place for a mark: the first button that is pressed counts."""
    asked: list[Any] = []

    def press(params: Any) -> Any:
        asked.append(params)
        return next(action for action in params["actions"] if action["title"].startswith("Approve"))

    company.first.wire.answers["window/showMessageRequest"] = press
    patch = "*** Begin Patch\n*** Add File: fresh.txt\n+new\n*** End Patch\n"
    result = company.bob.call("apply_patch", {"patch": patch})
    assert result["written"] == [{"path": "fresh.txt", "kind": "added"}]
    assert company.place.text("fresh.txt") == "new\n"
    assert len(asked) == 1
    assert "fresh.txt" in asked[0]["message"]
    assert steps(company.place, result["plan"]) == [
        ("acquire", "approved", "rule"),
        ("apply_patch", "approved", "editor"),
    ]
    for editor in company.editors:
        landed = editor.wire.wait_told("devtools/landed")
        assert landed["files"] == [{"path": "fresh.txt", "kind": "added", "ranges": [{"start": 1, "end": 1}]}]
    (company.place.root / "fresh.txt").unlink()


def test_what_a_person_types_is_judged_for_them(company: Company):
    """8.0.7, I14: findings follow unsaved text, in the editor that has it, and nowhere else."""
    company.place.put({"typed.py": "print(nowhere)\n"})
    company.bob.call("lint", {"paths": ["typed.py"]})
    for editor in company.editors:
        until(lambda editor=editor: findings(editor, "typed.py"), "the finding")
    company.first.open("typed.py")
    company.first.type("typed.py", "\n\nprint(nowhere)\n")
    until(
        lambda: [entry["range"]["start"]["line"] for entry in findings(company.first, "typed.py")] == [2],
        "the finding to move along",
    )
    company.first.type("typed.py", "print(1)\n", 3)
    until(lambda: not findings(company.first, "typed.py"), "the finding to go")


def test_unsaved_text_in_an_editor_is_not_written_over(company: Company):
    company.second.open("one.txt", "one, and more that is not saved\n")
    asked = len(company.place.activity(event="gate"))
    data = company.bob.refused("edit", edit_of("one.txt", "one", "ONE"))
    assert (data["code"], data["reason"], data["paths"]) == ("E_DEV_CONFLICT", "dirtyInEditor", ["one.txt"])
    assert len(company.place.activity(event="gate")) - asked == 1  # acquire; the step itself is not asked
    assert not company.first.wire.told("devtools/approvalRequested")
    assert company.place.text("one.txt") == "one\n"


def test_a_rule_may_look_at_the_consequences(company: Company):
    """8.0.11: what breaks nothing lands, what does is shown to a person with what it would introduce."""
    company.place.reconfigure(PATIENT + SAFE + ENGINES)
    company.place.put({"rule.py": "value: int = 1\n"})
    harmless = company.bob.edit("rule.py", "value: int = 1", "value: int = 2")
    assert harmless["written"]
    assert "decision" not in harmless
    call = company.bob.begin_edit("rule.py", "value: int = 2", "value: int = 'two'")
    shown = company.first.wire.wait_told("devtools/approvalRequested")
    assert [entry["engineId"] for entry in shown["introduced"] if entry["severity"] == "error"] == ["basedpyright"]
    company.second.choose("rule.py", "Deny")
    assert company.bob.error(call)["reason"] == "denied"
    long = company.bob.begin_edit("rule.py", "value", "a = 1\nb = 2\nc = 3\nd = 4\nvalue")
    company.first.choose("rule.py", "Deny")
    assert company.bob.error(long)["reason"] == "denied"
    company.place.reconfigure(PATIENT + ENGINES)


def test_people_choose_what_is_published(company: Company):
    """8.0.7: none, or also of what is open and no agent has run on; questions are shown in any case."""
    company.place.put({"pub.py": "import os\n"})
    company.place.reconfigure(PATIENT + ENGINES + '[editors]\npublish = "off"\n')
    company.bob.call("lint", {"paths": ["pub.py"]})
    call = company.bob.begin_edit("pub.py", "import os", "import sys")
    company.first.wait_mark("pub.py")
    assert findings(company.first, "pub.py") == []
    company.first.choose("pub.py", "Deny")
    assert company.bob.error(call)["reason"] == "denied"
    company.place.reconfigure(PATIENT + ENGINES + '[editors]\npublish = "open"\n')
    company.second.open("pub.py")
    until(
        lambda: "ruff" in {entry["source"] for entry in findings(company.second, "pub.py")}, "findings of what is open"
    )
    company.place.reconfigure(PATIENT + ENGINES)


def test_an_editor_may_pull(company: Company):
    """8.0.7: offered only where configured, and nothing is pushed then."""
    company.place.reconfigure(PATIENT + ENGINES + '[editors]\ndiagnostics = "pull"\n')
    company.place.put({"pull.py": "print(nowhere)\n"})
    pulling = company.place.editor("utf-8", textDocument={"diagnostic": {}})
    assert pulling.capabilities["diagnosticProvider"]["identifier"] == "devtools-lsp"
    company.bob.call("lint", {"paths": ["pull.py"]})
    document = {"textDocument": {"uri": company.place.uri("pull.py")}}
    report = until(
        lambda: (found := pulling.wire.request("textDocument/diagnostic", document))["items"] and found, "a report"
    )
    assert {entry["source"] for entry in report["items"]} == {"ruff"}
    assert report["items"][0]["data"]["engineId"] == "ruff"
    again = pulling.wire.request("textDocument/diagnostic", {**document, "previousResultId": report["resultId"]})
    assert again["kind"] == "unchanged"
    assert not pulling.wire.told("textDocument/publishDiagnostics")
    company.place.reconfigure(PATIENT + ENGINES)


@BOTH
def test_one_editor_leaves_and_the_question_stays(company: Company):
    """P82: the same question with the same diff waits for whoever attaches next, and is applied once."""
    call = company.bob.begin_edit("one.txt", "one", "ONE")
    before = company.first.wire.wait_told("devtools/approvalRequested")
    for editor in company.editors:
        editor.wire.close()
    late = company.place.editor("utf-8")
    after = late.wire.wait_told("devtools/approvalRequested")
    assert (after["id"], after["files"]) == (before["id"], before["files"])
    assert late.choose("one.txt", "Approve")["applied"] is True
    assert company.bob.wire.result(call)["written"]
    assert company.place.text("one.txt") == "ONE\n"
    assert late.wire.wait_told("devtools/landed")
