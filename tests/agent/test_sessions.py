"""What sessions have read: bounded over all of them, the oldest first, and gone with a session that is over."""

from __future__ import annotations

import pytest

from devtools_lsp.agent import sessions
from devtools_lsp.agent.sessions import SessionMemory
from devtools_lsp.core.workspace import DiskFile, FileText, sha256


def file(text: str) -> DiskFile:
    return DiskFile(sha256(text.encode()), len(text), FileText(text))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> SessionMemory:
    monkeypatch.setattr(sessions, "MAX_CHARACTERS", 10)
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    return SessionMemory()


def test_the_oldest_text_goes_first(memory: SessionMemory):
    for path in ("a", "b", "c"):
        memory.remember("one", path, file("1234"))
    assert [path for path in ("a", "b", "c") if memory.seen("one", path)] == ["b", "c"]
    # The same file again takes the place of what it was.
    memory.remember("one", "c", file("123456"))
    assert [path for path in ("b", "c") if memory.seen("one", path)] == ["b", "c"]


def test_the_session_that_was_quiet_longest_goes_first(memory: SessionMemory):
    for session in ("one", "two", "three", "one", "four"):
        memory.remember(session, "a", file("1"))
    assert [name for name in ("one", "two", "three", "four") if memory.seen(name, "a")] == ["one", "three", "four"]


def test_what_is_over_takes_no_room(memory: SessionMemory):
    for number in range(10):
        memory.remember("one", "a", file("12345"))
        memory.remember(f"guest {number}", "a", file("12345"))
        memory.forget(f"guest {number}")
        memory.forget("nobody")
        assert memory.seen(f"guest {number}", "a") is None
    assert memory.seen("one", "a") is not None
    memory.remember("one", "b", file("12345"))
    assert memory.seen("one", "a") is not None
