"""grep and glob, with ripgrep and with the program that stands in for it: the same answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import time
import unicodedata
from pathlib import Path

import psutil
import pytest

from devtools_lsp.agent import search_process
from devtools_lsp.agent.search import GlobResult, GrepResult, SearchLimits, glob, grep
from devtools_lsp.agent.search_output import Messages, Skipped
from devtools_lsp.agent.search_process import Program
from devtools_lsp.errors import BadArgumentError, CallCancelledError, PolicyError, StepFailedError
from devtools_lsp.ports import Cancellation

PROGRAMS: list[Program] = ["ripgrep", "python"]


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    """Each program that can search."""
    if request.param == "ripgrep" and search_process.ripgrep() is None:
        pytest.skip("ripgrep is not installed")
    return request.param


@pytest.fixture
def lines(root: Path, program: Program):
    """Matches as `path:line`, in order."""

    async def run(pattern: str, **options) -> list[str]:
        found = await grep(str(root), pattern, program=program, **options)
        assert found.data["engine"] == program
        return [f"{match['path']}:{match['line']}" for match in found.data["matches"]]

    return run


@pytest.fixture
def full(root: Path, program: Program):
    """The whole answer of grep."""

    async def run(pattern: str, **options) -> GrepResult:
        return await grep(str(root), pattern, program=program, **options)

    return run


@pytest.fixture
def files(root: Path, program: Program):
    """The paths that a glob finds."""

    async def run(pattern: str, **options) -> list[str]:
        return (await glob(str(root), pattern, program=program, **options)).data["paths"]

    return run


# -- field cases -------------------------------------------------------------------------------------------------


async def test_patterns_that_look_like_options(lines, plant):
    plant({"o.txt": "use --release now\n-x\n", "-d/-f.txt": "dashes\n"})
    assert await lines("--release") == ["o.txt:1"]
    assert await lines("-x") == ["o.txt:2"]
    assert await lines("--pre=/bin/sh") == []
    assert await lines("dashes", path="-d") == ["-d/-f.txt:1"]
    assert await lines("dashes", glob="-f*") == ["-d/-f.txt:1"]
    assert await lines("dashes", path="-d/-f.txt") == ["-d/-f.txt:1"]


async def test_no_match_is_said(full, plant):
    plant({"a.txt": "x\n"})
    assert (await full("--pre=/bin/sh")).content.startswith("no matches\n")


async def test_ignored_places(full, lines, files, plant):
    plant({".gitignore": "gen/\n", "gen/x.py": "needle\n"})
    found = await full("needle")
    assert found.data["matches"] == []
    assert found.data["skipped"]["ignored"] == 1
    assert "skipped: 1 ignored by .gitignore (gen)" in found.content
    assert "name it in path" in found.content
    assert await lines("needle", path="gen") == ["gen/x.py:1"]
    assert await lines("needle", path="gen/x.py") == ["gen/x.py:1"]
    assert await lines("needle", glob="gen/*.py") == ["gen/x.py:1"]
    assert await files("gen/*.py") == ["gen/x.py"]
    assert await files("gen/x.py") == ["gen/x.py"]
    assert await files("*.py", path="gen") == ["gen/x.py"]
    assert await files("**/*.py") == []


@pytest.mark.parametrize("rule", ["gen", "/gen/", "gen/*", "gen/**", "*", "**/gen", "*.py"])
async def test_a_named_place_is_searched_whatever_rule_covers_it(lines, files, plant, rule: str):
    plant({".gitignore": f"{rule}\n", "gen/x.py": "needle\n", "gen/sub/y.py": "needle\n"})
    expected = [] if rule == "*.py" else ["gen/sub/y.py", "gen/x.py"]
    assert await files("gen/**/*.py") == expected
    assert await lines("needle", path="gen") == [f"{path}:1" for path in expected]
    assert await lines("needle", path="gen/x.py") == ["gen/x.py:1"]


async def test_hidden_files_are_searched_but_repository_data(lines, files, plant):
    plant({".github/w.yml": "needle\n", ".git/x": "needle\n", "sub/.git/x": "needle\n", ".env.example": "needle\n"})
    assert await lines("needle") == [".env.example:1", ".github/w.yml:1"]
    assert await lines("needle", path=".github") == [".github/w.yml:1"]
    assert await files("**/*.yml") == [".github/w.yml"]
    assert await files("**/x") == []


@pytest.mark.parametrize("path", [".git", "sub/.git/hooks", ".hg"])
async def test_repository_data_is_refused_by_name(lines, files, root: Path, plant, path: str):
    plant({f"{path}/x": "needle\n"})
    with pytest.raises(PolicyError, match="never searched"):
        await lines("needle", path=path)
    with pytest.raises(PolicyError, match="never searched"):
        await files(f"{path}/*")


async def test_links_are_not_followed(lines, files, root: Path, plant, tmp_path: Path):
    plant({"a.txt": "needle\n", "src/b.txt": "needle\n"})
    (tmp_path / "outside.txt").write_text("needle\n")
    (root / "self").symlink_to(".")
    (root / "dead").symlink_to("nowhere")
    (root / "all").symlink_to("/")
    (root / "out.txt").symlink_to(tmp_path / "outside.txt")
    (root / "in").symlink_to("src")
    began = time.monotonic()
    assert await files("**/*.txt") == ["a.txt", "src/b.txt"]
    assert await lines("needle") == ["a.txt:1", "src/b.txt:1"]
    assert await lines("needle", path="in") == ["src/b.txt:1"], "a named link that stays inside is its target"
    assert await files("in/*.txt") == ["src/b.txt"]
    assert time.monotonic() - began < 4
    for path in ("all", "out.txt", "all/etc", "../outside.txt", str(tmp_path / "outside.txt"), "~"):
        with pytest.raises(PolicyError):
            await lines("needle", path=path)
    for pattern in ("all/*", "/etc/*"):
        with pytest.raises(PolicyError):
            await files(pattern)
    with pytest.raises(BadArgumentError):
        await files("../*")


async def test_other_worktrees_are_foreign(full, lines, files, root: Path, plant):
    plant({"a.py": "n\n", "other/a.py": "n\n", "other/.git": "gitdir: ../modules/other\n"})
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    for command in (
        "git init -q -b main",
        "git config user.email a@example.org",
        "git config user.name A",
        "git add a.py",
        "git commit -q -m a",
        "git worktree add -q wt/1",
        "git worktree add -q wt/2",
    ):
        subprocess.run(command.split(), cwd=root, check=True, env=environment, stderr=subprocess.DEVNULL)
    assert await files("**/a.py") == ["a.py", "other/a.py"], "a submodule is not a worktree"
    found = await full("^n$")
    assert [match["path"] for match in found.data["matches"]] == ["a.py", "other/a.py"]
    assert found.data["skipped"]["otherWorktrees"] == 2
    assert "2 files in other worktrees" in found.content
    assert await lines("^n$", path="wt/1") == ["wt/1/a.py:1"], "named, it is searched"


async def test_dependencies_and_caches_are_skipped_unless_named(full, lines, files, plant):
    plant({f"{name}/x/a.js": "needle\n" for name in ("node_modules", "target", ".venv", "pkg/__pycache__")})
    found = await full("needle")
    assert found.data["matches"] == []
    assert found.data["skipped"]["dependencies"] == 4
    assert "node_modules" in found.content
    assert await files("**/*.js") == []
    assert await lines("needle", path="node_modules") == ["node_modules/x/a.js:1"]
    assert await files("node_modules/*/*.js") == ["node_modules/x/a.js"]
    assert await files("target/x/a.js") == ["target/x/a.js"]


async def test_a_file_that_is_called_like_a_skipped_directory(lines, plant):
    plant({"target": "needle\n"})
    assert await lines("needle") == ["target:1"]


# -- lines and texts ---------------------------------------------------------------------------------------------


async def test_only_lf_and_crlf_end_a_line(full, lines, plant):
    """The same numbers as read_lines and apply_patch give."""
    plant({"ff.py": "a = 1\nb = 2\f\nc = ' '\nd = ''\ne\rf\ntail\n", "crlf.txt": "one\r\ntail\r\n"})
    assert await lines("tail") == ["crlf.txt:2", "ff.py:6"]
    assert await lines("tail$") == ["crlf.txt:2", "ff.py:6"]
    (match,) = (await full("^e")).data["matches"]
    assert (match["line"], match["text"]) == (5, "e\rf")


@pytest.mark.parametrize(
    ("content", "pattern", "found"),
    [
        ("naïve café\n".encode("utf-16"), "café", [(1, 7, "naïve café")]),
        ("\ufeffneedle\n".encode(), "^needle", [(1, 1, "needle")]),
        ("é€😀needle\n".encode(), "needle", [(1, 4, "é€😀needle")]),
        (b"last line without end: needle", "needle", [(1, 24, "last line without end: needle")]),
        (b"latin \xe9 needle\n", "needle", [(1, 9, "latin \ufffd needle")]),
        (b"Needle\n", "needle", []),
        (b"", "^", []),
        (b"a\n\nb\n", "^$", [(2, 1, "")]),
    ],
)
async def test_texts(full, plant, content: bytes, pattern: str, found: list):
    plant({"a.txt": content})
    matches = (await full(pattern)).data["matches"]
    assert [(match["line"], match["column"], match["text"]) for match in matches] == found


async def test_case_insensitive(lines, plant):
    plant({"a.txt": "Straße NEEDLE\n"})
    assert await lines("needle", case_insensitive=True) == ["a.txt:1"]


async def test_a_minified_line_is_cut(full, plant):
    plant({"min.js": "x" * 5_000 + "needle" + "y" * 500_000 + "needle\n"})
    found = await full("needle", limits=SearchLimits(max_line_bytes=100))
    (match,) = found.data["matches"]
    assert (match["text"], match["cut"]) == ("x" * 100, True)
    assert "first match at byte 5001" in found.content
    assert len(found.content) < 400


async def test_binary_and_oversized_files_are_skipped_and_counted(full, files, plant):
    plant(
        {
            "bin.dat": b"needle\n\0\1\2",
            "big.txt": b"needle\n" * 400,
            "late.dat": b"needle\n" * 20_000 + b"\0",
            "ok.txt": "needle\n",
        }
    )
    found = await full("needle", limits=SearchLimits(max_file_bytes=2_000))
    assert [match["path"] for match in found.data["matches"]] == ["ok.txt"]
    assert (found.data["skipped"]["binary"], found.data["skipped"]["oversized"]) == (1, 2)
    assert "bin.dat" in found.content
    assert await files("*") == ["big.txt", "bin.dat", "late.dat", "ok.txt"], "they still have names"


async def test_a_named_binary_file_is_counted_when_it_matches(full, plant):
    plant({"bin.dat": b"\0\1needle\n"})
    for pattern, count in (("needle", 1), ("absent", 0)):
        found = await full(pattern, path="bin.dat")
        assert (found.data["matches"], found.data["skipped"]["binary"]) == ([], count)


async def test_of_a_binary_file_no_line_is_shown(full, plant):
    """ripgrep prints the first line of one."""
    plant({"bin.dat": b"needle\nfoo\n\0\n", "odd\nname": b"needle\n\0", "late.dat": b"needle\n" * 20_000 + b"\0"})
    found = await full("^needle", limits=SearchLimits(max_matches=2))
    assert {match["path"] for match in found.data["matches"]} == {"late.dat"}
    found = await full("^needle", glob="*a*")
    assert {match["path"] for match in found.data["matches"]} == {"late.dat"}


async def test_a_named_file_is_searched_whatever_its_size(lines, plant):
    plant({"big.txt": b"x\n" * 3_000 + b"needle\n"})
    limits = SearchLimits(max_file_bytes=2_000)
    assert await lines("needle", limits=limits) == []
    assert await lines("needle", limits=limits, path="big.txt") == ["big.txt:3001"]


async def test_a_filter_by_name_tells_what_was_skipped(full, plant):
    plant(
        {
            ".gitignore": "gen/\n*.log\n",
            "gen/a.py": "needle\n",
            "b.log": "needle\n",
            "node_modules/c.py": "needle\n",
            "big.py": "needle\n" * 400,
            "big.txt": "needle\n" * 400,
            "matching.py": b"needle\0\n",
            "other.py": b"\0\n",
            "matching.txt": b"needle\0\n",
            "ok.py": "needle\n",
        }
    )
    found = await full("needle", glob="*.py", limits=SearchLimits(max_file_bytes=2_000))
    assert [match["path"] for match in found.data["matches"]] == ["ok.py"]
    counted = {reason: count for reason, count in found.data["skipped"].items() if count}
    assert counted == {"ignored": 2, "dependencies": 1, "oversized": 1, "binary": 1}
    assert "1 binary (matching.py)" in found.content
    assert "1 too large (big.py)" in found.content


async def test_skipped_files_with_line_ends_in_their_names(full, plant):
    plant({".gitignore": "*.log\n", "a\n.log": "needle\n", "bin\nary": b"\0", "big\n.txt": b"x" * 3_000})
    found = await full("needle", limits=SearchLimits(max_file_bytes=2_000))
    counted = {reason: count for reason, count in found.data["skipped"].items() if count}
    assert counted == {"ignored": 1, "binary": 1, "oversized": 1}


async def test_a_name_that_looks_like_a_message_makes_no_search_fail(lines, plant):
    plant({".gitignore": "*evil*\n", "a\nrg: evil": "needle\n", "b": "needle\n"})
    assert await lines("needle") == ["b:1"]


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
@pytest.mark.parametrize("excess", [0, 1, 2])
async def test_a_line_is_cut_only_when_it_is_too_long(full, plant, end: str, excess: int):
    line = "needle" + "\u20ac" * 8 + "x" * excess
    plant({"a.txt": line + end})
    (match,) = (await full("needle", limits=SearchLimits(max_line_bytes=30))).data["matches"]
    assert (match["text"], match.get("cut", False)) == (line[:14], excess > 0)


@pytest.mark.parametrize("limit", [28, 29, 30])
async def test_a_line_is_not_cut_inside_a_character(full, plant, limit: int):
    plant({"a.txt": "needle" + "\u20ac" * 20 + "\n"})
    (match,) = (await full("needle", limits=SearchLimits(max_line_bytes=limit))).data["matches"]
    assert match["text"] == "needle" + "\u20ac" * ((limit - 6) // 3)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("two$", ["b.txt:1", "c.txt:1"]),
        (r"two\r$", ["c.txt:1"]),
        (r"\r", ["c.txt:1", "c.txt:2"]),
        ("d[\r]", ["c.txt:2"]),
    ],
)
async def test_carriage_returns_are_seen_by_patterns_that_name_them(lines, plant, pattern: str, found: list[str]):
    plant({"b.txt": "two\n", "c.txt": "two\r\nend\r\n"})
    assert await lines(pattern) == found
    assert await lines(pattern, glob="*.txt") == found


async def test_a_backslash_before_an_r_is_no_carriage_return(lines, plant):
    plant({"a.txt": "c:\\run\r\n"})
    assert await lines(r"c:\\run$") == ["a.txt:1"]


# -- arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "words"), [("(", "paren|unclosed|unterminated"), ("[", "class|set"), ("a{2,1}", "repe")]
)
async def test_an_invalid_pattern_is_explained(lines, plant, pattern: str, words: str):
    plant({"a.txt": "x\n"})
    with pytest.raises(BadArgumentError, match=words) as caught:
        await lines(pattern)
    assert (caught.value.step, caught.value.reason) == ("search", "malformed")


@pytest.mark.parametrize("pattern", ["", "a\nb", "a\0b", r"\n", r"a\nb", r"\\\n", r"\x0a", r"\x{A}", r"\012", r"\R"])
async def test_patterns_for_more_than_a_line(lines, pattern: str):
    with pytest.raises(BadArgumentError, match="single line"):
        await lines(pattern)


async def test_a_backslash_before_an_n_is_no_line_break(lines, plant):
    plant({"a.txt": "one\\nline\nother\n"})
    assert await lines(r"e\\n") == ["a.txt:1"]
    assert await lines(r"o[^\n]*l") == ["a.txt:1"]


async def test_a_match_of_a_lines_end_alone_is_told(lines, plant):
    """Look-around makes ripgrep take another engine, which sees the ends of lines and gives such a match no column."""
    plant({"a.txt": "no: x\n12:34:\nx y\n"})
    assert "a.txt:3" in await lines(r"(?<=x)\s")


async def test_look_around(lines, plant):
    plant({"a.txt": "foobar\nfoobaz\n"})
    assert await lines("foo(?!bar)") == ["a.txt:2"]


async def test_a_path_that_does_not_exist(lines):
    with pytest.raises(BadArgumentError, match="does not exist") as caught:
        await lines("x", path="no/such")
    assert (caught.value.reason, caught.value.path) == ("notFound", "no/such")


async def test_a_pattern_below_nothing_finds_nothing_and_says_so(root: Path, program: Program):
    found = await glob(str(root), "no/such/*.py", program=program)
    assert found.data["paths"] == []
    assert "there is nothing named 'no/such'" in found.content


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ["a.py"]),
        ("**/*.py", ["a.py", "app/[id]/page.py", "src/b.py", "src/deep/c.py"]),
        ("src/**", ["src/b.py", "src/b.ts", "src/deep/c.py", "src/x.tsx"]),
        ("src", ["src/b.py", "src/b.ts", "src/deep/c.py", "src/x.tsx"]),
        ("./src/*.py", ["src/b.py"]),
        ("src/*.{ts,tsx}", ["src/b.ts", "src/x.tsx"]),
        ("{src,app}/**/*.py", ["app/[id]/page.py", "src/b.py", "src/deep/c.py"]),
        ("**/[bc].py", ["src/b.py", "src/deep/c.py"]),
        ("**/?.ts", ["src/b.ts"]),
        ("app/[id]/*.py", ["app/[id]/page.py"]),
        ("app/[id]/page.py", ["app/[id]/page.py"]),
        ("nothing*", []),
    ],
)
async def test_glob_patterns(files, plant, pattern: str, expected: list[str]):
    plant(dict.fromkeys(["a.py", "src/b.py", "src/b.ts", "src/x.tsx", "src/deep/c.py", "app/[id]/page.py"], "x\n"))
    assert await files(pattern) == expected


@pytest.mark.parametrize(
    ("narrow", "expected"),
    [
        ({"glob": "*.py"}, ["a.py:1", "src/b.py:1"]),
        ({"glob": "src/*"}, ["src/b.py:1", "src/c.ts:1"]),
        ({"glob": "**/*.{ts,js}"}, ["src/c.ts:1"]),
        ({"path": "src"}, ["src/b.py:1", "src/c.ts:1"]),
        ({"path": "src", "glob": "*.ts"}, ["src/c.ts:1"]),
        ({"path": "src", "glob": "src/*.ts"}, ["src/c.ts:1"]),
        ({"path": "src/b.py", "glob": "*.ts"}, []),
        ({"path": "./src/"}, ["src/b.py:1", "src/c.ts:1"]),
        ({"path": "."}, ["a.py:1", "src/b.py:1", "src/c.ts:1"]),
    ],
)
async def test_grep_narrowed(lines, plant, narrow: dict, expected: list[str]):
    plant(dict.fromkeys(["a.py", "src/b.py", "src/c.ts"], "needle\n"))
    assert await lines("needle", **narrow) == expected


async def test_absolute_paths_under_the_root(lines, files, root: Path, plant):
    plant({"src/a.py": "needle\n"})
    assert await lines("needle", path=str(root / "src")) == ["src/a.py:1"]
    assert await files(f"{root}/src/*.py") == ["src/a.py"]


async def test_a_filter_never_widens(lines, plant):
    """ripgrep's own --glob would search an ignored file that it names."""
    plant({".gitignore": "*.log\n", "a.log": "needle\n", "b.txt": "needle\n"})
    assert await lines("needle", glob="*.log") == []


