"""What a person reads before they decide: who wants what, what follows from it, what hides in it."""

from __future__ import annotations

from typing import Any

import msgspec

from devtools_lsp.core.diagnostics import Diagnostic, Pending
from devtools_lsp.core.result import Normalized
from devtools_lsp.daemon.approval_marks import first_lines
from devtools_lsp.daemon.approval_words import MarkWords, action_subject, consequences, diff_text, headline


async def waiting(bench: Any, *changes: Any, **more: Any) -> Any:
    count = len(bench.approvals.items())
    bench.ask(more.pop("step", "apply_patch"), changes, **more)
    return await bench.waiting(count + 1)


async def test_headlines(bench: Any, view: Any):
    bench.put(dict.fromkeys(("a.py", "b.py", "c.py", "d.py"), "one\ntwo\n"))
    one = await waiting(bench, bench.change("a.py", "one\n2\n3\n"), step="edit")
    assert headline(one) == "claude wants to edit a.py (+2 -1)"
    gone = await waiting(bench, bench.change("a.py", None))
    assert headline(gone) == "claude wants to patch a.py by deleting it (+0 -2)"
    moved = await waiting(bench, bench.change("z.py", "one\ntwo\n", source="a.py"))
    assert headline(moved) == "claude wants to patch a.py by moving it to z.py (+0 -0)"
    many = await waiting(bench, *(bench.change(f"{name}.py", "x\n") for name in "abcd"))
    assert headline(many) == "claude wants to patch 4 files: a.py, b.py, c.py and 1 more (+4 -8)"
    engine = await waiting(bench, step="format", targets=["a.py"], in_place=True)
    assert headline(engine) == "claude wants to let an engine format in place: a.py"
    undo = await waiting(bench, step="undo", targets=[], args={})
    assert headline(undo) == "claude wants to undo changes of something that names no file"


async def test_nothing_an_agent_says_can_hide_or_move_the_cursor(bench: Any, view: Any):
    command = await waiting(bench, step="bash", targets=[], args={"command": "echo\u202e\x1b[2Jhi\n\nrm -rf /"})
    assert headline(command) == "claude wants to run: echo<U+202E><U+001B>[2Jhi rm -rf /"
    long = await waiting(bench, step="bash", targets=[], args={"command": "x" * 5000})
    assert len(headline(long)) < 500
    assert len(action_subject(long)) < 110
    bench.put({"a\u200b.py": "x\n"})
    odd = await waiting(bench, bench.change("a\u200b.py", "y\n"), agent="bot\u202e")
    assert headline(odd) == "bot<U+202E> wants to patch a<U+200B>.py (+1 -1)"


async def test_each_file_of_several_says_its_own_part(bench: Any, view: Any):
    bench.put({"a.py": "one\n", "b.py": "two\n", "c.py": "three\n"})
    approval = await waiting(
        bench, bench.change("a.py", "1\n"), bench.change("b.py", None), bench.change("z.py", "three\n", source="c.py")
    )
    words = MarkWords(approval)
    messages = {path: words.on(change) for path, change in approval.changes().items()}
    lines = {path: message.split("\n")[0].split(" - here: ")[1] for path, message in messages.items()}
    assert lines == {"a.py": "change (+1 -1)", "b.py": "DELETE (+0 -1)", "c.py": "MOVE to z.py (+0 -0)"}
    assert approval.existing == ("a.py", "b.py", "c.py")


async def test_consequences_in_words(bench: Any, view: Any):
    bench.put({"a.py": "one\n"})
    approval = await waiting(bench, bench.change("a.py", "two\u200b\n"), step="edit")
    errors = [Diagnostic("a.py", "error", f"bad {number}", "checker", False, line=number) for number in range(1, 6)]
    approval.shown = msgspec.structs.replace(
        approval.shown,
        introduced=errors,
        resolved=errors[:1],
        pending=[Pending("slow"), Pending("slow", path="b.py")],
        normalized=[Normalized("a.py", "utf-8 crlf", "utf-8 lf")],
    )
    assert consequences(approval) == [
        "introduces 5: a.py:1 error: bad 1; a.py:2 error: bad 2; a.py:3 error: bad 3; and 2 more",
        "resolves 1: a.py:1 error: bad 1",
        "not judged: slow",
        "also rewrites line ends or encoding: a.py (utf-8 crlf to utf-8 lf)",
        "adds 1 invisible characters, the first U+200B ZERO WIDTH SPACE at a.py:1",
    ]
    approval.shown = msgspec.structs.replace(approval.shown, introduced=[], resolved=[], pending=[], normalized=[])
    assert consequences(approval)[0] == "introduces and resolves nothing"


async def test_the_diff_as_a_document(bench: Any, view: Any):
    bench.put({"src/a.py": "one\n"})
    approval = await waiting(bench, bench.change("src/a.py", "two\n"), step="edit")
    text = diff_text(approval)
    assert text.startswith("# claude wants to edit src/a.py (+1 -1)\n")
    assert "# remember: Let claude change files directly in src/" in text
    assert text.endswith("-one\n+two\n")
    command = await waiting(bench, step="bash", targets=[], args={"command": "make\nall"})
    assert diff_text(command).endswith("\n\nmake\nall\n")


async def test_marks_stand_at_the_first_hunks_old_lines(bench: Any, view: Any):
    lines = "".join(f"{number}\n" for number in range(1, 31))
    bench.put({"a.py": lines, "empty.py": "", "moved.py": "x\n"})
    changed = await waiting(bench, bench.change("a.py", lines.replace("15\n", "fifteen\n")))
    assert first_lines(changed.changes()["a.py"]) == (12, 7)
    top = await waiting(bench, bench.change("empty.py", "new\n"))
    assert first_lines(top.changes()["empty.py"]) == (1, 1)
    moved = await waiting(bench, bench.change("z.py", "x\n", source="moved.py"))
    assert first_lines(moved.changes()["moved.py"]) == (1, 1)
