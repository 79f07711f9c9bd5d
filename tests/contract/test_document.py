"""CONTRACT.md and the suite say the same: every clause has tests, every test has a clause."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DOCUMENT = HERE.parent.parent / "devtools_lsp" / "CONTRACT.md"


def suite_by_clause() -> tuple[dict[str, list[str]], list[str]]:
    """Tests in order of file and line under each clause, and those that name none."""
    named: dict[str, list[str]] = defaultdict(list)
    unnamed: list[str] = []
    for path in sorted(HERE.glob("test_*.py")):
        if path == Path(__file__):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
                continue
            clauses = [
                decorator.args[0].value
                for decorator in node.decorator_list
                if isinstance(decorator, ast.Call)
                and isinstance(decorator.func, ast.Name)
                and decorator.func.id == "clause"
                and isinstance(decorator.args[0], ast.Constant)
            ]
            for clause in clauses:
                named[str(clause)].append(f"{path.name}::{node.name}")
            if not clauses:
                unnamed.append(f"{path.name}::{node.name}")
    return named, unnamed


def document() -> dict[str, list[str]]:
    """The tests that the page lists under each clause."""
    text = DOCUMENT.read_text(encoding="utf-8")
    clauses = re.findall(r"^\*\*(\d+\.\d+)\*\*", text, re.M)
    assert len(clauses) == len(set(clauses)), "a clause number is used twice"
    blocks = re.split(r"^\*\*(\d+\.\d+)\*\*", text, flags=re.M)[1:]
    return {
        number: re.findall(r"^- `(test_\w+\.py::test_\w+)`$", body, re.M)
        for number, body in zip(blocks[::2], blocks[1::2], strict=True)
    }


def test_every_test_names_a_clause():
    assert suite_by_clause()[1] == []


@pytest.mark.parametrize("number", sorted(document()))
def test_a_clause_lists_exactly_its_tests(number: str):
    assert document()[number] == suite_by_clause()[0].get(number, [])
    assert document()[number], f"clause {number} has no test"


def test_every_clause_that_a_test_names_is_in_the_document():
    assert sorted(set(suite_by_clause()[0]) - set(document())) == []
