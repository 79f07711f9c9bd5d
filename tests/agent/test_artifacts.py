"""The spool of full results."""

from __future__ import annotations

import asyncio
import json
import re
import stat
import threading
from pathlib import Path

import msgspec
import pytest

from devtools_lsp.agent.artifacts import ArtifactStore
from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.core.result import Result
from devtools_lsp.errors import BadArgumentError, InvalidConfigError
from tests.results import result_of


class HandClock:
    """Time that the test turns."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(tmp_path: Path, clock: HandClock):
    """Make a store in the test's spool; all are closed at the end."""
    made: list[ArtifactStore] = []

    def make(directory: Path = tmp_path / "state" / "spool", **bounds) -> ArtifactStore:
        made.append(ArtifactStore(directory, clock=clock, **bounds))
        return made[-1]

    yield make
    for one in made:
        one.close()


def result(count: int = 3) -> Result:
    severities = ("error", "warning", "info")
    diagnostics = [
        Diagnostic(
            path=None if number == 2 else f"src/{number % 2}.py",
            severity=severities[number % 3],
            message=f"finding {number}",
            engine_id=None if number == 2 else "ruff",
            out_of_scope=False,
            line=number + 1,
        )
        for number in range(count)
    ]
    return result_of(diagnostics=diagnostics)


def settled(spool: ArtifactStore) -> None:
    """Wait for the writer to be idle."""
    spool._writer.submit(lambda: None).result(5)


async def test_the_whole_result_comes_back(store):
    spool = store()
    full = result()
    kept = spool.spool(full)
    assert kept.total == 3
    assert json.loads(await spool.read(kept.handle)) == full.to_wire()
    settled(spool)
    assert json.loads(await spool.read(kept.handle)) == full.to_wire()


async def test_plain_data_is_spooled_too(store):
    spool = store()
    kept = spool.spool({"data": {"x": 1}})
    assert kept.total == 0
    assert json.loads(await spool.read(kept.handle)) == {"data": {"x": 1}}
    assert await spool.page(kept.handle) == {"items": [], "offset": 0, "total": 0}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, {"lines": range(1, 8), "offset": 0, "total": 7}),
        ({"limit": 3}, {"lines": [1, 2, 3], "offset": 0, "total": 7, "nextOffset": 3}),
        ({"limit": 3, "offset": 3}, {"lines": [4, 5, 6], "offset": 3, "total": 7, "nextOffset": 6}),
        ({"limit": 3, "offset": 6}, {"lines": [7], "offset": 6, "total": 7}),
        ({"offset": 100}, {"lines": [], "offset": 100, "total": 7}),
        ({"severity": "error"}, {"lines": [1, 4, 7], "offset": 0, "total": 3}),
        ({"path": "src/1.py"}, {"lines": [2, 4, 6], "offset": 0, "total": 3}),
        ({"path": "src/1.py", "severity": "error"}, {"lines": [4], "offset": 0, "total": 1}),
        ({"engine_id": "ruff", "limit": 100}, {"lines": [1, 2, 4, 5, 6, 7], "offset": 0, "total": 6}),
        ({"engine_id": None}, {"lines": [3], "offset": 0, "total": 1}),
        ({"engine_id": "other"}, {"lines": [], "offset": 0, "total": 0}),
    ],
)
async def test_pages_and_filters(store, asked: dict, expected: dict):
    spool = store()
    page = await spool.page(spool.spool(result(7)).handle, **asked)
    page["lines"] = [item["line"] for item in page.pop("items")]
    assert page == {**expected, "lines": list(expected["lines"])}


@pytest.mark.parametrize("asked", [{"offset": -1}, {"limit": 0}, {"limit": 1001}])
async def test_numbers_out_of_range(store, asked: dict):
    spool = store()
    with pytest.raises(BadArgumentError) as caught:
        await spool.page(spool.spool(result()).handle, **asked)
    assert caught.value.reason == "malformed"


@pytest.mark.parametrize("handle", ["", "x", "../../etc/passwd", "a" * 22, "/etc/passwd", "a" * 10_000])
async def test_unknown_handles(store, handle: str):
    with pytest.raises(BadArgumentError, match="unknown or has expired") as caught:
        await store().page(handle)
    assert caught.value.reason == "notFound"
    assert len(caught.value.message) < 300


async def test_files_are_private_and_names_cannot_be_guessed(store, tmp_path: Path):
    spool = store()
    handles = {spool.spool(result()).handle for _ in range(20)}
    settled(spool)
    directory = tmp_path / "state" / "spool"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {path.name for path in directory.iterdir()} == {f"{handle}.json" for handle in handles}
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{22}", handle) for handle in handles)


