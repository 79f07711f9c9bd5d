"""Open documents and what is unsaved in them: positions in three encodings, odd line ends, editors' habits."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.daemon.buffers import Change, EditorBuffers
from devtools_lsp.daemon.disk import Disk
from devtools_lsp.daemon.documents import Document, digest_of
from devtools_lsp.daemon.lsp_rim import (
    NOWHERE,
    LspText,
    PositionEncoding,
    UriMap,
    from_lsp_character,
    to_lsp_diagnostic,
    units,
)

ENCODINGS: tuple[PositionEncoding, ...] = get_args(PositionEncoding)
LINE_END = re.compile(r"\r\n|\n|\r")


def lsp_place(text: str, offset: int, encoding: PositionEncoding) -> tuple[int, int]:
    """The (line, character) of an offset, computed the slow way from the protocol's own words."""
    line = start = 0
    for found in LINE_END.finditer(text):
        if found.end() > offset:
            break
        line, start = line + 1, found.end()
    return line, units(text[start:offset], encoding)


TEXT = st.text(alphabet="ab \té😀\u2028\x0c\n\r", max_size=40)


@seed(31)
@settings(max_examples=500, deadline=None)
@given(TEXT, st.lists(st.tuples(TEXT, st.integers(0, 40), st.integers(0, 40)), max_size=5), st.sampled_from(ENCODINGS))
def test_changes_arrive_as_the_editor_made_them(
    text: str, edits: list[tuple[str, int, int]], encoding: PositionEncoding
):
    """Any sequence of changes, whatever ends its lines, gives the text that the editor has."""
    document = Document(text, encoding)
    for replacement, first, second in edits:
        start, end = sorted((first % (len(text) + 1), second % (len(text) + 1)))
        if text[start - 1 : start + 1] == "\r\n" or text[end - 1 : end + 1] == "\r\n":
            continue  # No editor has a cursor between the two halves of a line end.
        document.edit(lsp_place(text, start, encoding), lsp_place(text, end, encoding), replacement)
        text = text[:start] + replacement + text[end:]
        assert document.text == text.replace("\r\n", "\n")
        assert document._size == len(text)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_places_outside_the_text_are_clamped(encoding: PositionEncoding):
    document = Document("one\ntwo", encoding)
    document.edit((0, 99), (0, 99), "!")
    document.edit((99, 0), (99, 9), "?")
    assert document.text == "one!\ntwo?"


def test_many_changes_in_one_message_stay_cheap():
    """Five hundred edits of a large text take as long as their lines, not as the text."""
    text = "".join(f"line {number}\n" for number in range(50_000))
    document = Document(text, "utf-16")
    lines = text.split("\n")
    for number in random.Random(1).sample(range(50_000), 500):
        document.edit((number, 0), (number, 4), "LINE")
        lines[number] = "LINE" + lines[number][4:]
    assert document.text == "\n".join(lines)


@pytest.mark.parametrize(
    ("encoding", "characters"), [("utf-8", [0, 1, 3, 7, 8]), ("utf-16", [0, 1, 2, 4, 5]), ("utf-32", [0, 1, 2, 3, 4])]
)
def test_characters_to_code_points_and_back(encoding: PositionEncoding, characters: list[int]):
    line = "aé😀b"
    assert [from_lsp_character(line, character, encoding) for character in characters] == [0, 1, 2, 3, 4]
    assert [units(line[:offset], encoding) for offset in range(5)] == characters


