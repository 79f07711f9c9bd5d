"""Many patterns at once mean what each of them means alone."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from devtools_lsp.fs.matching import PatternSet
from devtools_lsp.paths import PathPattern

pieces = st.text(alphabet="aAb.*-", min_size=1, max_size=3).filter(lambda text: "**" not in text and text != "..")
segments = st.one_of(st.just("**"), pieces, st.sampled_from(["*", "*.py", ".*", "a", ".env", ".env.*"]))
patterns = st.lists(segments, min_size=1, max_size=4).map("/".join).filter(lambda text: text.strip("./"))
names = st.one_of(
    st.text(alphabet="aAb.-\n", min_size=1, max_size=3), st.sampled_from(["a", "x.py", ".env", ".env.local", "é"])
)
paths = st.lists(names, min_size=1, max_size=5).map("/".join)


@given(texts=st.lists(patterns, max_size=3), path=paths)
@example(texts=["src/**"], path="src")
@example(texts=["**/x"], path="x")
@example(texts=["**"], path=".hidden/deep")
@example(texts=["a/**/b"], path="a/b")
@example(texts=["*"], path="a\n")
@example(texts=["a+(b)$^|"], path="a+(b)$^|")
@settings(max_examples=250, deadline=None, derandomize=True)
def test_a_set_matches_what_its_patterns_match(texts, path):
    parsed = [PathPattern.parse(text) for text in texts]
    expected = any(pattern.matches(path, dot_names=True) for pattern in parsed)
    assert PatternSet(parsed).matches(path) is expected
    assert PatternSet(parsed, forgiving=True).matches(path) or not expected


@pytest.mark.parametrize(
    ("pattern", "path", "verdict"),
    [
        ("**/.env", "a/.ENV", True),
        ("**/.ENV", "a/.env", True),
        ("**/*.pem", "k.PEM", True),
        ("**/*.pem", "k.pem.", True),
        ("**/*.pem", "k.p\u200cem", True),
        ("**/*.pem", "k.pen", False),
        ("**/*.pem", "k.pem/x", False),
        ("**/\u2100.x", "sub/\u2100.x", True),
        ("**/\u2100.x", "a/c.x", True),
        ("**/k.x", "\u2100/k.x", True),
        ("secret/**", "SECRET/x", True),
    ],
)
def test_a_forgiving_set_folds_both_sides(pattern, path, verdict):
    assert PatternSet([PathPattern.parse(pattern)], forgiving=True).matches(path) is verdict
