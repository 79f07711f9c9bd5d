"""A process that commits one random plan after the other, undoes some of them, and waits to be killed.

Run by the zygote. Every content is one word, repeated as often as its last part says, so that a look at a file tells
whether all of it is there. It writes down what it is about to do, and how that ended, as JSON lines.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from devtools_lsp.core.workspace import sha256
from devtools_lsp.errors import DevToolsError
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.ports import Mutation

OLD = tuple(f"d{number % 3}/f{number}.txt" for number in range(9))
NEW = tuple(f"n{number}/deep/x{number}.txt" for number in range(4))
_ORDER = ("rename", "delete", "write", "rmdir")


def whole(word: str) -> bytes:
    """The content that a word stands for."""
    return (word + "\n").encode() * int(word.rpartition(".")[2])


def word_of(content: bytes) -> str | None:
    """The word of a content; None for what nobody wrote, in whole."""
    word = content.partition(b"\n")[0].decode("utf-8", "replace")
    return word if word.rpartition(".")[2].isdecimal() and whole(word) == content else None


def word_at(root: Path, path: str) -> str | None:
    """The word of a file, None for an absent one; raises ValueError for a torn one."""
    try:
        content = (root / path).read_bytes()
    except FileNotFoundError:
        return None
    word = word_of(content)
    if word is None:
        raise ValueError(f"{path} is torn: {content[:100]!r}")
    return word


class Wanderer:
    """One life; `say` takes what is to be written down."""

    def __init__(self, file_system: LocalFileSystem, seed: str, say: Callable[[dict[str, Any]], None]) -> None:
        self._fs = file_system
        self._root = Path(file_system.root)
        self._source = random.Random(seed)
        self._seed = seed
        self._say = say
        self._count = 0

    def live(self) -> None:
        while True:
            self._count += 1
            plan = f"p{self._seed}-{self._count}"
            mutations = self._undo(plan) if self._source.random() < 0.25 else self._plan()
            if not mutations:
                continue
            puts = self._puts(mutations)
            self._say({"begins": plan, "puts": puts, "base": {path: word_at(self._root, path) for path in puts}})
            try:
                self._fs.commit_now(plan, mutations, make_parents=True)
            except DevToolsError as error:
                self._say({"refused": plan, "code": error.code})
            else:
                self._say({"done": plan})

    def _undo(self, by: str) -> list[Mutation]:
        try:
            undo = asyncio.run(self._fs.undo_plan())
        except DevToolsError:
            return []
        asyncio.run(self._fs.mark_undone(undo.plan, by))
        return list(undo.mutations)

    def _plan(self) -> list[Mutation]:
        found: list[Mutation] = []
        free = [path for path in (*OLD, *NEW) if not (self._root / path).exists()]
        for path in self._source.sample((*OLD, *NEW), self._source.choice((1, 2, 2, 3, 5, 7))):
            old = word_at(self._root, path)
            expect = sha256(whole(old)) if old is not None else None
            fate = self._source.random()
            if path in free and old is None:
                free.remove(path)
            if old is None or fate < 0.6:
                found.append(Mutation("write", path, whole(self._word()), expect=expect))
            elif fate < 0.8 or not free:
                found.append(Mutation("delete", path, expect=expect))
            else:
                target = free.pop()
                found.append(Mutation("rename", target, source=path, expect=expect))
                if self._source.random() < 0.5:
                    found.append(Mutation("write", target, whole(self._word()), expect=expect))
        touched = [mutation.path for mutation in found if mutation.kind == "rename"]
        written = [mutation.path for mutation in found if mutation.kind == "write" and mutation.expect is None]
        if set(touched) & set(written):
            return []  # A name that another of them takes: refused for sure.
        return sorted(found, key=lambda mutation: _ORDER.index(mutation.kind))

    def _word(self) -> str:
        size = self._source.choice((1, 3, 40, 900, 9000))
        return f"w.{self._seed}.{self._count}.{self._source.randrange(1 << 20)}.{size}"

    def _puts(self, mutations: list[Mutation]) -> dict[str, str | None]:
        """What each path will hold."""
        puts: dict[str, str | None] = {}
        for mutation in mutations:
            if mutation.kind == "write":
                puts[mutation.path] = word_of(mutation.data)
            elif mutation.kind == "delete":
                puts[mutation.path] = None
            elif mutation.kind == "rename":
                source = mutation.source or ""
                puts[mutation.path] = word_at(self._root, source)
                puts[source] = None
        return puts


def wander(file_system: LocalFileSystem, seed: str, log: str) -> None:
    """Live until killed."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    Wanderer(file_system, seed, lambda entry: os.write(descriptor, json.dumps(entry).encode() + b"\n") and None).live()
