"""Nothing is lost, half written or mixed, whoever works at the same time and whenever the daemon is killed (I6, I7)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from tests.attack.chaos import NEW, PATHS, Chaos, ChaosAgent, Deed, Editor, whole, word_of
from tests.attack.daemon import Daemon

SEEDS = [
    pytest.param(1, 4.0, id="short"),
    *[pytest.param(n, 45.0, id=f"long{n}", marks=pytest.mark.full) for n in (2, 3, 4)],
]


@pytest.fixture
def daemon(new_daemon) -> Daemon:
    return new_daemon()


def run(chaos: Chaos, actors: list[Callable[[], None]], *, seconds: float, wanted: tuple[str, ...]) -> None:
    """Let them work, and kill the daemon again and again at a random moment; it is looked at after each start.

    Ends when the time is over and, on a slow machine, each of the `wanted` things has happened.
    """
    source = random.Random(f"{chaos.seed} killer")
    chaos.daemon.start()
    begun = time.monotonic()
    while (spent := time.monotonic() - begun) < seconds or not all(chaos.count[what] for what in wanted):
        assert spent < 20 * seconds, chaos.count
        chaos.stop.clear()
        first = len(chaos.deeds)
        threads = [threading.Thread(target=actor) for actor in actors]
        for thread in threads:
            thread.start()
        time.sleep(source.uniform(0.05, 0.6))
        chaos.daemon.kill()
        chaos.stop.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        chaos.daemon.start()
        chaos.count["killed"] += 1
        look(chaos, chaos.deeds[first:])
        assert chaos.faults == []
    chaos.daemon.stop()
    look(chaos, [])


def look(chaos: Chaos, deeds: list[Deed]) -> None:
    """After a start nothing is under way: every file is whole, and what was interrupted is all there or not at all."""
    files = chaos.daemon.tree()
    words = {path: word_of(content) for path, content in files.items()}
    assert None not in words.values(), {path: files[path][:100] for path, word in words.items() if word is None}
    litter = [name for name in chaos.daemon.litter() if not name.endswith(".kept")]
    assert litter == []
    for deed in deeds:
        there = {path for path, word in deed.puts.items() if word is not None and words.get(path) == word}
        if deed.outcome == "refused":
            assert there == set(), deed
        if deed.outcome == "unknown" and there:
            others = [other for other in deeds if other is not deed and other.ended > deed.begun]
            if any(other.undo for other in others):
                continue  # What it put may have been taken back in part, where others were in the way.
            alone = deed.puts.keys() - there - {path for other in others for path in other.puts}
            before = {path for path in alone if words.get(path) == deed.base[path]}
            assert before == set(), (deed, chaos.daemon.log)


@pytest.mark.parametrize(("seed", "seconds"), SEEDS)
def test_agents_an_editor_undo_and_kills(daemon, seed, seconds):
    """Everybody does everything; each content is one that somebody wrote, and patches land as a whole."""
    daemon.put({path: whole(f"start.{number}.7") for number, path in enumerate(PATHS)})
    chaos = Chaos(daemon, seed)
    actors = [
        ChaosAgent(chaos, "one").live,
        ChaosAgent(chaos, "two").live,
        Editor(chaos).live,
    ]
    run(chaos, actors, seconds=seconds, wanted=("done", "refused", "undone", "editor"))


@pytest.mark.parametrize(("seed", "seconds"), SEEDS)
def test_no_save_of_a_person_is_lost(daemon, seed, seconds):
    """What a person saved is there, or somebody who had read it put something in its place."""
    daemon.put({path: whole(f"start.{number}.7") for number, path in enumerate(PATHS)})
    chaos = Chaos(daemon, seed)
    actors = [
        ChaosAgent(chaos, "one", takes=False).live,
        ChaosAgent(chaos, "two", takes=False).live,
        Editor(chaos, takes=False).live,
    ]
    run(chaos, actors, seconds=seconds, wanted=("done", "refused", "editor"))
    files = daemon.tree()
    saved: dict[str, str] = {}
    for deed in chaos.deeds:
        if deed.who == "editor":
            saved.update({path: word for path, word in deed.puts.items() if word is not None})
    beside = {word_of(content) for path, content in files.items() if path.endswith(".kept")}
    for path, word in saved.items():
        assert word in beside or builds_on(chaos.deeds, path, files.get(path), word), (path, word)
    assert not set(files) - {*PATHS, *NEW} - {path for path in files if path.endswith(".kept")}


def builds_on(deeds: list[Deed], path: str, content: bytes | None, word: str) -> bool:
    """Whether what is at a path now is this word, or was made by a chain of deeds that began with it."""
    reached: set[str | None] = {word}
    for deed in deeds:
        if path in deed.puts and deed.outcome != "refused" and deed.base.get(path, ...) in reached:
            reached.add(deed.puts[path])
    return (word_of(content) if content is not None else None) in reached
