"""CONTRACT.md and the suite say the same: every clause has tests, every test has a clause.

`python -m tests.contract.test_document` writes the lists of tests anew.
"""

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
    clauses = re.findall(r"^\*\*(\d+\.\d+)\*\*", text, re.MULTILINE)
    assert len(clauses) == len(set(clauses)), "a clause number is used twice"
    blocks = re.split(r"^\*\*(\d+\.\d+)\*\*", text, flags=re.MULTILINE)[1:]
    return {
        number: re.findall(r"^- `(test_\w+\.py::test_\w+)`$", body, re.MULTILINE)
        for number, body in zip(blocks[::2], blocks[1::2], strict=True)
    }


def with_lists(text: str) -> str:
    """The page with each clause's list of tests as the suite has it."""
    named, _ = suite_by_clause()
    pieces = re.split(r"^(\*\*\d+\.\d+\*\*)", text, flags=re.MULTILINE)
    written = pieces[0]
    for number, body in zip(pieces[1::2], pieces[2::2], strict=True):
        prose, heading, rest = body.partition("\n## ")
        words = "\n".join(line for line in prose.split("\n") if not line.startswith("- `test_")).strip()
        listed = "\n".join(f"- `{test}`" for test in named.get(number.strip("*"), []))
        written += f"{number} {words}\n\n{listed}\n\n{heading.lstrip()}{rest}"
    return written.rstrip("\n") + "\n"


def test_every_test_names_a_clause():
    assert suite_by_clause()[1] == []


@pytest.mark.parametrize("number", sorted(document()))
def test_a_clause_lists_exactly_its_tests(number: str):
    assert document()[number] == suite_by_clause()[0].get(number, [])
    assert document()[number], f"clause {number} has no test"


def test_every_clause_that_a_test_names_is_in_the_document():
    assert sorted(set(suite_by_clause()[0]) - set(document())) == []


if __name__ == "__main__":
    DOCUMENT.write_text(with_lists(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
