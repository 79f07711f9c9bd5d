"""Failures that people met with edit and patch tools, each with the outcome it must have here.

Files are given as bytes before and after; the text policy is `preserve`. Each case stands for a kind, whose other
members are in the tests of the single modules.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from devtools_lsp.errors import BadArgumentError, DevToolsError, StepFailedError
from devtools_lsp.text import NotTextError

Files = dict[str, "str | bytes"]


@dataclass(frozen=True)
class Case:
    """One call. `after` None means refused: by which error, with which reason, saying what."""

    name: str
    before: Files
    patch: str = ""
    edits: tuple[tuple[str, str], ...] = ()
    after: Files | None = None
    error: type[Exception] = StepFailedError
    reason: str | None = None
    says: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        return self.name


def envelope(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])


CASES = [
    Case(
        "crlf file, lf patch",
        {"menu.txt": "soup\r\nfish\r\npie\r\n"},
        patch=envelope("*** Update File: menu.txt", "@@", " soup", "-fish", "+FISH", "+rice", " pie"),
        after={"menu.txt": "soup\r\nFISH\r\nrice\r\npie\r\n"},
    ),
    Case(
        "crlf file, lf find over two lines with tabs",
        {"gate.c": "\tif (open)\r\n\t\tclose(1);\r\n"},
        edits=(("\tif (open)\n\t\tclose(1);", "\tif (open)\n\t\tclose(2);"),),
        after={"gate.c": "\tif (open)\r\n\t\tclose(2);\r\n"},
    ),
    Case(
        "byte order mark is not seen and is kept",
        {"mark.js": b"\xef\xbb\xbflet n = 1;\ndone();\n"},
        patch=envelope("*** Update File: mark.js", "@@", "-let n = 1;", "+let n = 2;"),
        after={"mark.js": b"\xef\xbb\xbflet n = 2;\ndone();\n"},
    ),
    Case(
        "no byte order mark is added",
        {"plain.md": "# head\nbody\n"},
        edits=(("body", "BODY"),),
        after={"plain.md": "# head\nBODY\n"},
    ),
    Case(
        "a missing final line break stays missing",
        {"conf.json": '{\n"x": 1,\n"y": 2\n}'},
        patch=envelope("*** Update File: conf.json", "@@", '-"x": 1,', '+"x": 7,'),
        after={"conf.json": '{\n"x": 7,\n"y": 2\n}'},
    ),
    Case(
        "adding below a last line without line break does not join the two",
        {"list.txt": "left\nright"},
        patch=envelope("*** Update File: list.txt", "@@", " right", "+middle"),
        after={"list.txt": "left\nright\nmiddle"},
    ),
    Case(
        "an addition below an anchor goes there, not to the end",
        {"two.py": "def one():\n    pass\n\ndef two():\n    pass\n"},
        patch=envelope("*** Update File: two.py", "@@ def one():", "+    step = 1"),
        after={"two.py": "def one():\n    step = 1\n    pass\n\ndef two():\n    pass\n"},
    ),
    Case(
        "hunks out of order are both placed in the original",
        {"six.txt": "r1\nr2\nr3\nr4\nr5\nr6\n"},
        patch="--- a/six.txt\n+++ b/six.txt\n@@ -5,1 +5,1 @@\n-r5\n+R5\n@@ -2,1 +2,1 @@\n-r2\n+R2\n",
        after={"six.txt": "r1\nR2\nr3\nr4\nR5\nr6\n"},
    ),
    Case(
        "wrong context is refused at the first differing line",
        {"abc.txt": "one\ntwo\nthree\n"},
        patch="--- a/abc.txt\n+++ b/abc.txt\n@@ -1,3 +1,3 @@\n eins\n-two\n+TWO\n drei\n",
        reason="noMatch",
        says=("line 1", "'one'", "'eins'"),
    ),
    Case(
        "tolerated context keeps its own bytes",
        {"note.md": "that’s it  \nport 8\n\tstop\n"},
        patch=envelope("*** Update File: note.md", "@@", " that's it", "-port 8", "+port 9", "     stop"),
        after={"note.md": "that’s it  \nport 9\n\tstop\n"},
    ),
    Case(
        "adding over an existing file",
        {"here.txt": "mine\n"},
        patch=envelope("*** Add File: here.txt", "+other"),
        reason="exists",
        says=("here.txt",),
    ),
    Case(
        "moving onto an existing file",
        {"from.txt": "1\n", "to.txt": "dear\n"},
        patch=envelope("*** Update File: from.txt", "*** Move to: to.txt", "@@", "-1", "+2"),
        reason="exists",
        says=("to.txt",),
    ),
    Case(
        "one failing operation takes the others with it",
        {"second.txt": "there\n"},
        patch=envelope("*** Add File: first.txt", "+hello", "*** Update File: second.txt", "@@", "-gone", "+x"),
        reason="noMatch",
        says=("second.txt",),
    ),
    Case(
        "deleting a file that is missing",
        {"stays.txt": "s\n"},
        patch=envelope("*** Update File: stays.txt", "@@", "-s", "+S", "*** Delete File: absent.txt"),
        error=BadArgumentError,
        reason="notFound",
        says=("absent.txt",),
    ),
    Case(
        "moving into directories that are not there yet",
        {"src/m.txt": "p\nq\n"},
        patch=envelope("*** Update File: src/m.txt", "*** Move to: lib/sub/n.txt", "@@", " p", "-q", "+Q"),
        after={"lib/sub/n.txt": "p\nQ\n"},
    ),
    Case(
        "a fence around the patch",
        {},
        patch="```diff\n" + envelope("*** Add File: fresh.txt", "+yes") + "```\n",
        after={"fresh.txt": "yes\n"},
    ),
    Case(
        "dollar signs in a replacement mean themselves",
        {"price.txt": "total: N only\n"},
        edits=(("N", "$& $$ $1 $` $'"),),
        after={"price.txt": "total: $& $$ $1 $` $' only\n"},
    ),
    Case(
        "backslashes in a replacement mean themselves",
        {"say.py": "say('b')\n"},
        edits=(("say('b')", "say('b\\n\\1\\g<0>')"),),
        after={"say.py": "say('b\\n\\1\\g<0>')\n"},
    ),
    Case(
        "an empty find",
        {"text.txt": "abc\n"},
        edits=(("", "Z"),),
        error=BadArgumentError,
        says=("empty", "apply_patch", "append"),
    ),
    Case(
        "a find that occurs twice",
        {"twice.txt": "k = 0\nl = 1\nk = 0\n"},
        edits=(("k = 0", "k = 5"),),
        reason="ambiguous",
        says=("lines 1, 3",),
    ),
    Case(
        "tabs around a match stay",
        {"Makefile": "run:\n\techo x\n\techo y\n"},
        edits=(("echo y", "echo z"),),
        after={"Makefile": "run:\n\techo x\n\techo z\n"},
    ),
    Case(
        "typographic quotes are named, not folded, by an edit",
        {"tale.md": "She wrote “no”.\n"},
        edits=(('wrote "no"', 'wrote "yes"'),),
        reason="noMatch",
        says=("U+201C", "line 1"),
    ),
    Case(
        "a no-break space is named",
        {"space.py": "b\u00a0= 1\n"},
        edits=(("b = 1", "b = 2"),),
        reason="noMatch",
        says=("U+00A0", "line 1"),
    ),
    Case("latin-1 is not text", {"latin.txt": b"k = 3\n# \xfcber\n"}, edits=(("k = 3", "k = 4"),), error=NotTextError),
    Case("shift-jis is not text", {"kana.txt": b"\x96\xbc=1\n"}, edits=(("=1", "=値"),), error=NotTextError),
    Case(
        "form feed, line separator, next line and a lone CR end no line",
        {"odd.py": "a = 1\nb = 2\f\nc = '\u2028'\nd = '\u0085'\ne\rf\nlast\n"},
        patch="--- a/odd.py\n+++ b/odd.py\n@@ -4,3 +4,3 @@\n d = '\u0085'\n e\rf\n-last\n+LAST\n",
        after={"odd.py": "a = 1\nb = 2\f\nc = '\u2028'\nd = '\u0085'\ne\rf\nLAST\n"},
    ),
    Case(
        "what looks like a header inside a hunk is content",
        {"main.txt": "head\n"},
        patch="--- a/main.txt\n+++ b/main.txt\n@@ -1,1 +1,3 @@\n head\n+u\u2028--- a/side.txt\n+v\n",
        after={"main.txt": "head\nu\u2028--- a/side.txt\nv\n"},
    ),
    Case(
        "quoted names with octal escapes and a blank",
        {"blå å/é.txt": "1\n"},
        patch='diff --git "a/bl\\303\\245 \\303\\245/\\303\\251.txt" "b/bl\\303\\245 \\303\\245/\\303\\251.txt"\n'
        '--- "a/bl\\303\\245 \\303\\245/\\303\\251.txt"\n+++ "b/bl\\303\\245 \\303\\245/\\303\\251.txt"\n'
        "@@ -1 +1 @@\n-1\n+2\n",
        after={"blå å/é.txt": "2\n"},
    ),
    Case(
        "exactly one prefix is taken off",
        {"a/same.txt": "1\n", "same.txt": "no\n"},
        patch="--- a/a/same.txt\n+++ b/a/same.txt\n@@ -1 +1 @@\n-1\n+2\n",
        after={"a/same.txt": "2\n", "same.txt": "no\n"},
    ),
    Case(
        "a binary hunk refuses the whole patch by name",
        {"ok.txt": "1\n"},
        patch="diff --git a/logo.png b/logo.png\nnew file mode 100644\nindex 0000000..f584f40\nGIT binary patch\n"
        "literal 6\nNcmeAS@N;Ki1ONuw0dN2S\n\nliteral 0\nHcmV?d00001\n\n"
        "diff --git a/ok.txt b/ok.txt\n--- a/ok.txt\n+++ b/ok.txt\n@@ -1 +1 @@\n-1\n+2\n",
        error=BadArgumentError,
        reason="malformed",
        says=("logo.png", "binary"),
    ),
    Case(
        "a mode change is refused by name",
        {"go.sh": "echo\n"},
        patch="diff --git a/go.sh b/go.sh\nold mode 100644\nnew mode 100755\n",
        error=BadArgumentError,
        reason="malformed",
        says=("go.sh", "mode"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_people_met(case: Case, edit_bytes, patch_bytes):
    def run() -> dict[str, bytes]:
        if case.edits:
            (path,) = case.before
            return {path: edit_bytes(case.before[path], *case.edits)}
        return patch_bytes(case.before, case.patch)[0]

    if case.after is not None:
        wanted = {path: text.encode() if isinstance(text, str) else text for path, text in case.after.items()}
        assert run() == wanted
        return
    with pytest.raises(case.error) as caught:
        run()
    error = caught.value
    for words in case.says:
        assert words in str(error)
    if isinstance(error, DevToolsError) and case.reason is not None:
        assert error.reason == case.reason
        assert error.path is not None
        assert error.step in ("edit", "apply_patch")