async def test_names_decomposed_on_disk(lines, files, root: Path, plant):
    decomposed = unicodedata.normalize("NFD", "café")
    composed = unicodedata.normalize("NFC", "café")
    assert decomposed != composed
    plant({f"{decomposed}/{decomposed}.txt": "needle\n"})
    path = f"{decomposed}/{decomposed}.txt"
    for spelled in (composed, decomposed):
        assert await files(f"**/{spelled}.txt") == [path]
        assert await files(f"{spelled}/*.txt") == [path]
        assert await lines("needle", path=spelled) == [f"{path}:1"]
        assert await lines("needle", glob=f"{spelled}.txt") == [f"{path}:1"]


async def test_awkward_names(lines, files, plant):
    plant({"new\nline.txt": "needle\n", "colon:3:x.txt": "needle\n", "späce d.txt": "needle\n"})
    assert await lines("needle") == ["colon:3:x.txt:1", "new\nline.txt:1", "späce d.txt:1"]
    assert await files("*.txt") == ["colon:3:x.txt", "new\nline.txt", "späce d.txt"]


async def test_names_that_are_not_utf8_are_counted(full, root: Path, plant):
    plant({"a.txt": "needle\n"})
    Path(os.fsdecode(os.fsencode(root) + b"/\xff.txt")).write_text("needle\n")
    found = await full("needle")
    assert [match["path"] for match in found.data["matches"]] == ["a.txt"]
    assert found.data["skipped"]["unnameable"] == 1


