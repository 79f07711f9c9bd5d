"""Root-relative paths and patterns (SPEC 3.2 and the lexical half of 5.2.1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.errors import BadArgumentError, PolicyError
from devtools_lsp.paths import (
    _PLAIN,
    PathPattern,
    _spelled_out,
    extension_of,
    is_pattern,
    parent_of,
    relative_path,
    segment_matches,
)

SEEDED = settings(derandomize=True, deadline=None, max_examples=100)
ROOT = "/srv/project"


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("a.py", "a.py"),
        ("./src//a.py", "src/a.py"),
        ("src/../a.py", "a.py"),
        ("src/a.py/", "src/a.py"),
        ("/srv/project/src/a.py", "src/a.py"),
        ("/srv/project/x/../../project/a.py", None),
        ("/srv/project", ""),
        ("/srv/project/", ""),
        (".", ""),
        ("~backup", "~backup"),
        ("a~/b", "a~/b"),
        ("src/[id].tsx", "src/[id].tsx"),
        ("C:x", "C:x"),
        ("a\\b", "a\\b"),
        ("grün/é.txt", "grün/é.txt"),
    ],
)
def test_paths_become_root_relative(raw: str, path: str | None):
    if path is None:
        with pytest.raises(PolicyError):
            relative_path(raw, ROOT)
    else:
        assert relative_path(raw, ROOT) == path


@settings(SEEDED, max_examples=2000)
@given(st.text(alphabet="ab.~/-:\\\0\n é", max_size=9) | st.from_regex(_PLAIN, fullmatch=True))
def test_paths_that_are_taken_as_they_are_are_those_that_would_come_out_so(raw: str):
    """The quick way says what the careful one says, refusals included."""

    def outcome(judge: Callable[[str, str], str]) -> str:
        try:
            return judge(raw, ROOT)
        except PolicyError as error:
            return f"{error.reason}: {error.message}"

    assert outcome(relative_path) == outcome(_spelled_out)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("../x", "outsideRoot"),
        ("a/../../x", "outsideRoot"),
        ("/etc/passwd", "outsideRoot"),
        ("/srv/project-evil/x", "outsideRoot"),
        ("~", "outsideRoot"),
        ("~/x", "outsideRoot"),
        ("a\0b", "malformed"),
        ("C:\\x", "malformed"),
        ("c:/x", "malformed"),
        ("\\\\server\\share", "malformed"),
        ("//server/share", "malformed"),
        ("\\\\?\\C:\\x", "malformed"),
        ("//./pipe", "malformed"),
        ("a\ud800", "malformed"),
        ("x" * 256, "malformed"),
        ("é" * 128, "malformed"),
        ("/".join(["d" * 200] * 30), "malformed"),
    ],
)
def test_paths_that_are_refused(raw: str, reason: str):
    with pytest.raises(PolicyError) as caught:
        relative_path(raw, ROOT)
    assert caught.value.reason == reason
    assert "/etc" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["a?.py", "[ab].py", "{a,b}.py", "!a.py", "a**b", "src/**.py", "", "/abs/*", "a/../*", "a\0*"]
)
def test_pattern_syntax_that_is_not_ours_is_refused(text: str):
    with pytest.raises(BadArgumentError) as caught:
        PathPattern.parse(text)
    assert caught.value.reason == "malformed"


@pytest.mark.parametrize(
    ("pattern", "path", "acquiring", "policing"),
    [
        ("*.py", "a.py", True, True),
        ("*.py", "src/a.py", False, False),
        ("**/*.py", "a.py", True, True),
        ("**/*.py", "src/deep/a.py", True, True),
        ("src/**", "src/x", True, True),
        ("src/**", "src", True, True),
        ("src/**/t/*.py", "src/t/a.py", True, True),
        ("src/**/t/*.py", "src/a/b/t/a.py", True, True),
        ("src/**/t/*.py", "src/a/b/a.py", False, False),
        ("*", "A.PY", True, True),
        ("*.py", "A.PY", False, False),
        ("*", ".env", False, True),
        ("**", ".git/config", False, True),
        ("**/*", "a/.b/c", False, True),
        (".*", ".env", True, True),
        ("**/.env", "x/.env", True, True),
        ("**/.env", ".x/.env", False, True),
        (".github/**", ".github/w.yml", True, True),
        ("a*b*c", "abxbc", True, True),
        ("a*b*c", "ac", False, False),
        ("ab*ba", "aba", False, False),
        ("./src/*.py", "src/a.py", True, True),
        ("**/**/x", "x", True, True),
    ],
)
def test_patterns(pattern: str, path: str, acquiring: bool, policing: bool):
    parsed = PathPattern.parse(pattern)
    assert parsed.matches(path, dot_names=False) is acquiring
    assert parsed.matches(path, dot_names=True) is policing


names = st.sampled_from(["a", "b", ".h", "ab"])
patterns = st.lists(st.sampled_from(["a", "*", "**", ".*", "a*", "b"]), min_size=1, max_size=5).map("/".join)


@SEEDED
@given(pattern=patterns, parts=st.lists(names, min_size=1, max_size=5), dots=st.booleans())
def test_matching_agrees_with_its_definition(pattern: str, parts: list[str], dots: bool):
    def by_definition(segments: list[str], rest: list[str]) -> bool:
        if not segments:
            return not rest
        if segments[0] == "**":
            return by_definition(segments[1:], rest) or (
                bool(rest) and (dots or not rest[0].startswith(".")) and by_definition(segments, rest[1:])
            )
        return (
            bool(rest)
            and segment_matches(segments[0], rest[0], dot_names=dots)
            and by_definition(segments[1:], rest[1:])
        )

    assert PathPattern.parse(pattern).matches("/".join(parts), dot_names=dots) is by_definition(
        pattern.split("/"), parts
    )


@SEEDED
@given(pattern=patterns, parts=st.lists(names, min_size=1, max_size=4), dots=st.booleans())
def test_a_walk_is_never_pruned_above_a_match(pattern: str, parts: list[str], dots: bool):
    parsed = PathPattern.parse(pattern)
    if parsed.matches("/".join(parts), dot_names=dots):
        for depth in range(len(parts)):
            assert parsed.may_match_below("/".join(parts[:depth]), dot_names=dots)


def test_a_pattern_of_many_wildcards_stays_fast():
    pattern = PathPattern.parse("/".join(["**", "a*"] * 40))
    assert not pattern.matches("/".join(["ab"] * 300 + ["z"]), dot_names=False)


def test_parts_of_names():
    assert [extension_of(path) for path in ("a.PY", ".gitignore", "x/.a.b", "a.", "dir.x/name")] == [
        "py",
        "",
        "b",
        "",
        "",
    ]
    assert [parent_of(path) for path in ("a", "a/b/c")] == ["", "a/b"]
    assert is_pattern("a/*")
    assert not is_pattern("a/[x]")
