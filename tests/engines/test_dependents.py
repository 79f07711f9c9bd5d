"""Who imports whom, read from import lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from devtools_lsp.engines.dependents import ImportGraph, imports_of
from devtools_lsp.engines.tree import FileEvent, ProjectTree

PYTHON = frozenset({"py", "pyi"})
SCRIPTS = frozenset({"ts", "js", "tsx"})


async def graph_of(root: Path, files: Mapping[str, str], extensions: frozenset[str]) -> tuple[ImportGraph, ProjectTree]:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    tree = ProjectTree(root)
    await tree.sweep()
    graph = ImportGraph(tree, extensions)
    await graph.refresh()
    return graph, tree


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.py", "import os, b.c as d\n", {"os", "b.c"}),
        ("a.py", "from q.r import (s,\n  t as u)\n", {"q.r", "q.r.s", "q.r.t", "q.r.u", "q.r.as"}),
        ("p/s/a.py", "from . import w\n", {".p.s", ".p.s.w"}),
        ("p/s/a.py", "from ..x import y\n", {".p.x", ".p.x.y"}),
        ("a.py", "if True:\n    import late\n", {"late"}),
        ("src/a.ts", "import {x} from './b'\nexport * from '../c.js'\n", {"src/b", "c.js"}),
        ("a.js", "const z = require('lib/q'); await import('./d')\nimport './e.css'\n", {"*lib/q", "d", "e.css"}),
        ("a.md", "import x\n", set()),
    ],
)
def test_what_an_import_line_asks_for(path: str, text: str, expected: set[str]) -> None:
    assert imports_of(path, text) == expected


async def test_importers_and_their_importers(tmp_path: Path) -> None:
    files = {
        "src/pkg/__init__.py": "",
        "src/pkg/base.py": "x = 1\n",
        "src/pkg/middle.py": "from .base import x\n",
        "src/pkg/top.py": "from pkg import middle\n",
        "tests/test_top.py": "import pkg.top\n",
        "other.py": "import os\n",
    }
    graph, _ = await graph_of(tmp_path, files, PYTHON)
    assert graph.importers(["src/pkg/base.py"]) == ["src/pkg/middle.py"]
    assert graph.closure(["src/pkg/base.py"]) == ["src/pkg/middle.py", "src/pkg/top.py", "tests/test_top.py"]
    assert graph.closure(["other.py"]) == []


async def test_a_cycle_ends(tmp_path: Path) -> None:
    graph, _ = await graph_of(tmp_path, {"a.py": "import b\n", "b.py": "import a\n"}, PYTHON)
    assert graph.closure(["a.py"]) == ["b.py"]


async def test_scripts(tmp_path: Path) -> None:
    files = {
        "src/lib/index.ts": "export const x = 1\n",
        "src/a.ts": "import { x } from './lib'\n",
        "src/b.tsx": "import { x } from './lib/index.js'\n",
        "src/c.ts": "import { x } from '@/lib'\n",
        "src/d.ts": "import fs from 'node:fs'\n",
    }
    graph, _ = await graph_of(tmp_path, files, SCRIPTS)
    assert graph.importers(["src/lib/index.ts"]) == ["src/a.ts", "src/b.tsx", "src/c.ts"]


async def test_what_changed_is_read_again(tmp_path: Path) -> None:
    graph, tree = await graph_of(tmp_path, {"a.py": "", "b.py": ""}, PYTHON)
    assert graph.importers(["a.py"]) == []
    (tmp_path / "b.py").write_text("import a\n")
    tree.note([FileEvent("b.py", "changed")])
    graph.forget()
    await graph.refresh()
    assert graph.importers(["a.py"]) == ["b.py"]


async def test_who_asks_for_a_file_that_is_not_there(tmp_path: Path) -> None:
    graph, _ = await graph_of(tmp_path, {"a.py": "from new import f\n", "b.py": "import a\n"}, PYTHON)
    assert graph.asking_for(["new.py"], {}) == ["a.py"]
    assert graph.asking_for(["new.py"], {"b.py": "import new\n", "a.py": ""}) == ["b.py"]
