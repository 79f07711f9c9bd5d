"""Random plans and undos, a person's editor, and kill -9 at any moment: nothing torn, mixed or lost (I6, I7)."""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from pathlib import Path

import pytest

from tests.fs.wanderer import NEW, OLD, whole, word_of

SEEDS = [
    pytest.param(1, 2.0, id="short"),
    *[pytest.param(seed, 30.0, id=f"long{seed}", marks=pytest.mark.full) for seed in (2, 3)],
]


class Editor(threading.Thread):
    """Saves by rename and deletes, knowing nothing of the journal; `touched` are the paths, `saved` what came last."""

    def __init__(self, root: Path, seed: str) -> None:
        super().__init__()
        self.touched: set[str] = set()
        self.saved: dict[str, str] = {}
        self.stop = threading.Event()
        self._root = root
        self._source = random.Random(seed)
        self._seed = seed
        self._count = 0

    def run(self) -> None:
        while not self.stop.wait(self._source.uniform(0, 0.02)):
            path = self._source.choice(OLD)
            self.touched.add(path)
            with contextlib.suppress(FileNotFoundError):
                if self._source.random() < 0.1:
                    os.unlink(self._root / path)
                    self.saved.pop(path, None)
                else:
                    self._save(path)

    def _save(self, path: str) -> None:
        self._count += 1
        word = f"e.{self._seed}.{self._count}.{self._source.choice((1, 40, 900))}"
        target = self._root / path
        aside = target.with_suffix(".saving")
        aside.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(whole(word))
        os.rename(aside, target)
        self.saved[path] = word


@pytest.fixture(params=["one mount", "two mounts", "no exchange"])
def place(request, tree, mounted):
    if request.param == "two mounts":
        mounted("-t", "tmpfs", "tmpfs", at=tree.root / "d1")
    tree.fill({path: whole(f"s.{number}.7") for number, path in enumerate(OLD)})
    return {"exchange": request.param != "no exchange"}


@pytest.mark.parametrize(("seed", "seconds"), SEEDS)
def test_random_plans_killed_at_any_moment(tree, place, crasher, recover, tmp_path, seed, seconds):
    """After each start: whole files, an empty journal, the last plan all there or not at all, every save accounted for.

    Without an exchange the comparison comes just before the rename, and a save in between is overwritten: there nobody
    else writes.
    """
    source = random.Random(seed)
    log = tmp_path / "deeds"
    kills = commits = 0
    begun = time.monotonic()
    while time.monotonic() - begun < seconds or not commits:
        log.write_bytes(b"")
        life = f"{seed}.{kills}"
        editor = Editor(tree.root, life)
        if place["exchange"]:
            editor.start()
        crasher.run(
            do="wander", root=tree.root, seed=life, log=str(log), kill_after_s=source.uniform(0.01, 0.2), **place
        )
        editor.stop.set()
        if place["exchange"]:
            editor.join()
        kills += 1
        report = recover()
        assert report.problems == ()
        assert [plan for plan in report.plans if plan.outcome == "stuck" or plan.refused] == []
        deeds = [json.loads(line) for line in log.read_bytes().splitlines()]
        commits += sum("done" in deed for deed in deeds)
        assert {deed["code"] for deed in deeds if "refused" in deed} <= {"E_DEV_CONFLICT", "E_DEV_STEP_FAILED"}
        look(tree, deeds, editor)


def look(tree, deeds: list[dict], editor: Editor) -> None:
    files = tree.files()
    words = {path: word_of(content) for path, content in files.items()}
    assert {path: files[path][:100] for path, word in words.items() if word is None} == {}
    beside = {word for path, word in words.items() if path.endswith(".kept")}
    assert {path for path in files if not path.endswith(".kept")} <= {*OLD, *NEW}
    assert [name for name in tree.litter() if not name.endswith(".kept")] == []
    begun = {deed["begins"]: deed for deed in deeds if "begins" in deed}
    ended = {deed.get("done") or deed.get("refused") for deed in deeds}
    for plan, deed in begun.items():
        if plan in ended:
            continue
        alone = {path for path in deed["puts"] if path not in editor.touched}
        new = {path for path in alone if words.get(path) == deed["puts"][path] != deed["base"][path]}
        old = {path for path in alone if words.get(path) == deed["base"][path] != deed["puts"][path]}
        assert not (new and old), deed
    for path, word in editor.saved.items():
        built_upon = any(word in deed["base"].values() for deed in begun.values())
        assert words.get(path) == word or word in beside or built_upon, (path, word)
