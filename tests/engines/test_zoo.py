"""Servers that misbehave: every call ends within its bound, and nothing unjudged passes for clean (I13, I14)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from devtools_lsp.errors import CallCancelledError, StepFailedError, WaitTimeoutError
from devtools_lsp.ports import Cancellation

BAD = {"a.py": "x = bad\n"}


async def test_the_well_behaved_one_shows_what_the_others_break(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("well_behaved.py"), files={"a.py": "x = bad  \n"})
    lint = await scene.run("lint", "a.py")
    assert [(f.line, f.column, f.end_column, f.rule) for f in lint.diagnostics] == [(1, 5, 8, "bad")]
    assert (await scene.run("format", "a.py")).changed == {"a.py": "x = bad\n"}
    fixed = await scene.run("lint", "a.py", fix=True)
    assert fixed.changed == {"a.py": "x = good  \n"}
    assert [(f.line, f.message) for f in fixed.fixed] == [(1, "bad is here")]
    assert scene.registry.status()[0].version == "1.2.3"


@pytest.mark.parametrize(
    ("script", "arguments", "why", "calls"),
    [
        ("crashes_at_initialize.py", [], "no licence, no service", 1),
        ("exits_at_once.py", ["0"], "exit code 0", 1),
        ("exits_at_once.py", ["1"], "exit code 1", 5),
        ("banner.py", [], "Content-Length", 1),
        ("odd_encoding.py", ["ebcdic"], "ebcdic", 1),
    ],
)
async def test_a_server_that_cannot_start_fails_each_call_soon(
    make_scene: Any, engines: Any, script: str, arguments: list[str], why: str, calls: int
) -> None:
    """P100: checks in a row are each answered in under five seconds, with few starts."""
    scene = make_scene(engines.zoo_spec(script, *arguments), files=BAD)
    for _ in range(calls):
        started = time.monotonic()
        with pytest.raises(StepFailedError) as failure:
            await scene.run("check", "a.py")
        assert time.monotonic() - started < 5
        assert why in failure.value.message
        assert failure.value.retry == ("yes" if "tried again in" in failure.value.message else "no")
    assert len([event for event in scene.events if event[1] == "failed"]) <= 6
    (status,) = scene.registry.status()
    assert status.state in ("restarting", "failed")
    assert why in status.reason


async def test_a_server_that_never_initializes_is_given_up(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("never_answers.py", "initialize", start_timeout_s=0.5), files=BAD)
    with pytest.raises(StepFailedError, match="initialize was not answered"):
        await scene.run("check", "a.py")


@pytest.mark.parametrize(("deaths", "attempts"), [(1, 1), (2, 1)])
async def test_the_running_call_gets_one_retry(
    make_scene: Any, engines: Any, tmp_path: Path, deaths: int, attempts: int
) -> None:
    scene = make_scene(engines.zoo_spec("dies_mid_request.py", str(tmp_path / "deaths"), str(deaths)), files=BAD)
    if deaths == 1:
        delta = await scene.run("check", "a.py")
        assert [f.rule for f in delta.diagnostics] == ["bad"]
    else:
        with pytest.raises(StepFailedError, match="died twice"):
            await scene.run("check", "a.py")
        # The next call finds a server again, once its back-off is over.
        delta = await scene.run("check", "a.py")
        assert [f.rule for f in delta.diagnostics] == ["bad"]
    assert scene.registry.status()[0].generation == deaths + 1


async def test_a_death_with_several_questions_under_way_gets_its_retry_too(
    make_scene: Any, engines: Any, tmp_path: Path
) -> None:
    files = {f"m{number}.py": "x = bad\n" for number in range(5)}
    scene = make_scene(engines.zoo_spec("dies_mid_request.py", str(tmp_path / "deaths"), "1"), files=files)
    delta = await scene.run("check", *files)
    assert {f.path for f in delta.diagnostics} == set(files)


async def test_a_server_that_never_answers_leaves_the_file_pending(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("never_answers.py", timeout_s=1.5, hung_after_s=2.5), files=BAD)
    first = await scene.run("check", "a.py")
    assert first.diagnostics == ()
    assert [(p.path, "did not answer" in p.reason) for p in first.pending] == [("a.py", True)]
    with pytest.raises(WaitTimeoutError, match="not formatted"):
        await scene.run("format", "a.py")
    verdict = await scene.compare(changes={"a.py": "x = bad + bad\n"})
    assert verdict.judged == frozenset()
    assert set(verdict.pending) == {"a.py"}


async def test_a_hung_server_is_replaced(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("never_answers.py", timeout_s=0.2, hung_after_s=0.3), files=BAD)
    deadline = time.monotonic() + 10
    while scene.registry.status()[0].generation < 2:
        assert time.monotonic() < deadline, "no other process"
        await scene.run("check", "a.py")
    assert any("not said anything" in str(event[2].get("reason")) for event in scene.events)


@pytest.mark.parametrize("how", ["broken", "list", "deep", "shape"])
async def test_invalid_json_fails_the_call_and_not_the_daemon(make_scene: Any, engines: Any, how: str) -> None:
    scene = make_scene(engines.zoo_spec("invalid_json.py", how), files=BAD)
    with pytest.raises(StepFailedError, match="malformed"):
        await scene.run("check", "a.py")


@pytest.mark.parametrize("how", ["short", "long", "negative", "huge", "word"])
async def test_a_wrong_content_length_is_never_a_clean_report(make_scene: Any, engines: Any, how: str) -> None:
    # A new server is started within the call: on a busy machine that takes its time.
    scene = make_scene(engines.zoo_spec("wrong_length.py", how, timeout_s=1.5 if how == "long" else 10), files=BAD)
    if how == "long":
        # It may yet send what it announced: only time tells that it will not.
        delta = await scene.run("check", "a.py")
        assert [p.path for p in delta.pending] == ["a.py"]
        return
    with pytest.raises(StepFailedError, match="died twice"):
        await scene.run("check", "a.py")


async def test_a_flood_is_answered_and_the_loop_goes_on(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("floods.py"), files=BAD)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.create_task(tick())
    delta = await scene.run("check", "a.py")
    ticking.cancel()
    assert [f.rule for f in delta.diagnostics] == ["bad"]
    assert ticks > 10


async def test_a_flood_without_an_answer_ends_at_the_deadline(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("floods.py", "forever", timeout_s=1), files=BAD)
    started = time.monotonic()
    delta = await scene.run("check", "a.py")
    assert time.monotonic() - started < 3
    assert [p.path for p in delta.pending] == ["a.py"]


@pytest.mark.parametrize("how", ["old", "new", "none"])
async def test_a_push_for_another_version_is_not_believed(make_scene: Any, engines: Any, how: str) -> None:
    scene = make_scene(engines.zoo_spec("lies_about_versions.py", how, diagnostics="push", timeout_s=0.4), files=BAD)
    delta = await scene.run("check", "a.py")
    assert [p.path for p in delta.pending] == ["a.py"]
    # Findings without a version are shown, though the file stays pending.
    assert [f.rule for f in delta.diagnostics] == (["bad"] if how == "none" else [])


async def test_a_push_that_comes_after_a_stale_one_is_the_answer(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("lies_about_versions.py", "slow", diagnostics="push"), files=BAD)
    delta = await scene.run("check", "a.py")
    assert [f.rule for f in delta.diagnostics] == ["bad"]
    assert delta.pending == ()


async def test_a_late_registration_is_waited_for(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("registers.py", "late"), files=BAD)
    delta = await scene.run("check", "a.py")
    assert [f.rule for f in delta.diagnostics] == ["bad"]


@pytest.mark.parametrize(("how", "rules"), [("twice", ["bad", "worse"]), ("twice-then-once", ["worse"])])
async def test_registrations_are_kept_by_id(make_scene: Any, engines: Any, how: str, rules: list[str]) -> None:
    """P103: two identifiers are both pulled and merged; one that was taken back is not."""
    scene = make_scene(engines.zoo_spec("registers.py", how), files={"a.py": "bad = worse\n"})
    await scene.registry.start()
    # The registrations have arrived when a first answer has.
    await scene.run("check", "a.py", changes={"a.py": "\n"})
    delta = await scene.run("check", "a.py")
    assert sorted(str(f.rule) for f in delta.diagnostics) == rules


async def test_a_registration_counts_for_the_files_of_its_selector(make_scene: Any, engines: Any) -> None:
    text = "bad = worse\n"
    paths = ["chosen_a.py", "sub/deep/x.py", "sub/chosen_b.py", "chosen_z.py"]
    scene = make_scene(engines.zoo_spec("registers.py", "chosen", timeout_s=20), files=dict.fromkeys(paths, text))
    # Both registrations have arrived when a file of the second was answered.
    await scene.run("check", "sub/deep/x.py", changes={"sub/deep/x.py": "\n"})
    started = time.monotonic()
    delta = await scene.run("check", *paths)
    assert time.monotonic() - started < 15
    rules = {path: sorted(str(f.rule) for f in delta.diagnostics if f.path == path) for path in paths}
    assert rules == {
        "chosen_a.py": ["bad"],
        "sub/deep/x.py": ["worse"],
        "sub/chosen_b.py": ["bad", "worse"],
        "chosen_z.py": [],
    }
    assert [(p.path, p.reason) for p in delta.pending] == [
        ("chosen_z.py", "the engine has not offered diagnostics for this file")
    ]


async def test_what_a_cancelled_request_answers_is_never_read(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("answers_when_cancelled.py", timeout_s=0.3), files=BAD)
    first = await scene.run("check", "a.py")
    assert [p.path for p in first.pending] == ["a.py"]
    second = await scene.run("check", "a.py")
    assert [f.rule for f in second.diagnostics] == ["bad"]


async def test_a_busy_server_is_asked_again(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("busy.py", needs_result_id=True), files=BAD)
    delta = await scene.run("check", "a.py")
    assert [f.rule for f in delta.diagnostics] == ["bad"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_positions_are_converted_from_the_servers_encoding(make_scene: Any, engines: Any, encoding: str) -> None:
    """P95: after an emoji the column is 14, whatever the server counts in."""
    scene = make_scene(engines.zoo_spec("odd_encoding.py", encoding), files={"e.py": "x = '😀'; y = bad\n"})
    delta = await scene.run("check", "e.py")
    assert [(f.line, f.column, f.end_column) for f in delta.diagnostics] == [(1, 14, 17)]


async def test_cancelling_a_call_ends_it_and_keeps_the_server(make_scene: Any, engines: Any) -> None:
    scene = make_scene(engines.zoo_spec("never_answers.py"), files=BAD)
    await scene.registry.start()
    signal = Cancellation()
    running = asyncio.create_task(scene.run("check", "a.py", signal=signal))
    await engines.eventually(lambda: scene.registry.status()[0].state == "ready", what="started")
    signal.cancel("enough")
    with pytest.raises(CallCancelledError, match="enough"):
        await running
    assert scene.registry.status()[0].generation == 1


async def test_closing_ends_a_server_that_ignores_everything_and_its_runaway_child(
    make_scene: Any, engines: Any, tmp_path: Path
) -> None:
    scene = make_scene(engines.zoo_spec("ignores_shutdown.py", str(tmp_path / "child")), files=BAD)
    await scene.run("check", "a.py")
    server = scene.registry.status()[0].pid
    note = tmp_path / "child"
    await engines.eventually(lambda: note.exists() and bool(note.read_text()), what="the child runs")
    child = int(note.read_text())
    started = time.monotonic()
    await scene.registry.close()
    assert time.monotonic() - started < 8
    for pid in (server, child):
        await engines.eventually(lambda pid=pid: not alive(pid), what=f"{pid} is gone")


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_whatever_was_started_is_reaped_when_closing_returns(make_scene: Any, engines: Any) -> None:
    """A server that broke the protocol is being killed when the registry closes: that is waited for, too."""
    for _ in range(4):
        scene = make_scene(engines.zoo_spec("wrong_length.py", "negative", timeout_s=10), files=BAD)
        with pytest.raises(StepFailedError):
            await scene.run("check", "a.py")
        await scene.registry.close()
        started = [details["pid"] for _, what, details in scene.events if what == "started"]
        assert started
        assert [pid for pid in started if psutil.pid_exists(pid)] == []