async def test_denied_files_never_appear(full, files, root: Path, program: Program, plant):
    plant({".gitignore": "secrets.log\n", ".env": "KEY=needle\n", "a.txt": "needle\n", "secrets.log": "needle\n"})

    def deny(path: str) -> bool:
        return path in {".env", "secrets.log"}

    found = await full("needle", deny=deny)
    everything = await glob(str(root), "**/*", deny=deny, program=program)
    for answer in (found, everything):
        assert ".env" not in str(answer.data) + answer.content
        assert "secrets" not in str(answer.data) + answer.content
    assert everything.data["paths"] == [".gitignore", "a.txt"]
    assert "denies" in (await full("nowhere", deny=deny)).content
    for path in (".env", "secrets.log"):
        with pytest.raises(PolicyError, match="denies reading"):
            await full("needle", path=path, deny=deny)


async def test_whether_a_denied_file_matches_cannot_be_told(full, plant):
    """The answer is the same whatever the denied file holds."""

    def deny(path: str) -> bool:
        return path == ".env"

    plant({".env": "KEY=guess\n"})
    hit = await full("KEY=guess", deny=deny)
    plant({".env": "KEY=other\n"})
    assert (await full("KEY=guess", deny=deny)) == hit


@pytest.mark.parametrize("name", ["keys.pem", "late.pem"])
async def test_whether_a_denied_binary_file_matches_cannot_be_told(full, plant, name: str):
    """Not by what was skipped either, however the search is narrowed."""

    def deny(path: str) -> bool:
        return path.endswith(".pem")

    filler = b"\n" * 100_000 if name == "late.pem" else b""
    for narrow in ({}, {"glob": "*.pem"}, {"glob": "**/*"}):
        plant({name: b"guess" + filler + b"\0\n"})
        hit = await full("guess", deny=deny, **narrow)
        plant({name: b"other" + filler + b"\0\n"})
        assert (await full("guess", deny=deny, **narrow)) == hit