# -- our places as an editor's (D10) -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("x = 1\n", (1, 1, 1, 2), {"utf-8": (0, 0, 0, 1), "utf-16": (0, 0, 0, 1), "utf-32": (0, 0, 0, 1)}),
        (
            '\ts = "😀" + totl\n',
            (1, 12, 1, 16),
            {"utf-8": (0, 14, 0, 18), "utf-16": (0, 12, 0, 16), "utf-32": (0, 11, 0, 15)},
        ),
        ("é = x\n", (1, 5, None, None), {"utf-8": (0, 5, 0, 6), "utf-16": (0, 4, 0, 5), "utf-32": (0, 4, 0, 5)}),
        ("call(name)\n", (1, 6, None, None), {"utf-16": (0, 5, 0, 9)}),
        ("a + b\n", (1, 3, None, None), {"utf-16": (0, 2, 0, 3)}),
        ("  indented line \n", (1, None, None, None), {"utf-16": (0, 2, 0, 16)}),
        ("one\ntwo\nthree\n", (1, None, 2, None), {"utf-16": (0, 0, 1, 3)}),
        ("one\ntwo\nthree\n", (1, 2, 3, None), {"utf-16": (0, 1, 2, 5)}),
        ("one\n", (9, 9, 9, 9), {"utf-16": (1, 0, 1, 0)}),
        ("a\rb\nc d\n", (2, 3, 2, 4), {"utf-16": (2, 2, 2, 3)}),
        ("a\rb\nc d\n", (1, 3, 1, 4), {"utf-16": (1, 0, 1, 1)}),
        ("form\x0cfeed\u2028here\nnext x\n", (2, 6, 2, 7), {"utf-16": (1, 5, 1, 6)}),
    ],
)
def test_a_range_covers_exactly_the_offending_token(text: str, place: Any, expected: dict[Any, tuple[int, ...]]):
    for encoding, numbers in expected.items():
        found = LspText(text, encoding).to_lsp_range(*place)
        assert (found.start.line, found.start.character, found.end.line, found.end.character) == numbers


def test_a_diagnostic_keeps_its_data_and_says_where_even_without_a_text():
    finding = Diagnostic("a.py", "warning", "unused", "ruff", True, "F401", 3, 5, 3, 9)
    shown = to_lsp_diagnostic(finding, None)
    assert (shown.range.start.line, shown.range.end.line) == (2, 3)
    assert (shown.severity, shown.source, shown.code) == (2, "ruff", "F401")
    assert msgspec.to_builtins(shown.data) == {"engineId": "ruff", "outOfScope": True}
    notice = to_lsp_diagnostic(Diagnostic("a.py", "info", "a notice", None, False), LspText("", "utf-8"))
    assert (notice.source, notice.range, notice.data.engine_id) == ("devtools-lsp", NOWHERE, None)


def test_uris_go_both_ways_whatever_a_name_holds(tmp_path: Path):
    root = tmp_path / "real root"
    root.mkdir()
    alias = tmp_path / "alias"
    alias.symlink_to(root)
    plain, aliased = UriMap(root), UriMap(root, [alias.as_uri()])
    for path in ("a.py", "dir/ä 😀#?%.py", "app/[id]/x.tsx"):
        assert plain.from_lsp_uri(plain.to_lsp_uri(path)) == path
        assert aliased.from_lsp_uri(aliased.to_lsp_uri(path)) == path
        assert aliased.to_lsp_uri(path).startswith(alias.as_uri())
    assert plain.from_lsp_uri(alias.as_uri() + "/a.py") == "a.py"
    (root / "here.py").write_text("")
    assert plain.from_lsp_uri((alias / "here.py").as_uri()) == "here.py"
    for outside in (
        "untitled:Untitled-1",
        "file:///etc/passwd",
        root.as_uri(),
        f"{root.as_uri()}/../x",
        "file://host/x",
        "nonsense",
        "file:///%ff",
    ):
        assert plain.from_lsp_uri(outside) is None


async def test_a_large_document_is_settled_in_a_thread_unless_it_changes_meanwhile():
    text = "a line\r\n" * 10_000
    document = Document(text, "utf-16")
    await document.settle()
    assert document._digest == digest_of(text.replace("\r\n", "\n"))
    document.edit((0, 0), (0, 0), "new ")
    assert document._digest is None
    settling = asyncio.ensure_future(document.settle())
    await asyncio.sleep(0)
    document.edit((1, 0), (5000, 3), "another ")
    await settling
    assert document._digest is None, "that of a text from before would be worse than none"
    assert document.digest == digest_of(document.text)
    assert document.text.startswith("new a line\nanother ine\n")
    assert document._size == len("".join(document._lines))


# -- unsaved -----------------------------------------------------------------------------------------------------


@pytest.fixture
def buffers(tmp_path: Path):
    return EditorBuffers(Disk(tmp_path))


