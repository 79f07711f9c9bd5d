"""The house rules that a machine can check: formatting, linting, types, the staircase of imports, module docs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "devtools_lsp"


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_formatted():
    run(sys.executable, "-m", "ruff", "format", "--check", "--quiet", ".")


def test_linted():
    run(sys.executable, "-m", "ruff", "check", "--quiet", ".")


@pytest.mark.timeout(240)
def test_typed():
    run(sys.executable, "-m", "basedpyright", "--level", "warning")


def test_staircase():
    """No room imports from above or beside it."""
    run(str(Path(sys.executable).parent / "lint-imports"), "--no-cache")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_owns(path: Path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{path} has no docstring"


def test_importing_the_package_loads_nothing_else():
    """The stdio proxy starts with the package, so the package must stay cheap."""
    script = "import sys; before=set(sys.modules); import devtools_lsp; print(*sorted(set(sys.modules)-before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["__future__", "devtools_lsp"] or done.stdout.split() == ["devtools_lsp"]


def test_ci_runs_the_test_line_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- tests -->(.*?)<!-- /tests -->", readme, re.DOTALL)
    assert block is not None
    assert "pytest" in block.group(1)
    assert "README.md" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_exception_from_the_types_says_why():
    bare = re.compile(r"(?:type|pyright): ignore(?:\[[^\]]*\])?+(?! -- \S)")
    found = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if bare.search(line)
    ]
    assert found == []


def test_no_module_is_a_drawer():
    names = {path.stem for path in PACKAGE.rglob("*.py")}
    assert not names & {"utils", "helpers", "manager", "common", "misc"}


def test_the_architecture_page_names_tests_and_modules_that_exist():
    page = (PACKAGE / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for file, _, name in re.findall(r"`((?:\w+/)+test_\w+\.py)(::(\w+))?`", page):
        source = ROOT / "tests" / file.removeprefix("tests/")
        assert source.is_file(), f"{file} does not exist"
        assert not name or f"def {name}(" in source.read_text(encoding="utf-8"), f"{file} has no {name}"
    for module in re.findall(r"`((?:\w+/)+\w+\.py)(?:: \w+)?`", page):
        known = [PACKAGE / module, ROOT / "tests" / module, ROOT / module]
        assert any(path.is_file() for path in known), f"{module} does not exist"
