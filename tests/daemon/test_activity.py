"""The activity log and the observer that feeds it: one line a gate call, no contents, no secrets (SPEC 8.0.13)."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.core.result import Written
from devtools_lsp.daemon.activity import ActivityLog
from devtools_lsp.daemon.landed import Landed
from devtools_lsp.engines.tree import FileEvent
from devtools_lsp.ports import Decision, GateCall, LandedFile, PlanIdentity

WHO = PlanIdentity("p1", "claude", "s1")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_has_the_contracts_fields_and_no_other(tmp_path: Path, clock: Any):
    log = ActivityLog(tmp_path / "activity.jsonl", clock)
    log.record("gate", plan="p1", step="edit", agent="claude", verdict="approved", by="rule", paths=["a.py"])
    log.record("failed", plan="p1", verdict="E_DEV_CONFLICT")
    assert lines(log.path) == [
        {
            "time": "1970-01-12T13:46:40.000Z",
            "event": "gate",
            "plan": "p1",
            "step": "edit",
            "agent": "claude",
            "verdict": "approved",
            "by": "rule",
            "paths": ["a.py"],
        },
        {"time": "1970-01-12T13:46:40.000Z", "event": "failed", "plan": "p1", "verdict": "E_DEV_CONFLICT"},
    ]
    assert log.path.stat().st_mode & 0o777 == 0o600
    log.close()


def test_it_is_rotated_and_bounded(tmp_path: Path, clock: Any):
    log = ActivityLog(tmp_path / "activity.jsonl", clock, max_bytes=2000, kept_files=2)
    for number in range(200):
        log.record("gate", plan=f"p{number}", step="edit", paths=["a.py"])
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["activity.jsonl", "activity.jsonl.1", "activity.jsonl.2"]
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    plans = [line["plan"] for name in reversed(files) for line in lines(tmp_path / name)]
    assert plans == [f"p{number}" for number in range(200 - len(plans), 200)], "whole lines, in order, the newest last"
    log.close()


def test_many_paths_are_counted_and_odd_names_are_written(tmp_path: Path, clock: Any):
    log = ActivityLog(tmp_path / "activity.jsonl", clock)
    log.record("landed", plan="p", paths=[f"f{number}" for number in range(250)])
    log.record("gate", plan="p", agent="x" * 1000, paths=['a"\n\u2028😀'])
    many, odd = lines(log.path)
    assert (len(many["paths"]), many["morePaths"]) == (200, 50)
    assert (odd["paths"], len(odd["agent"])) == (['a"\n\u2028😀'], 200)
    log.close()


def test_a_log_that_cannot_be_written_is_said_once_and_hurts_nobody(tmp_path: Path, clock: Any, caplog: Any):
    log = ActivityLog(tmp_path / "missing" / "activity.jsonl", clock)
    for _ in range(3):
        log.record("gate", plan="p")
    assert caplog.text.count("cannot be written") == 1
    (tmp_path / "missing").mkdir()
    log.record("gate", plan="p")
    assert len(lines(log.path)) == 1
    log.close()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, clock: Any):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "activity.jsonl").symlink_to(tmp_path / "victim")
    log = ActivityLog(tmp_path / "activity.jsonl", clock)
    log.record("gate", plan="p")
    assert (tmp_path / "victim").read_text() == "mine"


# -- the observer ------------------------------------------------------------------------------------------------


async def test_what_lands_reaches_engines_editors_hub_approvals_and_the_log(
    daemon: Any, tmp_path: Path, eventually: Any
):
    daemon.gate.put({"a.py": "one\n", "moved.py": "x\n", "other.py": "o\n"})
    told: list[FileEvent] = []

    async def tell(events: Any) -> None:
        told.extend(events)

    log = ActivityLog(tmp_path / "activity.jsonl", daemon.gate.clock)
    landed = Landed(daemon.editors, daemon.hub, daemon.gate.approvals, log, tell)
    editor = await daemon.editor()
    findings = [Diagnostic(path, "error", "bad", "checker", False, line=1) for path in ("old.py", "gone.py", "a.py")]
    landed.judged(WHO, "checker", "check", ["old.py", "gone.py", "a.py"], findings)
    waiting = daemon.gate.edit("a.py", "two\n")
    await daemon.gate.waiting()
    await eventually(lambda: len(editor.shown.get("a.py", [])) == 2)
    await eventually(lambda: editor.shown.get("gone.py") and editor.shown.get("old.py"))
    daemon.gate.put({"a.py": "agent\n"})
    files = [LandedFile("a.py", "modified", None, ((1, 1),)), LandedFile("moved.py", "renamed", "old.py")]
    written = [
        Written("moved.py", "renamed", "old.py"),
        Written("gone.py", "deleted"),
        Written("a.py", "modified"),
        Written("new.py", "added"),
    ]
    landed.landed(WHO, "write", files, written)
    assert (await waiting.task).reason == "stale"
    await eventually(lambda: editor.told("devtools/landed"))
    await eventually(lambda: editor.shown.get("gone.py") == [] and editor.shown.get("old.py") == [])
    await eventually(lambda: told)
    assert [(event.path, event.kind) for event in told] == [
        ("old.py", "deleted"),
        ("gone.py", "deleted"),
        ("moved.py", "created"),
        ("a.py", "changed"),
        ("new.py", "created"),
    ]
    assert lines(log.path)[-1] == {
        "time": lines(log.path)[-1]["time"],
        "event": "landed",
        "plan": "p1",
        "step": "write",
        "agent": "claude",
        "paths": ["a.py", "gone.py", "moved.py", "new.py", "old.py"],
    }
    log.close()


async def test_every_gate_call_has_one_line_without_its_arguments(daemon: Any, tmp_path: Path):
    log = ActivityLog(tmp_path / "activity.jsonl", daemon.gate.clock)
    landed = Landed(daemon.editors, daemon.hub, daemon.gate.approvals, log)
    call = GateCall("bash", {"command": "curl -H 'Authorization: s3cret'"}, ())
    landed.gate_answered(WHO, call, Decision(True, "editor"))
    landed.gate_answered(
        WHO, GateCall("edit", {"edits": ["s3cret"]}, ("a",), ("b",)), Decision(False, "clock", reason="expired")
    )
    landed.failed(WHO, "edit", "E_DEV_GATE_DECLINED", ["a"])
    landed.engine_event("ruff", "failed")
    found = lines(log.path)
    assert [(line["event"], line.get("verdict"), line.get("by")) for line in found] == [
        ("gate", "approved", "editor"),
        ("gate", "expired", "clock"),
        ("failed", "E_DEV_GATE_DECLINED", None),
        ("engine", "failed", "ruff"),
    ]
    assert found[1]["paths"] == ["a", "b"]
    assert "s3cret" not in log.path.read_text()
    log.close()


async def test_approvals_are_logged_when_they_begin_and_end(bench: Any, view: Any, tmp_path: Path):
    log = ActivityLog(tmp_path / "activity.jsonl", bench.clock)
    bench.approvals._activity = log
    bench.put({"a.py": "x\n"})
    bench.edit("a.py", "y\n")
    approval = await bench.waiting()
    await bench.decide(approval.id, role="terminal")
    assert [(line["event"], line["verdict"], line["by"]) for line in lines(log.path)] == [
        ("approval", "pending", "claude"),
        ("approval", "approved", "terminal"),
    ]
    log.close()


async def test_a_listener_that_fails_takes_nobody_with_it(daemon: Any, tmp_path: Path, eventually: Any, caplog: Any):
    async def broken(_events: Any) -> None:
        raise RuntimeError("engines are gone")

    log = ActivityLog(tmp_path / "activity.jsonl", daemon.gate.clock)
    landed = Landed(daemon.editors, daemon.hub, daemon.gate.approvals, log, broken)
    daemon.hub.files_changed = None
    landed.landed(WHO, "write", [LandedFile("a.py", "modified")], [Written("a.py", "modified")])
    landed.changed_outside([FileEvent("a.py", "changed")])
    await eventually(lambda: "engines are gone" in caplog.text)
    assert "a listener failed" in caplog.text
    assert lines(log.path)[-1]["event"] == "landed"
    log.close()


async def test_a_hundred_thousand_lines_leave_the_memory_flat(tmp_path: Path, clock: Any):
    log = ActivityLog(tmp_path / "activity.jsonl", clock, max_bytes=200_000)
    for number in range(100_000):
        log.record(
            "gate", plan=f"p{number}", step="edit", agent="claude", verdict="approved", by="rule", paths=["a.py"]
        )
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 5 * 200_000
    assert len(os.listdir("/proc/self/fd")) < 200
    log.close()
    await asyncio.sleep(0)