def test_a_buffer_is_dirty_when_a_person_would_lose_something(tmp_path: Path, buffers: EditorBuffers):
    (tmp_path / "a.py").write_bytes(b"one\r\ntwo\r\n")
    buffers.opened("e1", "a.py", "one\r\ntwo\r\n", 1, "utf-16")
    assert buffers.dirty(["a.py", "b.py"]) == []
    buffers.edited("e1", "a.py", [Change("ONE", (0, 0), (0, 3))], 2)
    assert buffers.dirty(["a.py", "b.py"]) == ["a.py"]
    unsaved = buffers.unsaved("a.py", None)
    assert unsaved is not None
    assert unsaved.text == "ONE\ntwo\n"
    buffers.edited("e1", "a.py", [Change("one", (0, 0), (0, 3))], 3)
    assert buffers.dirty(["a.py"]) == [], "undone"
    buffers.edited("e1", "a.py", [Change("new\n")], 4)
    buffers.saved("e1", "a.py")
    assert buffers.dirty(["a.py"]) == []


def test_line_ends_alone_make_nothing_dirty(tmp_path: Path, buffers: EditorBuffers):
    (tmp_path / "a.py").write_bytes(b"one\r\ntwo\r\n")
    buffers.opened("e1", "a.py", "one\ntwo\n", 1, "utf-16")
    assert buffers.dirty(["a.py"]) == []
    (tmp_path / "open").write_bytes(b"no final line break")
    buffers.opened("e1", "open", "no final line break\n", 1, "utf-8")
    assert buffers.dirty(["open"]) == [], "Neovim counts one that the file does not have"


def test_a_clean_buffer_that_waits_to_be_reloaded_is_not_dirty(tmp_path: Path, buffers: EditorBuffers):
    (tmp_path / "a.py").write_text("one\n")
    buffers.opened("e1", "a.py", "one\n", 1, "utf-16")
    (tmp_path / "a.py").write_text("agent\n")
    assert buffers.dirty(["a.py"]) == []
    buffers.edited("e1", "a.py", [Change("agent\n")], 2)
    assert buffers.dirty(["a.py"]) == [], "reloaded"
    (tmp_path / "a.py").write_text("agent again\n")
    assert buffers.dirty(["a.py"]) == []
    buffers.edited("e1", "a.py", [Change("typed\n")], 3)
    assert buffers.dirty(["a.py"]) == ["a.py"]


def test_a_restored_buffer_is_dirty_from_the_start(tmp_path: Path, buffers: EditorBuffers):
    (tmp_path / "a.py").write_text("one\n")
    buffers.opened("e1", "a.py", "unsaved yesterday\n", 1, "utf-16")
    assert buffers.dirty(["a.py"]) == ["a.py"]
    (tmp_path / "a.py").write_text("unsaved yesterday\n")
    assert buffers.dirty(["a.py"]) == []


def test_every_editor_counts_and_one_that_leaves_does_not(tmp_path: Path, buffers: EditorBuffers):
    told: list[str] = []
    buffers.listen(told.append)
    (tmp_path / "a.py").write_text("one\n")
    for editor in ("e1", "e2"):
        buffers.opened(editor, "a.py", "one\n", 1, "utf-8")
    buffers.edited("e2", "a.py", [Change("typed\n")], 2)
    assert buffers.dirty(["a.py"]) == ["a.py"]
    on_disk = digest_of("one\n")
    assert [buffers.find(editor, "a.py").is_unsaved(on_disk) for editor in ("e1", "e2")] == [False, True]  # type: ignore[union-attr]
    assert buffers.unsaved("a.py", on_disk) is buffers.find("e2", "a.py").document  # type: ignore[union-attr]
    assert buffers.unsaved("a.py", digest_of("typed\n")) is None, "somebody wrote the same"
    buffers.gone("e2")
    assert buffers.dirty(["a.py"]) == []
    assert buffers.open_paths() == ["a.py"]
    buffers.gone("e1")
    assert not buffers.is_open("a.py")
    buffers.edited("e1", "a.py", [Change("late\n")], 3)
    buffers.closed("e1", "a.py")
    assert told == ["a.py"] * 5


def test_a_file_that_is_not_text_here_is_dirty_once_it_was_typed_in(tmp_path: Path, buffers: EditorBuffers):
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    buffers.opened("e1", "latin", "café\n", 1, "utf-16")
    buffers.edited("e1", "latin", [Change("café!\n")], 2)
    assert buffers.dirty(["latin"]) == ["latin"]
    buffers.saved("e1", "latin")
    assert buffers.dirty(["latin"]) == []
