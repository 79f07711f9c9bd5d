"""The gate's answer by people: who may, who was first, and every way in which a question ends (SPEC 8.0.8-8.0.10)."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from devtools_lsp.core.diagnostics import Diagnostic, Pending
from devtools_lsp.daemon.approval_choice import diff_document
from devtools_lsp.daemon.approval_payload import (
    REQUESTED,
    UPDATED,
    Approval,
    Resolution,
    encode_announcement,
    list_to_wire,
    to_wire,
)
from devtools_lsp.daemon.approvals import STILL_JUDGING, UNKNOWABLE, Answer, Approvals, GateSettings
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.errors import BadArgumentError, CallCancelledError, PolicyError, StepFailedError

ERROR = Diagnostic("a.py", "error", "undefined name", "checker", False, line=1, column=1)
PACKAGE = "package.json"


async def test_rules_answer_without_asking_anybody(bench: Any, view: Any):
    bench.put({"a.py": "x\n"})
    asked = bench.ask("read_lines", args={}, targets=["a.py"])
    decision = await asked.task
    assert decision.approved
    assert decision.by == "rule"
    assert not decision.person
    bench.configure({"decision": "deny", "paths": ["a.py"], "name": "hands off"})
    denied = await bench.edit("a.py", "y\n").task
    assert not denied.approved
    assert denied.reason == "denied"
    assert "hands off" in (denied.note or "")
    assert view.told == []
    assert asked.diffs == []
    assert asked.previews == []


async def test_nobody_there_declines_at_once_or_waits_as_configured(bench: Any, new_view: Any):
    bench.put({"a.py": "x\n"})
    asked = bench.edit("a.py", "y\n")
    decision = await asked.task
    assert (decision.approved, decision.reason) == (False, "noDecider")
    assert (asked.diffs, asked.previews) == ([], []), "nobody was there to show a preview to"
    bench.approvals.attach(new_view(), decides=False)
    assert (await bench.edit("a.py", "y\n").task).reason == "noDecider", "a view that only looks on is nobody"

    bench.configure(no_editor="wait")
    waiting = bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    late = new_view()
    bench.approvals.attach(late, decides=True)
    assert late.events(approval.id) == ["requested"], "offered to one that attaches later"
    await bench.decide(approval.id)
    assert (await waiting.task).approved


async def test_the_payload_is_what_the_contract_lists(bench: Any, view: Any, clock: Any):
    bench.put({"src/a.py": "one\ntwo\nthree\n", "src/old.py": "gone\n"})
    changes = [bench.change("src/a.py", "one\n2\nthree\n"), bench.change("src/new.py", "new\n")]
    bench.ask("apply_patch", changes, args={"patch": "…", "persists": True}, introduced=[ERROR])
    approval = await bench.waiting()
    await asyncio.sleep(0)
    payload = json.loads(msgspec.json.encode(to_wire(approval)))
    assert list(payload) == [
        "id", "plan", "stepIndex", "step", "args", "targets", "mayCreate", "engines", "agent", "files",
        "normalized", "introduced", "resolved", "pending", "rememberText", "expiresAt",
    ]  # fmt: skip
    assert payload["args"] == {"patch": "…", "persists": True}
    assert payload["targets"] == ["src/a.py"]
    assert payload["mayCreate"] == ["src/new.py"]
    first = payload["files"][0]
    assert (first["path"], first["kind"]) == ("src/a.py", "modified")
    assert re.fullmatch("[0-9a-f]{64}", first["baseHash"])
    hunk = first["hunks"][0]
    assert set(hunk) == {"id", "oldStart", "oldLines", "newStart", "newLines", "text"}
    assert hunk["text"] == " one\n-two\n+2\n three\n"
    assert payload["files"][1]["baseHash"] is None
    assert payload["rememberText"].startswith("Let claude change files directly in src/")
    assert payload["expiresAt"] == "1970-01-12T13:51:40.000Z"
    assert clock.time() + 300 == approval.expires_at


async def test_the_diff_is_shown_at_once_and_its_consequences_follow(bench: Any, view: Any, eventually: Any):
    bench.put({"a.py": "x\n"})
    judged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bench.edit("a.py", "y\n", consequences=judged, introduced=[ERROR])
    approval = await bench.waiting()
    assert view.told == [("requested", approval.id, [STILL_JUDGING])], "never to be taken for clean"
    assert approval.shown.files
    assert approval.shown.introduced == []
    judged.set_result(None)
    await eventually(lambda: view.events(approval.id) == ["requested", "updated"])
    assert approval.shown.introduced == [ERROR]
    assert approval.shown.pending == []


async def test_slow_checkers_are_said_to_be_slow_and_heard_all_the_same(bench: Any, view: Any, eventually: Any):
    bench.put({"a.py": "x\n"})
    bench.configure(preview_deadline_s=0.02)
    judged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bench.edit("a.py", "y\n", consequences=judged, introduced=[ERROR])
    approval = await bench.waiting()
    await eventually(lambda: len(view.told) == 2)
    assert view.told[1] == ("updated", approval.id, ["not judged within 0.02 s"])
    judged.set_result(None)
    await eventually(lambda: len(view.told) == 3)
    assert approval.shown.introduced == [ERROR]


async def test_checkers_that_fail_are_pending_and_never_clean(bench: Any, view: Any, eventually: Any):
    bench.put({"a.py": "x\n"})
    bench.edit("a.py", "y\n", fails=StepFailedError("the checker broke"))
    first = await bench.waiting()
    await eventually(lambda: view.events(first.id) == ["requested", "updated"])
    assert first.shown.pending == [Pending("the checker broke")]
    bench.edit("a.py", "y\n", fails=RuntimeError("a bug"))
    second = await bench.waiting(2)
    await eventually(lambda: view.events(second.id) == ["requested", "updated"])
    assert "failed" in second.shown.pending[0].reason
    assert "a bug" not in second.shown.pending[0].reason


async def test_a_command_has_no_diff_and_says_that_its_effects_are_unknown(bench: Any, view: Any):
    bench.ask("bash", args={"command": "make clean"}, targets=[])
    approval = await bench.waiting()
    assert approval.shown.files == []
    assert approval.existing == ()
    assert approval.shown.pending == [Pending(UNKNOWABLE)]
    payload = to_wire(approval)
    assert payload["targets"] == []
    assert payload["args"] == {"command": "make clean"}
    assert payload["rememberText"].endswith("make clean")


async def test_the_first_answer_wins_and_a_late_one_is_told_how_it_ended(bench: Any, view: Any):
    bench.put({"a.py": "x\n"})
    asked = bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    first = await bench.decide(approval.id, False, "terminal", note="not like this")
    assert msgspec.to_builtins(first) == {"id": approval.id, "status": "denied", "applied": True, "by": "terminal"}
    late = await bench.decide(approval.id, True)
    assert msgspec.to_builtins(late) == {"id": approval.id, "status": "denied", "applied": False, "by": "terminal"}
    decision = await asked.task
    assert (decision.approved, decision.reason, decision.note) == (False, "denied", "not like this")
    assert decision.person
    assert decision.by == "terminal"
    assert view.told[-1] == ("resolved", approval.id, ("denied", "terminal"))
    assert view.events(approval.id).count("resolved") == 1
    assert bench.approvals.items() == []


async def test_two_answers_at_once_count_once(bench: Any, view: Any):
    bench.put({"a.py": "x\n"})
    asked = bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    answers = await asyncio.gather(*(bench.decide(approval.id, True, role) for role in ("editor", "terminal") * 5))
    assert sum(answer.applied for answer in answers) == 1
    assert {answer.status for answer in answers} == {"approved"}
    assert len({answer.by for answer in answers}) == 1
    assert (await asked.task).approved


async def test_an_agent_is_refused_and_changes_nothing(bench: Any, view: Any):
    bench.put({"a.py": "x\n"})
    bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    with pytest.raises(PolicyError) as caught:
        await bench.decide(approval.id, True, "agent")
    assert caught.value.reason == "notDecider"
    assert approval.status == "pending"
    assert bench.approvals.items() == [approval]


async def test_time_runs_out_as_an_ending_of_its_own(bench: Any, view: Any, clock: Any, eventually: Any):
    bench.put({"a.py": "x\n"})
    bench.configure(timeout_s=2)
    asked = bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    await eventually(lambda: clock.sleeping == 1)
    await clock.advance(1.9)
    assert not asked.task.done()
    await clock.advance(0.2)
    decision = await asked.task
    assert (decision.approved, decision.reason, decision.by) == (False, "expired", "clock")
    assert "2 s" in (decision.note or "")
    assert view.told[-1] == ("resolved", approval.id, ("expired", "clock"))
    late = await bench.decide(approval.id)
    assert (late.status, late.applied) == ("expired", False), "a later click does nothing and says so"


async def test_the_agents_cancel_withdraws_it(bench: Any, view: Any):
    bench.put({"a.py": "x\n"})
    asked = bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    asked.signal.cancel("the client disconnected")
    with pytest.raises(CallCancelledError, match="the client disconnected"):
        await asked.task
    assert view.told[-1] == ("resolved", approval.id, ("withdrawn", "agent"))
    assert (await bench.decide(approval.id)).status == "withdrawn"


async def test_a_cancelled_task_withdraws_it_too(bench: Any, view: Any):
    bench.put({"a.py": "x\n"})
    asked = bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    asked.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked.task
    assert view.told[-1] == ("resolved", approval.id, ("withdrawn", "agent"))


async def test_a_cancel_while_a_rule_waits_for_the_checkers_is_heard(bench: Any, view: Any, eventually: Any):
    bench.put({"a.py": "x\n"})
    bench.configure({"decision": "allow", "no_new_errors": True}, preview_deadline_s=60)
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asked = bench.edit("a.py", "y\n", consequences=never)
    await eventually(lambda: asked.previews, "the checkers to be asked")
    asked.signal.cancel()
    with pytest.raises(CallCancelledError):
        await asked.task
    assert view.told == []


async def test_it_survives_every_editor_and_is_offered_to_the_next(
    bench: Any, view: Any, new_view: Any, eventually: Any
):
    bench.put({"a.py": "x\n"})
    asked = bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    await eventually(lambda: view.events(approval.id) == ["requested", "updated"])
    bench.approvals.detach(view)
    assert bench.approvals.deciders == 0
    assert not asked.task.done()
    again = new_view()
    bench.approvals.attach(again, decides=True)
    assert again.events(approval.id) == ["requested"]
    assert (await bench.decide(approval.id)).applied
    assert (await asked.task).approved
    assert view.events(approval.id) == ["requested", "updated"], "who left is told nothing more"


async def test_files_changed_meanwhile_are_noticed_at_the_answer(bench: Any, view: Any):
    bench.put({"s.txt": "a\nb\n"})
    asked = bench.edit("s.txt", "A\nb\n")
    approval = await bench.waiting()
    bench.put({"s.txt": "a\nuser\n"})
    answer = await bench.decide(approval.id)
    assert msgspec.to_builtins(answer) == {"id": approval.id, "status": "stale", "applied": False, "by": "disk"}
    decision = await asked.task
    assert (decision.approved, decision.reason) == (False, "stale")
    assert "s.txt" in (decision.note or "")


async def test_files_changed_meanwhile_are_noticed_earlier_when_somebody_tells(bench: Any, view: Any, eventually: Any):
    bench.put({"s.txt": "a\n", "t.txt": "t\n", "dir/u.txt": "u\n"})
    first, second = bench.edit("s.txt", "A\n"), bench.edit("dir/u.txt", "U\n")
    await bench.waiting(2)
    bench.put({"s.txt": "a\n"})
    bench.approvals.files_changed(["s.txt", "t.txt"])
    await asyncio.gather(*bench.approvals._looking)
    assert len(bench.approvals.items()) == 2, "touched, and the same bytes"
    (bench.root / "dir/u.txt").unlink()
    bench.approvals.files_changed(["dir"])
    assert (await second.task).reason == "stale"
    assert not first.task.done()


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(lambda root: (root / "new.txt").write_text("somebody's"), id="the added file came into being"),
        pytest.param(lambda root: (root / "to.txt").write_text("somebody's"), id="the destination came into being"),
        pytest.param(lambda root: (root / "from.txt").unlink(), id="the source went away"),
        pytest.param(lambda root: (root / "gone.txt").write_text("other"), id="the file to delete changed"),
    ],
)
async def test_absence_is_part_of_what_was_shown(bench: Any, view: Any, meanwhile: Any):
    bench.put({"from.txt": "f\n", "gone.txt": "g\n"})
    changes = [
        bench.change("new.txt", "n\n"),
        bench.change("to.txt", "f\n", source="from.txt"),
        bench.change("gone.txt", None),
    ]
    asked = bench.ask("apply_patch", changes)
    approval = await bench.waiting()
    assert approval.existing == ("from.txt", "gone.txt")
    meanwhile(bench.root)
    assert (await bench.decide(approval.id)).status == "stale"
    assert (await asked.task).reason == "stale"


async def test_a_restart_loses_what_waited(bench: Any, view: Any, clock: Any):
    bench.put({"a.py": "x\n"})
    asked = bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    await bench.approvals.close()
    with pytest.raises(CallCancelledError, match="daemon ended"):
        await asked.task
    assert view.told[-1] == ("resolved", approval.id, ("lost", "daemon"))
    after = Approvals(clock, Disk(bench.root))
    answer = await after.decide(approval.id, Answer(approve=True), "editor")
    assert (answer.status, answer.applied) == ("lost", False)


async def test_an_id_that_never_was_is_an_error(bench: Any, view: Any):
    bench.put({"a.py": "x\n"})
    bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    for unknown in ("", "nonsense", f"{approval.id}9"):
        with pytest.raises(BadArgumentError) as caught:
            await bench.decide(unknown)
        assert caught.value.reason == "notFound"
    assert approval.status == "pending"


# -- choosing ----------------------------------------------------------------------------------------------------

LINES = "".join(f"line {number}\n" for number in range(1, 41))
CHANGED = LINES.replace("line 2\n", "two\n").replace("line 20\n", "twenty\n").replace("line 39\n", "")


async def test_a_person_drops_one_of_three_hunks_and_edits_another(bench: Any, view: Any):
    bench.put({"a.txt": LINES})
    asked = bench.edit("a.txt", CHANGED)
    approval = await bench.waiting()
    first, second, _third = (hunk["id"] for hunk in msgspec.to_builtins(to_wire(approval)["files"][0].hunks))
    body = approval.shown.files[0].hunks[1].text.replace("+twenty", "+TWENTY")
    answer = await bench.decide(
        approval.id, edited=[{"hunk_id": second, "text": body}], drop=(first,), note="only the middle"
    )
    assert answer.status == "approved"
    decision = await asked.task
    assert decision.person
    assert decision.dropped == (first,)
    assert decision.note == "only the middle"
    assert decision.edited[0].hunk_id == second
    assert decision.edited[0].text == body


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (lambda hunks: {"drop": ("nope",)}, "has no hunk 'nope'"),
        (lambda hunks: {"edited": [{"hunk_id": "nope", "text": ""}]}, "has no hunk"),
        (lambda hunks: {"edited": [{"path": "b.txt", "text": ""}]}, "does not change 'b.txt'"),
        (lambda hunks: {"edited": [{"hunk_id": hunks[0].id, "text": "+lost its context\n"}]}, "lost the old line"),
        (lambda hunks: {"edited": [{"hunk_id": hunks[0].id, "text": "?what\n"}]}, "starts with"),
        (
            lambda hunks: {"edited": [{"hunk_id": hunks[0].id, "text": hunks[0].text}], "drop": (hunks[0].id,)},
            "both dropped and edited",
        ),
        (
            lambda hunks: {"edited": [{"path": "a.txt", "text": "x\n"}], "drop": (hunks[0].id,)},
            "given whole",
        ),
        (
            lambda hunks: {"edited": [{"hunk_id": hunks[0].id, "text": hunks[0].text}] * 2},
            "edited twice",
        ),
        (lambda hunks: {"approve": False, "drop": (hunks[0].id,)}, "go with approve"),
        (lambda hunks: {"approve": False, "remember": True}, "go with approve"),
    ],
)
async def test_a_choice_that_does_not_fit_is_refused_and_the_approval_waits_on(
    bench: Any, view: Any, choice: Any, words: str
):
    bench.put({"a.txt": LINES})
    bench.edit("a.txt", CHANGED)
    approval = await bench.waiting()
    with pytest.raises(BadArgumentError, match=re.escape(words)):
        await bench.decide(approval.id, **choice(approval.shown.files[0].hunks))
    assert bench.approvals.items() == [approval]


async def test_a_hunk_without_a_final_line_break_can_be_edited(bench: Any, view: Any):
    bench.put({"a.txt": "one\ntwo"})
    bench.edit("a.txt", "one\n2")
    approval = await bench.waiting()
    hunk = approval.shown.files[0].hunks[0]
    assert "No newline" in hunk.text
    answer = await bench.decide(approval.id, edited=[{"hunk_id": hunk.id, "text": hunk.text.replace("+2", "+zwei")}])
    assert answer.status == "approved"


# -- remembering -------------------------------------------------------------------------------------------------


async def test_remembering_asks_once_and_ends_with_the_session(bench: Any, view: Any):
    bench.put({"a.py": "x\n", "b.py": "x\n"})
    asked = bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    await bench.decide(approval.id, remember=True)
    assert (await asked.task).approved
    for path in ("a.py", "b.py"):
        decision = await bench.edit(path, "z\n").task
        assert decision.approved
        assert decision.by == "rule"
    assert bench.approvals.rules.all_rules()[0].to_wire()["origin"] == "remembered"
    bench.edit("a.py", "z\n", session="s2")
    await bench.waiting()
    bench.approvals.end_session("s1")
    bench.edit("a.py", "z\n")
    await bench.waiting(2)


async def test_names_that_always_ask_cannot_be_remembered(bench: Any, view: Any):
    bench.put({PACKAGE: "{}\n"})
    bench.edit(PACKAGE, "[]\n")
    approval = await bench.waiting()
    assert to_wire(approval)["rememberText"] is None
    with pytest.raises(BadArgumentError, match="cannot be remembered"):
        await bench.decide(approval.id, remember=True)
    assert (await bench.decide(approval.id)).applied


# -- limits ------------------------------------------------------------------------------------------------------


async def test_a_rule_with_a_limit_computes_only_what_it_needs(bench: Any, view: Any):
    bench.put({"a.py": "x\n"})
    bench.configure({"decision": "allow", "max_changed_lines": 2})
    small = bench.edit("a.py", "y\n")
    assert (await small.task).by == "rule"
    assert small.diffs
    assert not small.previews
    bench.edit("a.py", "y\nz\n")
    await bench.waiting()


async def test_no_new_errors_holds_only_where_everything_was_judged(bench: Any, view: Any):
    bench.put({"a.py": "x\n"})
    bench.configure({"decision": "allow", "no_new_errors": True}, preview_deadline_s=0.02)
    assert (await bench.edit("a.py", "y\n").task).approved
    bench.edit("a.py", "y\n", introduced=[ERROR])
    approval = await bench.waiting(1)
    assert view.told == [("requested", approval.id, [])], "what the rule learned is shown at once"
    assert approval.shown.introduced == [ERROR]
    bench.edit("a.py", "y\n", pending=[Pending("indexing")])
    await bench.waiting(2)
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bench.edit("a.py", "y\n", consequences=never)
    await bench.waiting(3)


async def test_an_engine_in_place_is_asked_about_with_its_targets(bench: Any, view: Any):
    bench.put({"a.py": "x\n"})
    bench.configure({"decision": "allow", "max_changed_lines": 1000})
    bench.ask("format", args={"persists": True}, targets=["a.py", "gone.py"], in_place=True)
    approval = await bench.waiting()
    assert approval.existing == ("a.py",)
    assert approval.shown.pending == [Pending(UNKNOWABLE)]


# -- size --------------------------------------------------------------------------------------------------------


async def test_a_thousand_wait_and_all_are_answered(bench: Any, view: Any):
    bench.put({"a.py": "x\n"})
    for _ in range(1000):
        bench.edit("a.py", "y\n")
    await bench.waiting(1000)
    assert len(msgspec.json.encode(list_to_wire(bench.approvals.items()))) < 8 * 1024 * 1024
    answers = await asyncio.gather(*(bench.decide(approval.id) for approval in bench.approvals.items()))
    assert all(answer.applied for answer in answers)
    assert all([(await asked.task).approved for asked in bench.started])


@dataclass
class Held:
    """Encoding that waits until it may go on, as far as it is one kind of message."""

    method: str
    begun: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)

    def __call__(self, method: str, approval: Any) -> bytes:
        if method == self.method:
            self.begun.set()
            assert self.goes_on.wait(20)
        return encode_announcement(method, approval)


HEAVY = "".join(f"{number:07d} {'x' * 40}\n" for number in range(5000))


async def test_a_heavy_approval_is_encoded_once_and_beforehand(bench: Any, view: Any, eventually: Any):
    seen: list[tuple[str, bytes]] = []

    class Showing:
        def requested(self, approval: Approval) -> None:
            seen.append(approval.encoded or ("nothing", b""))

        def updated(self, approval: Approval) -> None:
            self.requested(approval)

        def resolved(self, approval: Approval, resolution: Resolution) -> None:
            assert approval.encoded is None
            del resolution

    bench.approvals.attach(Showing(), decides=False)
    bench.put({"a.py": "x\n"})
    judged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bench.edit("a.py", HEAVY, consequences=judged, introduced=[ERROR])
    approval = await bench.waiting()
    assert approval.encoded is None, "kept for as long as it is announced"
    judged.set_result(None)
    await eventually(lambda: view.events(approval.id) == ["requested", "updated"])
    assert [method for method, _ in seen] == [REQUESTED, UPDATED]
    first, second = (json.loads(message)["params"] for _, message in seen)
    assert first["pending"] == [{"reason": STILL_JUDGING}]
    assert (second["pending"], second["introduced"][0]["message"]) == ([], ERROR.message)
    assert second["files"][0]["hunks"][0]["text"] == approval.shown.files[0].hunks[0].text


async def test_what_ended_while_it_was_encoded_is_not_announced_any_more(
    bench: Any, view: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
):
    held = Held(UPDATED)
    monkeypatch.setattr("devtools_lsp.daemon.approvals.encode_announcement", held)
    bench.put({"a.py": "x\n"})
    asked = bench.edit("a.py", HEAVY, introduced=[ERROR])
    approval = await bench.waiting()
    try:
        await eventually(held.begun.is_set)
        await bench.decide(approval.id)
        assert (await asked.task).approved
    finally:
        held.goes_on.set()
    await asyncio.to_thread(bool)
    assert view.events(approval.id) == ["requested", "resolved"]
    assert approval.shown.introduced == []


@pytest.mark.parametrize("end", ["withdrawn", "stopped", "closed"])
async def test_what_nobody_waits_for_any_more_is_never_announced(
    bench: Any, view: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch, end: str
):
    held = Held(REQUESTED)
    monkeypatch.setattr("devtools_lsp.daemon.approvals.encode_announcement", held)
    bench.put({"a.py": "x\n"})
    asked = bench.edit("a.py", HEAVY)
    try:
        await eventually(held.begun.is_set)
        assert bench.approvals.items() == []
        if end == "withdrawn":
            asked.signal.cancel("changed its mind")
        elif end == "stopped":
            asked.task.cancel()
        else:
            await bench.approvals.close()
    finally:
        held.goes_on.set()
    with pytest.raises(asyncio.CancelledError if end == "stopped" else CallCancelledError):
        await asked.task
    assert view.told == []
    assert bench.approvals.items() == []


async def test_a_diff_of_five_megabytes_fits_one_frame_whole(bench: Any, view: Any):
    text = "".join(f"{number:07d} {'x' * 40}\n" for number in range(100_000))
    bench.ask("write_file", [bench.change("big.txt", text)], args={"path": "big.txt", "content": text})
    approval = await bench.waiting()
    payload = to_wire(approval)
    assert payload["truncated"] == {"hunks": 0, "bytes": 0, "args": True}, "the hunks are whole"
    assert payload["args"]["content"].endswith("(4900000 characters in all)")
    assert payload["files"][0].hunks[0].text == approval.shown.files[0].hunks[0].text
    assert len(msgspec.json.encode(payload)) < 8 * 1024 * 1024
    listed = list_to_wire([approval, approval])
    assert [item["truncated"]["hunks"] for item in listed] == [0, 1]
    assert len(msgspec.json.encode(listed)) < 8 * 1024 * 1024
    assert listed[1]["files"][0].hunks[0].text == ""
    document = diff_document(approval, Disk(bench.root))
    assert document["truncated"]
    assert document["files"][0]["after"] is None
    small = diff_document(approval, Disk(bench.root), "big.txt")
    assert small["diff"].startswith("diff --git")


async def test_the_diff_document_holds_both_texts_and_names_what_cannot_be_seen(bench: Any, view: Any):
    bench.put({"a.py": "a = 1\r\nb = 2\r\n", "old.py": "o\n", "gone.py": "g\n"})
    changes = [
        bench.change("a.py", "a = 1\nb = 3\u200b  \n"),
        bench.change("new.py", "n\n", source="old.py"),
        bench.change("gone.py", None),
        bench.change("added.py", "+\n"),
    ]
    bench.ask("apply_patch", changes)
    approval = await bench.waiting()
    document = diff_document(approval, Disk(bench.root))
    texts = {entry["path"]: (entry["before"], entry["after"]) for entry in document["files"]}
    assert texts == {
        "a.py": ("a = 1\nb = 2\n", "a = 1\nb = 3\u200b  \n"),
        "new.py": ("o\n", "n\n"),
        "gone.py": ("g\n", None),
        "added.py": (None, "+\n"),
    }
    assert [(entry.line, entry.column, entry.what) for entry in document["invisible"]] == [
        (2, 7, "trailing blanks"),
        (2, 6, "U+200B ZERO WIDTH SPACE"),
    ]
    one = diff_document(approval, Disk(bench.root), "old.py")
    assert [entry["path"] for entry in one["files"]] == ["new.py"]
    with pytest.raises(BadArgumentError):
        diff_document(approval, Disk(bench.root), "other.py")


async def test_a_view_that_fails_takes_nobody_with_it(bench: Any, view: Any, new_view: Any, caplog: Any):
    class Broken:
        def requested(self, approval: Any) -> None:
            raise RuntimeError("broken view")

        updated = requested

        def resolved(self, approval: Any, resolution: Any) -> None:
            raise RuntimeError("broken view")

    bench.approvals.attach(Broken(), decides=False)
    other = new_view()
    bench.approvals.attach(other, decides=False)
    bench.put({"a.py": "x\n"})
    asked = bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    await bench.decide(approval.id)
    assert (await asked.task).approved
    assert other.events(approval.id)[0] == "requested"
    assert other.events(approval.id)[-1] == "resolved"
    assert "a view of approval" in caplog.text


def test_the_settings_default_to_the_contracts():
    settings = GateSettings()
    assert (settings.mode, settings.timeout_s, settings.preview_deadline_s, settings.no_editor) == (
        "editor",
        300.0,
        2.0,
        "fail",
    )
