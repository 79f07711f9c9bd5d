"""The real ruff server: format, lint, fix, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from devtools_lsp.engines.spec import spec_from_table


@pytest.fixture
def ruff(make_scene: Any, tool: Any) -> Any:
    tool("ruff")
    return lambda files: make_scene(spec_from_table("ruff", {"preset": "ruff"}), files=files)


async def test_format_never_removes_code(ruff: Any) -> None:
    """P112."""
    scene = ruff({"m.py": "x=1\n"})
    delta = await scene.run("format", "m.py", changes={"m.py": "import os\nx=1\n"})
    assert delta.changed == {"m.py": "import os\n\nx = 1\n"}


async def test_fixes_are_told_one_by_one(ruff: Any) -> None:
    """P112: what a fix removed is reported, and only an asked-for fix changes text."""
    scene = ruff({"m.py": "import os\nimport sys\n\nprint(sys.path)\n"})
    assert (await scene.run("lint", "m.py")).changed == {}
    delta = await scene.run("lint", "m.py", fix=True)
    assert delta.changed == {"m.py": "import sys\n\nprint(sys.path)\n"}
    assert [(f.path, f.rule, f.line) for f in delta.fixed] == [("m.py", "F401", 1)]
    assert delta.diagnostics == ()
    assert scene.read("m.py").startswith("import os")


async def test_a_syntax_error_is_told_and_the_text_stays(ruff: Any) -> None:
    scene = ruff({"m.py": "def (:\n"})
    delta = await scene.run("format", "m.py")
    assert delta.changed == {}
    assert [(f.severity, f.rule, f.line) for f in delta.diagnostics] == [("warning", "invalid-syntax", 1)]
    assert delta.diagnostics[0].message.startswith("not formatted: ")


async def test_a_formatted_file_is_not_a_change(ruff: Any) -> None:
    delta = await ruff({"m.py": "x = 1\n"}).run("format", "m.py")
    assert (delta.changed, delta.diagnostics) == ({}, ())


async def test_many_files_in_one_call(ruff: Any) -> None:
    files = {f"m{number}.py": f"import os\nx={number}\n" for number in range(40)}
    scene = ruff(files)
    assert len((await scene.run("format", *files)).changed) == 40
    lint = await scene.run("lint", *files)
    assert {f.path for f in lint.diagnostics} == set(files)
    assert lint.pending == ()


async def test_crlf_and_a_byte_order_mark_do_not_move_columns(ruff: Any) -> None:
    scene = ruff({"m.py": "\ufeffimport sys\r\ns = '😀'; y = undefined_name\r\nprint(sys, s, y)\r\n"})
    (finding,) = [f for f in (await scene.run("lint", "m.py")).diagnostics if f.rule == "F821"]
    assert scene.text_at(finding, scene.read("m.py")) == "undefined_name"


async def test_a_changed_configuration_counts_at_once(ruff: Any) -> None:
    scene = ruff({"ruff.toml": "lint.select = ['F']\n", "m.py": "import os\n"})
    assert [f.rule for f in (await scene.run("lint", "m.py")).diagnostics] == ["F401"]
    scene.write({"ruff.toml": "lint.select = ['E']\n# another size\n"})
    assert (await scene.run("lint", "m.py")).diagnostics == ()


async def test_the_configuration_used_is_named(ruff: Any) -> None:
    """P116: the nearest one that has a table for it."""
    scene = ruff({"pyproject.toml": "[tool.ruff]\n", "sub/pyproject.toml": "[project]\n", "sub/m.py": "x = 1\n"})
    await scene.run("lint", "sub/m.py")
    use = scene.engine.describe()
    assert (use.id, use.config) == ("ruff", "pyproject.toml")
    assert use.version is not None
    assert use.version[0].isdigit()


async def test_a_comparison_without_dependents(ruff: Any) -> None:
    scene = ruff({"m.py": "import os\n"})
    verdict = await scene.compare(changes={"m.py": "import re\n"}, step="lint")
    assert [e.message.split("`")[1] for e in verdict.introduced] == ["re"]
    assert [e.message.split("`")[1] for e in verdict.resolved] == ["os"]
    created = await scene.compare(changes={"new.py": "import os\n"}, step="lint")
    assert [e.path for e in created.introduced] == ["new.py"]
