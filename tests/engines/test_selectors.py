"""Document selectors: the globs of the protocol, and filters made of them."""

from __future__ import annotations

from typing import Any

import pytest

from devtools_lsp.engines.selectors import Document, glob_matches, selects

GLOBS = [
    ("*.ts", "a.ts", True),
    ("*.ts", "src/a.ts", False),
    ("*.ts", ".ts", True),
    ("**/*.ts", "a.ts", True),
    ("**/*.ts", "src/deep/a.ts", True),
    ("**/*.ts", "/root/src/a.ts", True),
    ("**/*.ts", "a.tsx", False),
    ("**/*.{ts,js}", "src/a.js", True),
    ("**/*.{ts,js}", "src/a.jsx", False),
    ("**/*.{t{s,sx},js}", "src/a.tsx", True),
    ("{src,test}/**/*.py", "test/a.py", True),
    ("{src,test}/**/*.py", "docs/a.py", False),
    ("{**/a,**/b}.py", "x/y/b.py", True),
    ("src/**", "src/a/b", True),
    ("src/**", "srcs/a", False),
    ("src/**/a.py", "src/a.py", True),
    ("src/**/a.py", "src/x/y/a.py", True),
    ("src/**/a.py", "src/xa.py", False),
    ("**", "any/thing", True),
    ("**/node_modules/**", "a/node_modules/b/c.js", True),
    ("example.[0-9]", "example.0", True),
    ("example.[0-9]", "example.a", False),
    ("example.[!0-9]", "example.a", True),
    ("example.[!0-9]", "example.0", False),
    ("a[!x]b", "a/b", False),
    ("a?c", "abc", True),
    ("a?c", "a/c", False),
    ("a?c", "ac", False),
    ("a.b", "axb", False),
    ("(a|b)+", "(a|b)+", True),
    ("[^]]", "x", False),
    ("a[b", "a[b", False),
    ("{a,b", "{a,b", False),
    ("a[\\]b", "a\\b", True),
    ("{" * 40 + "}" * 40, "", False),
    ("é*.py", "été.py", True),
]


@pytest.mark.parametrize(("glob", "path", "expected"), GLOBS)
def test_globs(glob: str, path: str, expected: bool) -> None:
    assert glob_matches(glob, path) is expected


FILE = Document(host="/root/src/sub/a.ts", relative="src/sub/a.ts", language="typescript")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, True),
        ([], False),
        (["typescript"], True),
        (["*"], True),
        (["python"], False),
        ([{"language": "typescript"}], True),
        ([{"language": "python"}, {"language": "typescript", "scheme": "file"}], True),
        ([{"scheme": "untitled"}], False),
        ([{"language": "typescript", "scheme": "untitled"}], False),
        ([{"pattern": "**/*.ts"}], True),
        ([{"pattern": "*.ts"}], True),
        ([{"pattern": "src/**/*.{ts,tsx}"}], True),
        ([{"pattern": "/root/src/**"}], True),
        ([{"pattern": "/other/**"}], False),
        ([{"language": "typescript", "pattern": "**/*.py"}], False),
        ([{"pattern": {"baseUri": "file:///root/src", "pattern": "**/*.ts"}}], True),
        ([{"pattern": {"baseUri": "file:///root/src/", "pattern": "*.ts"}}], False),
        ([{"pattern": {"baseUri": "file:///root/src/sub", "pattern": "*.ts"}}], True),
        ([{"pattern": {"baseUri": {"uri": "file:///root/src", "name": "src"}, "pattern": "sub/*"}}], True),
        ([{"pattern": {"baseUri": "file:///root/s", "pattern": "**"}}], False),
        ([{"pattern": {"baseUri": "memfs:///root/src", "pattern": "**"}}], False),
        ([{"notebook": "*", "language": "typescript"}], False),
        ([3, {"pattern": 7}], False),
        ("typescript", False),
    ],
)
def test_filters(selector: Any, expected: bool) -> None:
    assert selects(selector, FILE) is expected
