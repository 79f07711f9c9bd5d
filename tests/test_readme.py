"""The README's examples run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def example(name: str) -> str:
    text = README.read_text(encoding="utf-8")
    block = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```\n<!-- /{name} -->", text, re.DOTALL)
    assert block is not None, f"README.md has no example {name!r}"
    return block.group(1)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "devtools.toml").write_text(
        '[gate]\nmode = "allow"\n[engines.basedpyright]\npreset = "basedpyright"\n', encoding="utf-8"
    )
    (tmp_path / "app.py").write_text("a = 1\n", encoding="utf-8")
    yield tmp_path
    subprocess.run(
        [sys.executable, "-m", "devtools_lsp", "stop", "--root", str(tmp_path)], check=True, capture_output=True
    )


def run(code: str, project: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_client_example(project: Path, tool):
    tool("basedpyright-langserver")
    said = run(example("client"), project)
    assert (project / "app.py").read_text(encoding="utf-8") == "a = 2\n"
    assert "M  app.py" in said
    assert '"b" is not defined' in said


def test_the_streaming_example(project: Path):
    said = run(example("stream"), project)
    assert said.split("\n")[:2] == ["one", "two"]
    assert "exit 0 wrote ['built.txt']" in said


def test_the_toolset_example(project: Path):
    said = run(example("toolset"), project)
    assert (project / "app.py").read_text(encoding="utf-8") == "a = 2\n"
    assert "['read_file', 'write_file', 'edit_file', 'glob', 'grep', 'bash']" in said
    assert "-a = 1\n+a = 2\n" in said
    assert "'content': 'app.py: edited\\n', 'is_error': False" in said
    assert "bash cat app.py\na = 2\nexit 0 in " in said


def test_the_library_example(project: Path):
    (project / "app.py").write_text("a = 2\n", encoding="utf-8")
    said = run(example("library"), project)
    assert (project / "app.py").read_text(encoding="utf-8") == "a = 3\n"
    assert "write ['app.py']" in said


def test_the_two_lines_do_their_own_set_up():
    for name in ("demo", "tests"):
        (line,) = example(name).strip().split("\n")
        assert line.startswith("python3 -m venv .venv && .venv/bin/python -m pip install -q -e '.[dev]' && .venv/bin/")