# -- ignore rules ------------------------------------------------------------------------------------------------


async def test_ignore_rules_nest_and_negate(lines, plant):
    plant(
        {
            ".gitignore": "*.log\n!keep.log\nbuild/\n# comment\n\\#odd\n",
            "sub/.gitignore": "/only-here\n!special.log\n",
            **dict.fromkeys(
                ["a.log", "keep.log", "build/x", "sub/b.log", "sub/special.log", "sub/only-here", "only-here", "#odd"],
                "needle\n",
            ),
        }
    )
    assert await lines("needle") == ["keep.log:1", "only-here:1", "sub/special.log:1"]


async def test_excludes_of_the_repository_count(lines, root: Path, plant):
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    plant({".git/info/exclude": "private/\n", "private/x": "needle\n", "a": "needle\n"})
    assert await lines("needle") == ["a:1"]


async def test_rules_between_the_repository_and_the_root_count(root: Path, program: Program, plant):
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    plant({".gitignore": "*.log\n", "pkg/a.log": "needle\n", "pkg/a.py": "needle\n", "pkg/sub/b.log": "needle\n"})
    found = await grep(str(root / "pkg"), "needle", program=program)
    assert [match["path"] for match in found.data["matches"]] == ["a.py"]
    assert (await glob(str(root / "pkg"), "sub/*", program=program)).data["paths"] == []


