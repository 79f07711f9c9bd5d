"""Glob patterns and ignore rules by themselves."""

from __future__ import annotations

import time

import pytest

from devtools_lsp.agent.search_rules import Glob, IgnoreRules, anywhere
from devtools_lsp.errors import BadArgumentError


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*", ["a", ".b"], ["a/b"]),
        ("**", ["a", "a/b"], [""]),
        ("**/*.py", ["a.py", "x/y/a.py", ".x/a.py"], ["a.pyc", "a.py/b"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb", "ab"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "ab"]),
        ("a/", ["a/b"], ["a"]),
        ("a**b", ["ab", "axb"], ["a/b"]),
        ("?.py", ["é.py"], ["ab.py", ".py", "/.py"]),
        ("[a-c].x", ["b.x", "[a-c].x"], ["d.x"]),
        ("[!a].x", ["b.x"], ["a.x", "/.x"]),
        ("[^a].x", ["b.x"], ["a.x"]),
        ("[]]", ["]"], ["["]),
        ("[", ["["], ["a"]),
        ("[z-a]", ["[z-a]"], ["z"]),
        ("{a,b}/c", ["a/c", "b/c"], ["{a,b}/c"]),
        ("{a/b,c}.x", ["a/b.x", "c.x"], []),
        ("{a,{b,c}}", ["a", "b", "c"], []),
        ("{single}", ["{single}"], ["single"]),
        ("a{,.bak}", ["a", "a.bak"], []),
        ("(a|b)+$", ["(a|b)+$"], ["a"]),
        ("*a*a*", ["aa", "xaxax"], ["a", "xax"]),
        ("*ab*b", ["abb", "ababab"], ["ab"]),
        ("a\nb", ["a\nb"], []),
        ("caf\u00e9", ["cafe\u0301"], ["cafe"]),
    ],
)
def test_glob(pattern: str, matching: list[str], others: list[str]):
    compiled = Glob.parse(pattern)
    assert [path for path in matching if not compiled.matches(path)] == []
    assert [path for path in others if compiled.matches(path)] == []


@pytest.mark.parametrize("pattern", ["", "!a", "../a", "a/../b", "a\0", "{a,b}" * 7, "/".join(["**", "a"] * 9)])
def test_refused_globs(pattern: str):
    with pytest.raises(BadArgumentError) as caught:
        Glob.parse(pattern)
    assert caught.value.reason == "malformed"


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        ("a/b/*.py", ("a", "b")),
        ("*.py", ()),
        ("a/b.py", ("a", "b.py")),
        ("{a/x,a/y}/*", ("a",)),
        ("{a,b}/c", ()),
        ("a/**", ("a",)),
        ("app/[id]/x", ("app",)),
    ],
)
def test_literal_prefix(pattern: str, prefix: tuple[str, ...]):
    assert Glob.parse(pattern).literal_prefix == prefix


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("src/*.py", ["*.py"]),
        ("*.{ts,tsx}", ["*.ts", "*.tsx"]),
        ("src/**", None),
        ("[ab].c", ["*.c"]),
        ("é:x", ["*?x"]),
    ],
)
def test_coarse_file_names_lose_nothing(pattern: str, names: list[str] | None):
    assert anywhere(pattern).file_names() == names


@pytest.mark.parametrize("pattern", ["*a" * 30 + "b", "**/" * 8 + "x", "[a*" * 20, "*" * 500 + "b"])
def test_no_glob_is_slow(pattern: str):
    compiled = Glob.parse(pattern)
    began = time.process_time()
    for path in ("a" * 255, "/".join(["a" * 20] * 100), "/".join(["a"] * 1_000)):
        compiled.matches(path)
    assert time.process_time() - began < 1


def test_a_malformed_rule_does_not_disable_the_others(root, plant):
    plant({".gitignore": "*.log\n!\n/\n[z-a]\nfoo/**/bar\n", "x/.gitignore": b"\xff\xfe\n*.tmp\n"})
    rules = IgnoreRules(root)
    assert rules.ignores("a.log", directory=False)
    assert rules.ignores("x/a.tmp", directory=False)
    assert not rules.ignores("a.txt", directory=False)


def test_a_negation_cannot_reach_into_an_ignored_directory(root, plant):
    plant({".gitignore": "gen/\n!gen/keep.py\n"})
    assert IgnoreRules(root).ignores("gen/keep.py", directory=False)
