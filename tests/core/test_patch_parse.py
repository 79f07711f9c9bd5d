"""What a patch says in either dialect, and what is refused with its line (SPEC 3.6.1, 3.6.2)."""

from __future__ import annotations

import pytest

from devtools_lsp.core.patch import (
    AddFile,
    DeleteFile,
    Operation,
    ParsedPatch,
    PatchHunk,
    PatchLine,
    UpdateFile,
    parse_patch,
)
from devtools_lsp.errors import BadArgumentError


def hunk(*rows: str, anchors: tuple[str, ...] = (), at_end: bool = False, start: int | None = None,
         old_open: bool = False, new_open: bool = False) -> PatchHunk:  # fmt: skip
    lines = tuple(PatchLine(row[0], row[1:]) for row in rows)
    return PatchHunk(lines, anchors, at_end, start, old_open, new_open)


def envelope(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


ENVELOPES: list[tuple[str, str, list[Operation]]] = [
    ("add", envelope("*** Add File: a.txt", "+one", "+", "+ two"), [AddFile("a.txt", "one\n\n two\n")]),
    ("add nothing", envelope("*** Add File: a.txt"), [AddFile("a.txt", "")]),
    ("add a directive's look", envelope("*** Add File: a", "+*** End Patch"), [AddFile("a", "*** End Patch\n")]),
    ("delete", envelope("*** Delete File: a.txt"), [DeleteFile("a.txt")]),
    (
        "update without @@",
        envelope("*** Update File: a", "-x", "+y"),
        [UpdateFile("a", (hunk("-x", "+y"),))],
    ),
    (
        "two hunks",
        envelope("*** Update File: a", "@@", "-x", "+y", "@@", "-p", "+q"),
        [UpdateFile("a", (hunk("-x", "+y"), hunk("-p", "+q")))],
    ),
    (
        "anchors, nested",
        envelope("*** Update File: a", "@@ class C:", "@@     def m(self):", "+        pass"),
        [UpdateFile("a", (hunk("+        pass", anchors=("class C:", "    def m(self):")),))],
    ),
    (
        "an anchor closed like a header",
        envelope("*** Update File: a", "@@ def f() @@", "-x"),
        [UpdateFile("a", (hunk("-x", anchors=("def f()",)),))],
    ),
    (
        "a header with numbers is a hint",
        envelope("*** Update File: a", "@@ -12,3 +12,4 @@ def f():", "-x"),
        [UpdateFile("a", (hunk("-x", start=12),))],
    ),
    (
        "end of file",
        envelope("*** Update File: a", "@@", " x", "+y", "*** End of File"),
        [UpdateFile("a", (hunk(" x", "+y", at_end=True),))],
    ),
    (
        "move with and without change",
        envelope("*** Update File: a", "*** Move to: d/b", "*** Update File: c", "*** Move to: d/c", "-x", "+y"),
        [UpdateFile("a", (), "d/b"), UpdateFile("c", (hunk("-x", "+y"),), "d/c")],
    ),
    (
        "an empty line is an empty line that stays",
        envelope("*** Update File: a", "@@", " x", "", "-y"),
        [UpdateFile("a", (hunk(" x", " ", "-y"),))],
    ),
    (
        "empty lines before a directive only separate",
        envelope("*** Update File: a", "@@", "-x", "", "", "*** Delete File: b", ""),
        [UpdateFile("a", (hunk("-x"),)), DeleteFile("b")],
    ),
    (
        "an empty line with its sign stays",
        envelope("*** Update File: a", "@@", "-x", " "),
        [UpdateFile("a", (hunk("-x", " "),))],
    ),
    (
        "a line without line break",
        envelope("*** Update File: a", "@@", "-x", "+y", "\\ No newline at end of file"),
        [UpdateFile("a", (hunk("-x", "+y", new_open=True),))],
    ),
    (
        "blanks around names and dots within",
        envelope("*** Delete File:   ./src//x y.txt  "),
        [DeleteFile("src/x y.txt")],
    ),
    ("an absolute path stays absolute", envelope("*** Delete File: /srv/./a"), [DeleteFile("/srv/a")]),
    ("crlf", envelope("*** Add File: a", "+x").replace("\n", "\r\n"), [AddFile("a", "x\n")]),
    ("a lone CR is content", envelope("*** Add File: a", "+x\ry"), [AddFile("a", "x\ry\n")]),
    ("separators are content", envelope("*** Add File: a", "+x\u2028+y\x85\f"), [AddFile("a", "x\u2028+y\x85\f\n")]),
    ("fence", "```\n" + envelope("*** Delete File: a") + "\n```\n", [DeleteFile("a")]),
    ("fence with a word", "\n~~~~patch\n" + envelope("*** Delete File: a") + "\n~~~~\n\n", [DeleteFile("a")]),
    ("heredoc", "apply_patch <<'EOF'\n" + envelope("*** Delete File: a") + "\nEOF\n", [DeleteFile("a")]),
    ("bare heredoc", "<<PATCH\n" + envelope("*** Delete File: a") + "\nPATCH", [DeleteFile("a")]),
    (
        "heredoc in a shell in a fence",
        '```bash\nbash -lc "apply_patch <<\\"E_1\\"\n' .replace('\\"', '"')
        + envelope("*** Delete File: a") + '\nE_1"\n```',
        [DeleteFile("a")],
    ),
]  # fmt: skip


def text(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def diff(header: str, *body: str, old: str = "a/x", new: str = "b/x") -> str:
    return text(f"--- {old}", f"+++ {new}", header, *body)


MAIL = [
    "From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001", "From: A <a@b>", "Subject: [PATCH] x", "",
    "- a list", "+ of changes", "---", " x | 2 +-", " 1 file changed", "",
]  # fmt: skip

UNIFIED: list[tuple[str, str, list[Operation]]] = [
    (
        "plain",
        diff("@@ -1,2 +1,2 @@", " x", "-y", "+z", old="a.txt", new="a.txt"),
        [UpdateFile("a.txt", (hunk(" x", "-y", "+z", start=1),))],
    ),
    (
        "counts of one are left out",
        diff("@@ -3 +3 @@ def f():", "-y", "+z"),
        [UpdateFile("x", (hunk("-y", "+z", start=3),))],
    ),
    (
        "time stamps",
        diff("@@ -1 +1 @@", "-y", "+z", old="a.txt\t2024-01-01 10:00:00.000 +0100", new="a.txt\t2024-01-02"),
        [UpdateFile("a.txt", (hunk("-y", "+z", start=1),))],
    ),
    (
        "new and deleted",
        text("diff --git a/n b/n", "new file mode 100644", "index 000..abc")
        + diff("@@ -0,0 +1,2 @@", "+x", "+y", old="/dev/null", new="b/n")
        + text("diff --git a/o b/o", "deleted file mode 100755", "index abc..000")
        + diff("@@ -1 +0,0 @@", "-x", old="a/o", new="/dev/null"),
        [AddFile("n", "x\ny\n"), DeleteFile("o", (hunk("-x", start=1),))],
    ),
    (
        "new and deleted without git's lines",
        diff("@@ -0,0 +1 @@", "+x", "\\ No newline at end of file", old="/dev/null", new="b/n")
        + diff("@@ -1 +0,0 @@", "-x", old="a/o", new="/dev/null"),
        [AddFile("n", "x"), DeleteFile("o", (hunk("-x", start=1),))],
    ),
    (
        "empty files",
        text("diff --git a/n b/n", "new file mode 100644", "index 0..e")
        + text("diff --git a/o x b/o x", "deleted file mode 100644"),
        [AddFile("n", ""), DeleteFile("o x")],
    ),
    (
        "renames",
        text("diff --git a/o b/n", "similarity index 100%", "rename from o", "rename to n")
        + text('diff --git "a/p\\tq" "b/p r"', "similarity index 90%", 'rename from "p\\tq"', "rename to p r")
        + text("index a..b 100644")
        + diff("@@ -1 +1 @@", "-x", "+y", old='"a/p\\tq"', new="b/p r\t"),
        [UpdateFile("o", (), "n"), UpdateFile("p\tq", (hunk("-x", "+y", start=1),), "p r")],
    ),
    (
        "a rename told by the names alone",
        text("diff --git a/o b/n") + diff("@@ -1 +1 @@", "-x", "+y", old="a/o", new="b/n"),
        [UpdateFile("o", (hunk("-x", "+y", start=1),), "n")],
    ),
    (
        "names with ' b/' in them",
        text("diff --git a/x b/y b/z b/x b/y b/z", "index a..b 100644")
        + diff("@@ -1 +1 @@", "-x", "+y", old="a/x b/y b/z\t", new="b/x b/y b/z\t")
        + text("diff --git a/d b/d b/d b/d", "deleted file mode 100644"),
        [UpdateFile("x b/y b/z", (hunk("-x", "+y", start=1),)), DeleteFile("d b/d")],
    ),
    (
        "a name that ends with a blank",
        text("diff --git a/x  b/x ") + diff("@@ -1 +1 @@", "-x", "+y", old="a/x \t", new="b/x \t"),
        [UpdateFile("x ", (hunk("-x", "+y", start=1),))],
    ),
    (
        "git's other prefixes, and none",
        text("diff --git i/a w/a")
        + diff("@@ -1 +1 @@", "-x", "+y", old="i/a", new="w/a")
        + text("diff --git b/n b/n", "new file mode 100644")
        + diff("@@ -0,0 +1 @@", "+x", old="/dev/null", new="b/n")
        + text("diff --git c/o i/o", "deleted file mode 100644")
        + diff("@@ -1 +0,0 @@", "-x", old="c/o", new="/dev/null"),
        [
            UpdateFile("a", (hunk("-x", "+y", start=1),)),
            AddFile("b/n", "x\n"),
            DeleteFile("o", (hunk("-x", start=1),)),
        ],
    ),
    (
        "prefixes in one header only",
        text("diff --git a/x b/x") + diff("@@ -1 +1 @@", "-x", "+y", old="x", new="x"),
        [UpdateFile("x", (hunk("-x", "+y", start=1),))],
    ),
    (
        "a mail's signature behind a hunk without numbers",
        diff("@@", "-x", "+y", "-- ", "2.39.5"),
        [UpdateFile("x", (hunk("-x", "+y"),))],
    ),
    (
        "a directory named like a prefix",
        diff("@@ -1 +1 @@", "-x", "+y", old="a/b/x", new="b/b/x"),
        [UpdateFile("b/x", (hunk("-x", "+y", start=1),))],
    ),
    (
        "what looks like headers within counted hunks",
        diff("@@ -1,4 +1,4 @@", "--- a/y", "-+++ b/y", "-@@ -1 +1 @@", "+++ b/z", "+diff --git a/q b/q", "+-- ", " "),
        [
            UpdateFile(
                "x",
                (hunk("--- a/y", "-+++ b/y", "-@@ -1 +1 @@", "+++ b/z", "+diff --git a/q b/q", "+-- ", " ", start=1),),
            )
        ],
    ),
    (
        "open ends on either side",
        diff("@@ -1 +1 @@", "-x", "\\ No newline at end of file", "+y")
        + text("@@ -5,2 +5,2 @@", "-p", "+q", " r", "\\ Kein Zeilenumbruch"),
        [
            UpdateFile(
                "x",
                (
                    hunk("-x", "+y", start=1, old_open=True),
                    hunk("-p", "+q", " r", start=5, old_open=True, new_open=True),
                ),
            )
        ],
    ),
    (
        "an empty line in a hunk lost its blank",
        diff("@@ -1,3 +1,3 @@", " x", "", "-y", "+z"),
        [UpdateFile("x", (hunk(" x", " ", "-y", "+z", start=1),))],
    ),
    (
        "the last line of the last hunk is an empty one",
        diff("@@ -1,2 +1,2 @@", "-x", "+y", " ", ""),
        [UpdateFile("x", (hunk("-x", "+y", " ", start=1),))],
    ),
    (
        "headers without numbers",
        diff("@@ ... @@", "-x", "+y", "@@ class C:", "@@ def m(self): @@", "-p", "+q", "")
        + diff("@@", "-x", old="a/z", new="b/z"),
        [
            UpdateFile("x", (hunk("-x", "+y"), hunk("-p", "+q", anchors=("class C:", "def m(self):")))),
            UpdateFile("z", (hunk("-x"),)),
        ],
    ),
    (
        "mails of format-patch",
        text(*MAIL, "diff --git a/x b/x", "index a..b 100644")
        + diff("@@ -1 +1 @@", "-x", "+y", "-- ", "2.39.5", "")
        + text(*MAIL, "diff --git a/x b/x")
        + diff("@@ -1 +1 @@", "-y", "+z", "-- ", "2.39.5", ""),
        [UpdateFile("x", (hunk("-x", "+y", start=1),)), UpdateFile("x", (hunk("-y", "+z", start=1),))],
    ),
    (
        "crlf around lines with a lone CR",
        diff("@@ -1 +1 @@", "-p\rq", "+p\rr").replace("\n", "\r\n"),
        [UpdateFile("x", (hunk("-p\rq", "+p\rr", start=1),))],
    ),
    (
        "svn",
        text("Index: x", "=" * 67)
        + diff("@@ -1 +1 @@", "-x", "+y", old="x\t(revision 1)", new="x\t(working copy)")
        + text("Index: z", "=" * 67)
        + diff("@@ -1 +1 @@", "-x", "+y", old="z", new="z"),
        [UpdateFile("x", (hunk("-x", "+y", start=1),)), UpdateFile("z", (hunk("-x", "+y", start=1),))],
    ),
    (
        "fence around a diff",
        "```diff\n" + diff("@@ -1 +1 @@", "-x", "+y") + "```",
        [UpdateFile("x", (hunk("-x", "+y", start=1),))],
    ),
    (
        "heredoc around a diff",
        "git apply <<EOF\n" + diff("@@ -1 +1 @@", "-x", "+y") + "EOF\n",
        [UpdateFile("x", (hunk("-x", "+y", start=1),))],
    ),
]


@pytest.mark.parametrize(
    ("patch", "operations"), [pytest.param(*case[1:], id=case[0]) for case in [*ENVELOPES, *UNIFIED]]
)
def test_what_a_patch_says(patch: str, operations: list[Operation]):
    parsed = parse_patch(patch)
    assert list(parsed.operations) == operations
    assert parse_patch(parsed.render()) == parsed


REFUSED = [
    ("empty", "", 1, "empty"),
    ("blank", " \n\n", 1, "empty"),
    ("prose", "Please change x to y.\n", 1, "Begin Patch"),
    ("a bare hunk", "@@ -1 +1 @@\n-x\n+y\n", 1, "Begin Patch"),
    ("no end", "*** Begin Patch\n*** Delete File: a\n", 2, "End Patch"),
    ("no files", "*** Begin Patch\n*** End Patch\n", 2, "no file"),
    ("text behind the end", envelope("*** Delete File: a") + "\nthanks\n", 4, "'thanks'"),
    ("unknown directive", envelope("*** Rename File: a"), 2, "Rename"),
    ("missing path", envelope("*** Delete File:  "), 2, "path"),
    ("added line without sign", envelope("*** Add File: a", "+x", "y"), 4, "'y'"),
    ("empty line within an added file", envelope("*** Add File: a", "+x", "", "+y"), 4, "sign"),
    ("update without hunk", envelope("*** Update File: a"), 2, "no hunk"),
    ("hunk without lines", envelope("*** Update File: a", "@@ x", "*** Delete File: b"), 3, "no lines"),
    ("line without sign", envelope("*** Update File: a", "@@", "-x", "y"), 5, "'y'"),
    ("line behind the end of the file", envelope("*** Update File: a", "-x", "*** End of File", "+y"), 5, "'+y'"),
    ("marker without a line", envelope("*** Update File: a", "@@", "\\ No newline", "-x"), 4, "below"),
    ("marker above more lines", envelope("*** Update File: a", "-x", "\\ No newline", " y"), 4, "below the last line"),
    ("marker above more lines in a diff", diff("@@ -1,2 +1 @@", "-x", "\\ No newline", " y"), 5, "below the last line"),
    ("fence not closed", "```\n" + envelope("*** Delete File: a"), 1, "```"),
    ("heredoc not closed", "apply_patch <<'X'\n" + envelope("*** Delete File: a"), 1, "<<'X'"),
    ("lines count in the whole", "\n```\n" + envelope("*** Delete File:") + "\n```", 4, "path"),
    ("NUL", envelope("*** Add File: a", "+x\0"), 3, "NUL"),
    ("lone surrogate", envelope("*** Add File: a", "+\udc80"), 3, "U+DC80"),
    ("fewer lines", diff("@@ -1,3 +1,3 @@", " x", "-y", "+z", "@@ -9 +9 @@", "-x", "+y"), 3, "3 old and 3 new"),
    ("cut off", diff("@@ -1,4 +1,4 @@", " x", "-y", "+z").rstrip(), 3, "ends after 2 and 2"),
    ("more lines than counted", diff("@@ -1 +1 @@", "-y", "+z", "+more"), 6, "outside any hunk"),
    ("more removals than counted", diff("@@ -1 +1,2 @@", "-y", "-z", "+a", "+b"), 5, "more than the @@ line says"),
    ("no signature", diff("@@ -1 +1 @@", "-y", "+z", "-- ", "+more"), 6, "outside any hunk"),
    ("a rule without its sign", diff("@@ -1 +1 @@", "-y", "+z", "====", "+more"), 6, "outside any hunk"),
    ("content behind an empty line", diff("@@ -1 +1 @@", "-y", "+z", "", "+more"), 7, "outside any hunk"),
    ("half a header", diff("@@ -1,3 @@", "-y"), 3, "form"),
    ("absurd counts", diff(f"@@ -1,{'9' * 5000} +1 @@", "-y", "+z"), 3, "form"),
    ("large counts", diff("@@ -1,999999999 +1 @@", "-y", "+z"), 3, "999999999 old"),
    ("a header without its pair", text("+++ b/x", "@@ -1 +1 @@", "-y", "+z") + diff("@@", "-y"), 1, "pairs"),
    ("a hunk before any header", text("x", "@@ -1 +1 @@", "-y", "+z") + diff("@@", "-y"), 2, "before any"),
    ("two names", diff("@@", "-y", new="b/y"), 1, "two files"),
    ("two names by git", "diff --git a/x b/y\n", 1, "rename from"),
    ("names that cannot be told apart", "diff --git a/x y b/z w\ndeleted file mode 100644\n", 1, "told apart"),
    ("no names", diff("@@", "-y", old="/dev/null", new="/dev/null"), 1, "/dev/null"),
    ("half a rename", "diff --git a/x b/y\nrename from x\n", 1, "together"),
    ("nothing changes", "diff --git a/x b/x\nindex a..b 100644\n", 1, "nothing"),
    ("an open quote", diff("@@", "-y", old='"a/x', new='"b/x'), 1, "quote"),
    ("an unknown escape", diff("@@", "-y", old='"a/\\x"', new='"b/\\x"'), 1, "escape"),
    ("a name that is not UTF-8", diff("@@", "-y", old='"a/\\377"', new='"b/\\377"'), 1, "UTF-8"),
    ("a new file with kept lines", diff("@@ -1 +1,2 @@", " y", "+z", old="/dev/null"), 1, "new file"),
    ("a deleted file with kept lines", diff("@@ -1,2 +1 @@", " y", "-z", new="/dev/null"), 1, "deleted"),
    ("deleted but named", text("diff --git a/x b/x", "deleted file mode 100644") + diff("@@", "-y"), 1, "/dev/null"),
    ("mode change", text("diff --git a/x b/x", "old mode 100644", "new mode 100755"), 2, "x: a mode change"),
    ("executable", text("diff --git a/x b/x", "new file mode 100755"), 2, "x: mode 100755"),
    ("symlink", text("diff --git a/x b/x", "new file mode 120000"), 2, "x: a symbolic link"),
    ("changed symlink", text("diff --git a/x b/x", "index a..b 120000") + diff("@@", "-y"), 2, "x: a symbolic link"),
    ("submodule", text("diff --git a/x b/x", "index a..b 160000") + diff("@@", "-y"), 2, "x: a submodule"),
    ("binary", text("diff --git a/x b/x", "index a..b 100644", "Binary files a/x and b/x differ"), 3, "x: binary"),
    ("binary patch", text("diff --git a/x b/x", "new file mode 100644", "GIT binary patch"), 3, "x: binary"),
    ("binary among plain diffs", diff("@@", "-y") + "Only in b: w\nBinary files a/z and b/z differ\n", 6, "z"),
    ("binary before plain diffs", "Binary files a/z and b/z differ\n" + diff("@@", "-y"), 1, "a/z"),
    ("property changes", diff("@@ -1 +1 @@", "-y", "+z", "", "Property changes on: x"), 7, "outside"),
    ("names that disagree", "diff --git a/x b/x\n" + diff("@@", "-y", old="a/y", new="b/y"), 1, "'a/x'"),
    ("copy", text("diff --git a/x b/y", "similarity index 100%", "copy from x", "copy to y"), 4, "y: a copy"),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "line", "says"), [pytest.param(*case[1:], id=case[0]) for case in REFUSED])
def test_a_malformed_patch_is_refused_with_its_line(patch: str, line: int, says: str):
    with pytest.raises(BadArgumentError) as caught:
        parse_patch(patch)
    error = caught.value
    assert (error.reason, error.step, error.line) == ("malformed", "apply_patch", line)
    assert f"patch line {line}: " in error.message
    assert says in error.message


def parsed(*operations: Operation) -> ParsedPatch:
    return ParsedPatch(operations, "envelope")


@pytest.mark.parametrize(
    ("patch", "targets", "acquires", "may_create", "if_present"),
    [
        pytest.param(parsed(AddFile("b", ""), DeleteFile("a")), "ab", "a", "b", "", id="add and delete"),
        pytest.param(parsed(UpdateFile("a", (), "b")), "ab", "a", "b", "", id="move"),
        pytest.param(parsed(AddFile("a", ""), UpdateFile("a", (hunk("+x"),))), "a", "", "a", "", id="add, then update"),
        pytest.param(parsed(AddFile("a", ""), DeleteFile("a")), "a", "", "", "", id="add, then delete"),
        pytest.param(parsed(DeleteFile("a"), AddFile("a", "")), "a", "a", "", "", id="replaced as a whole"),
        pytest.param(parsed(UpdateFile("a", (), "b"), AddFile("a", "")), "ab", "a", "b", "", id="its place taken"),
        pytest.param(parsed(UpdateFile("a", (), "b"), UpdateFile("b", (), "c")), "abc", "a", "c", "b", id="chain"),
        pytest.param(parsed(UpdateFile("a", (), "b"), UpdateFile("b", (), "a")), "ab", "a", "", "b", id="exchange"),
        pytest.param(
            parsed(UpdateFile("b", (), "c"), UpdateFile("a", (), "b")), "abc", "ab", "c", "", id="shifted along"
        ),
    ],
)
def test_which_files_a_patch_needs_and_makes(
    patch: ParsedPatch, targets: str, acquires: str, may_create: str, if_present: str
):
    assert patch.targets == tuple(targets)
    assert patch.acquires == tuple(acquires)
    assert patch.may_create == tuple(may_create)
    assert patch.acquires_if_present == tuple(if_present)


def test_paths_can_be_put_in_their_judged_form():
    patch = parsed(AddFile("/r/a", "x"), UpdateFile("/r/b", (), "/r/c"), DeleteFile("/r/d"))
    assert patch.resolved(lambda path: path.removeprefix("/r/")).targets == ("a", "b", "c", "d")