async def test_rules_above_a_root_without_a_repository_do_not_count(lines, root: Path, plant):
    """A home directory under version control often ignores everything."""
    (root.parent / ".gitignore").write_text("*\n")
    plant({".gitignore": "*.log\n", "src/a.py": "needle\n", "src/a.log": "needle\n"})
    assert await lines("needle") == ["src/a.py:1"]
    assert await lines("needle", path="src") == ["src/a.py:1"]


async def test_a_users_own_ripgrep_configuration_changes_nothing(lines, plant, tmp_path: Path, monkeypatch):
    config = tmp_path / "ripgreprc"
    config.write_text("--invert-match\n--files\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(config))
    plant({"a.txt": "needle\n", ".ignore": "a.txt\n", ".rgignore": "a.txt\n"})
    assert await lines("needle") == ["a.txt:1"]


def test_an_unreadable_directory_is_counted():
    """What the program complains about in passing is a skip, not a failure."""
    skipped = Skipped()
    messages = Messages(skipped.add)
    messages.feed(b"rg: ./locked: Permission denied (os er")
    messages.feed(b"ror 13)")
    messages.finish()
    assert skipped.counts == {"unreadable": 1}
    assert skipped.examples == {"unreadable": ["locked"]}
    assert not messages.complaint


# -- bounds ------------------------------------------------------------------------------------------------------


async def test_what_is_shown_is_first_by_path(full, root: Path, plant, program: Program):
    plant({f"f{number:03}.txt": "needle\n" * 3 for number in range(100)})
    found = await full("needle", limits=SearchLimits(max_matches=20))
    shown = [(match["path"], match["line"]) for match in found.data["matches"]]
    assert shown == [(f"f{number // 3:03}.txt", number % 3 + 1) for number in range(20)]
    assert (found.data["total"], found.data["files"], found.data["truncated"]) == (300, 100, True)
    assert "showing the first 20 of 300 matching lines" in found.content
    listed = await glob(str(root), "*", limits=SearchLimits(max_paths=7), program=program)
    assert listed.data["paths"] == [f"f{number:03}.txt" for number in range(7)]
    assert "showing the first 7 of 100 files" in listed.content


async def test_a_flood_of_matches_is_stopped(full, plant):
    plant({"a.txt": "needle\n" * 100_000})
    found = await full("needle", limits=SearchLimits(max_matches=10))
    assert len(found.data["matches"]) == 10
    assert found.data["truncated"]
    assert "showing 10 of more than" in found.content


async def test_a_pattern_without_end_is_stopped(root: Path, plant):
    plant({"a.txt": "a" * 200 + "b\n"})
    began = time.monotonic()
    found = await grep(str(root), "(a+)+$", program="python", limits=SearchLimits(timeout_s=0.5))
    assert time.monotonic() - began < 3
    assert found.data["truncated"]
    assert "stopped after 0.5 s: the answer is incomplete" in found.content


async def test_cancellation_ends_the_program(root: Path, plant, eventually):
    plant({"a.txt": "a" * 200 + "b\n"})
    signal = Cancellation()
    call = asyncio.create_task(grep(str(root), "(a+)+$", program="python", signal=signal))
    children = lambda: [p for p in _children() if "search_fallback" in p]  # noqa: E731
    await eventually(lambda: bool(children()))
    signal.cancel()
    with pytest.raises(CallCancelledError):
        await call
    assert not children()
    call = asyncio.create_task(grep(str(root), "(a+)+$", program="python"))
    await eventually(lambda: bool(children()))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not children()


def _children() -> list[str]:
    found: list[str] = []
    for child in psutil.Process().children():
        try:
            found.append(" ".join(child.cmdline()))
        except psutil.Error:
            continue
    return found


async def test_a_program_that_ends_as_it_is_cancelled_is_seen_to_end(
    root: Path, plant, caplog: pytest.LogCaptureFixture
):
    """Killing it must not take its exit status from the one who waits; the moment is short, so it is tried often."""
    plant({"a.txt": "x\n"})
    begun = time.perf_counter()
    await grep(str(root), "x")
    took_s = time.perf_counter() - begun
    for attempt in range(150):
        signal = Cancellation()
        asyncio.get_running_loop().call_later(took_s * (0.4 + attempt % 50 / 60), signal.cancel, "enough")
        with contextlib.suppress(CallCancelledError):
            await grep(str(root), "x", signal=signal)
    assert not [record.message for record in caplog.records if "Unknown child process" in record.message]


async def test_cancelling_a_filtered_search_ends_both_programs(root: Path, fake_ripgrep, eventually):
    fake_ripgrep("exec sleep 60")
    call = asyncio.create_task(grep(str(root), "x", glob="*.py"))
    await eventually(lambda: len([p for p in _children() if p == "sleep 60"]) == 2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert "sleep 60" not in _children()


async def test_a_filtered_search_whose_teller_breaks_down_is_an_error(root: Path, fake_ripgrep):
    fake_ripgrep('case "$*" in *--files*) echo "rg: out of luck" >&2; kill -9 $$;; esac; exit 1')
    with pytest.raises(StepFailedError, match="out of luck"):
        await grep(str(root), "needle", glob="*.py")


async def test_a_program_that_leaves_its_pipes_open_holds_nobody_up(root: Path, fake_ripgrep, nap):
    fake_ripgrep(f"{nap()} & printf './a.txt\\0001:1:needle\\n'; exit 0")
    began = time.monotonic()
    found = await grep(str(root), "needle")
    assert time.monotonic() - began < 10
    assert found.data["total"] == 1
    for child in [p for p in psutil.process_iter(["cmdline"]) if "sleep" in (p.info["cmdline"] or [""])[0]]:
        if child.info["cmdline"][-1].startswith(f"60.{os.getpid()}"):
            child.kill()


async def test_without_ripgrep_the_answer_says_so(root: Path, plant, monkeypatch: pytest.MonkeyPatch):
    plant({"a.txt": "needle\n"})
    monkeypatch.setattr(search_process, "ripgrep", lambda: None)
    found = await grep(str(root), "needle")
    assert found.data["engine"] == "python"
    assert "slower search" in found.content


@pytest.fixture
def fake_ripgrep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Search with a shell script in ripgrep's place."""

    def install(body: str) -> None:
        program = tmp_path / "rg"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        monkeypatch.setattr(search_process, "ripgrep", lambda: str(program))

    return install


async def test_an_old_ripgrep_is_replaced_by_the_stand_in(root: Path, plant, fake_ripgrep):
    plant({"a.txt": "needle\n"})
    fake_ripgrep("echo 'rg: unrecognized flag --no-ignore-dot' >&2; exit 2")
    found = await grep(str(root), "needle")
    assert (found.data["engine"], found.data["total"]) == ("python", 1)


async def test_a_ripgrep_that_keeps_silent_about_skips_is_said(root: Path, fake_ripgrep):
    fake_ripgrep("exit 1")
    assert "does not tell what it skipped" in (await grep(str(root), "needle")).content


async def test_a_program_that_breaks_down_is_an_error_and_not_an_empty_answer(root: Path, fake_ripgrep):
    fake_ripgrep("echo 'rg: out of luck' >&2; kill -9 $$")
    with pytest.raises(StepFailedError, match="out of luck"):
        await grep(str(root), "needle")


async def test_a_deep_tree(lines, root: Path):
    directory = root
    for _ in range(300):
        directory /= "d"
    directory.mkdir(parents=True)
    (directory / "a.txt").write_text("needle\n")
    assert await lines("needle") == ["d/" * 300 + "a.txt:1"]


async def test_nothing_of_the_workspace_is_imported(root: Path, plant):
    plant(dict.fromkeys(("pathspec.py", "argparse.py", "devtools_lsp.py"), "raise SystemExit('imported')\n"))
    found: GlobResult = await glob(str(root), "*.py", program="python")
    assert len(found.data["paths"]) == 3


async def test_both_programs_agree_on_a_random_tree(root: Path, plant):
    """Seeded: names, rules, contents and questions."""
    if search_process.ripgrep() is None:
        pytest.skip("ripgrep is not installed")
    chance = random.Random(20_240)
    names = ["a", "b.py", "c.log", "d.txt", ".hidden", "gen", "target", "x y", "é.py", "[z].py"]
    rules = ["*.log", "gen/", "/a", "!c.log", "**/d.txt", "b.*", "target", "x y", "sub/gen", ".hidden/*", "\\[z].py"]
    tree: dict[str, str | bytes] = {}
    for _ in range(150):
        parts = [chance.choice(names) for _ in range(chance.randint(1, 4))]
        for cut in range(1, len(parts)):
            tree.pop("/".join(parts[:cut]), None)
        if any(path.startswith("/".join(parts) + "/") for path in tree):
            continue
        tree["/".join(parts)] = "\n".join(chance.choice(["needle", "nothing", "Needle é"]) for _ in range(4))
    for directory in {path.rpartition("/")[0] for path in chance.sample(sorted(tree), 12)} | {""}:
        tree[f"{directory}/.gitignore".lstrip("/")] = "\n".join(chance.sample(rules, 3)) + "\n"
    plant(tree)
    for pattern in ("needle", "é$", "^n.*g$"):
        for narrow in ({}, {"glob": "*.py"}, {"path": sorted(tree)[5].split("/")[0]}):
            first = await grep(str(root), pattern, program="ripgrep", **narrow)
            second = await grep(str(root), pattern, program="python", **narrow)
            assert first.data["matches"] == second.data["matches"]
            assert first.data["skipped"] == second.data["skipped"]
    for pattern in ("**/*", "*/**/*.py", "gen/**", "{a,x y}/**", "**/[ab]*"):
        first = await glob(str(root), pattern, program="ripgrep")
        second = await glob(str(root), pattern, program="python")
        assert first.data["paths"] == second.data["paths"]