@pytest.mark.parametrize("flaw", ["link", "open", "file"])
def test_a_directory_that_others_can_reach_is_refused(store, tmp_path: Path, flaw: str):
    directory = tmp_path / "spool"
    if flaw == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        directory.symlink_to("elsewhere")
    elif flaw == "open":
        directory.mkdir()
        directory.chmod(0o755)
    else:
        directory.touch()
    with pytest.raises((InvalidConfigError, FileExistsError)):
        store(directory)


def files_in(tmp_path: Path) -> set[str]:
    return {path.name.removesuffix(".json") for path in (tmp_path / "state" / "spool").iterdir()}


async def test_bounded_by_count(store, tmp_path: Path):
    spool = store(max_count=3)
    handles = [spool.spool(result()).handle for _ in range(6)]
    settled(spool)
    assert files_in(tmp_path) == set(handles[3:])
    with pytest.raises(BadArgumentError, match="the last 3"):
        await spool.page(handles[2])
    assert (await spool.page(handles[3]))["total"] == 3


async def test_bounded_by_age(store, clock: HandClock, tmp_path: Path):
    spool = store(max_age_s=3600)
    first = spool.spool(result()).handle
    clock.now += 1800
    second = spool.spool(result()).handle
    settled(spool)
    clock.now += 1801
    with pytest.raises(BadArgumentError, match="for 1 h"):
        await spool.page(first)
    assert (await spool.page(second))["total"] == 3
    assert files_in(tmp_path) == {second}


async def test_bounded_by_size(store, tmp_path: Path):
    size = len(msgspec.json.encode(result(50)))
    spool = store(max_bytes=int(size * 2.5))
    handles = []
    for _ in range(4):
        handles.append(spool.spool(result(50)).handle)
        settled(spool)
    assert files_in(tmp_path) == set(handles[2:])


async def test_one_that_is_too_large_is_not_kept_and_says_so(store, tmp_path: Path):
    spool = store(max_bytes=2_000)
    small = spool.spool(result(1)).handle
    large = spool.spool(result(500)).handle
    settled(spool)
    with pytest.raises(BadArgumentError, match="was not kept: it had"):
        await spool.page(large)
    assert (await spool.page(small))["total"] == 1
    assert files_in(tmp_path) == {small}


async def test_a_later_process_serves_them_until_they_are_old(store, clock: HandClock, tmp_path: Path):
    spool = store()
    handle = spool.spool(result()).handle
    spool.close()
    directory = tmp_path / "state" / "spool"
    (directory / ".interrupted.json").write_text("{")
    (directory / "unrelated.txt").write_text("kept")
    born = (directory / f"{handle}.json").stat().st_mtime
    clock.now = born + 10
    later = store(max_age_s=3600)
    assert (await later.page(handle))["total"] == 3
    assert files_in(tmp_path) == {handle, "unrelated.txt"}
    clock.now = born + 3601
    store(max_age_s=3600)
    assert files_in(tmp_path) == {"unrelated.txt"}


async def test_what_cannot_be_written_stays_in_memory(store, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    spool = store(max_count=2)
    (tmp_path / "state" / "spool").rmdir()
    handle = spool.spool(result()).handle
    settled(spool)
    assert "kept in memory" in caplog.text
    assert (await spool.page(handle))["total"] == 3
    for _ in range(2):
        spool.spool(result())
    with pytest.raises(BadArgumentError, match="expired"):
        await spool.page(handle)


async def test_a_file_that_somebody_removed_has_expired(store, tmp_path: Path):
    spool = store()
    handle = spool.spool(result()).handle
    settled(spool)
    (tmp_path / "state" / "spool" / f"{handle}.json").unlink()
    with pytest.raises(BadArgumentError, match="expired"):
        await spool.page(handle)


async def test_no_handle_is_ever_lost_before_it_is_used(store):
    """Threads spool while the loop reads each handle at once, whether or not it is on disk yet."""
    spool = store(max_count=2_000)
    handles: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def work(offset: int) -> None:
        for number in range(50):
            count = offset + number
            loop.call_soon_threadsafe(handles.put_nowait, (spool.spool(result(count)).handle, count))

    threads = [threading.Thread(target=work, args=(offset,)) for offset in (1, 60, 120)]
    for thread in threads:
        thread.start()
    for _ in range(150):
        async with asyncio.timeout(10):
            handle, count = await handles.get()
        page = await spool.page(handle, limit=1)
        assert page["total"] == count
    for thread in threads:
        thread.join()


def test_spooling_costs_the_caller_little(store):
    """The caller does not wait for encoding and writing 20,000 findings."""
    spool = store()
    full = result(20_000)
    gate = threading.Event()
    spool._writer.submit(gate.wait, 10)
    kept = spool.spool(full)
    assert kept.total == 20_000
    gate.set()
