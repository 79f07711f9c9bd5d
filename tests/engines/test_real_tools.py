"""Engines for real, through their presets."""

from __future__ import annotations

from typing import Any

import pytest

from devtools_lsp.engines.spec import spec_from_table

SCRIPT = "var a = 1;;\nconst x = '😀'; debugger; if (x == 1) { }\n"
RULES = '{ "no-debugger": "error", "eqeqeq": "warn", "no-extra-semi": "error", "no-var": "error" }'
ESLINT = f"export default [{{ rules: {RULES} }}];\n"


@pytest.fixture
def scene_of(make_scene: Any, engines: Any) -> Any:
    def make(preset: str, files: dict[str, str]) -> Any:
        engines.require(preset)
        scene = make_scene(spec_from_table("off", {**OFF}), files=files)
        engines.link_node_modules(scene.root, preset)
        scene.engine_id = preset
        return scene

    return make


OFF: dict[str, Any] = {"kind": "command", "command": ["true"], "capabilities": ["lint"], "extensions": ["off"]}


async def configured(scene: Any) -> Any:
    await scene.registry.reconfigure([spec_from_table(scene.engine_id, {"preset": scene.engine_id})])
    return scene


async def test_biome_lints_text_that_is_not_on_disk(scene_of: Any) -> None:
    scene = await configured(scene_of("biome", {"m.js": "export const a = 1;\n", "n.js": SCRIPT}))
    clean = await scene.run("lint", "m.js")
    assert (clean.diagnostics, clean.pending) == ((), ())
    delta = await scene.run("lint", "m.js", "n.js", changes={"m.js": SCRIPT})
    for path in ("m.js", "n.js"):
        found = [(f.rule, scene.text_at(f, SCRIPT)) for f in delta.diagnostics if f.path == path]
        assert ("lint/suspicious/noDebugger", "debugger") in [(rule, text.rstrip(";")) for rule, text in found]
    assert scene.read("m.js") == "export const a = 1;\n"


async def test_biome_formats_and_says_when_it_cannot(scene_of: Any) -> None:
    scene = await configured(scene_of("biome", {"m.js": SCRIPT}))
    delta = await scene.run("format", "m.js")
    assert delta.changed["m.js"].startswith('var a = 1;\nconst x = "😀";\n')
    broken = await scene.run("format", "m.js", changes={"m.js": "x = (\n"})
    assert broken.changed == {}
    assert [(f.rule, f.severity) for f in broken.diagnostics] == [("parse", "warning")]
    assert (await scene.run("format", "m.js", changes=delta.changed)).changed == {}


async def test_biome_fixes(scene_of: Any) -> None:
    text = "export const a = 1;\nexport function f() { return !!!a; }\nif (a === -0) f();\n"
    scene = await configured(scene_of("biome", {"m.js": text}))
    before = await scene.run("lint", "m.js")
    after = await scene.run("lint", "m.js", fix=True)
    assert after.changed["m.js"] != text
    assert after.fixed
    assert len(after.fixed) + len(after.diagnostics) == len(before.diagnostics)


async def test_biomes_server_and_cache_are_ours_and_end_with_us(scene_of: Any, engines: Any) -> None:
    import psutil

    scene = await configured(scene_of("biome", {"m.js": SCRIPT}))
    await scene.run("format", "m.js")

    def servers() -> list[int]:
        return [
            p.pid for p in psutil.process_iter() if "__run_server" in cmdline(p) and str(cache) in " ".join(cmdline(p))
        ]

    def cmdline(process: psutil.Process) -> list[str]:
        try:
            return process.cmdline()
        except psutil.Error:
            return []

    cache = next(p for p in psutil.Process().children(recursive=True) if "lsp-proxy" in cmdline(p)).environ()[
        "XDG_CACHE_HOME"
    ]
    assert servers()
    await scene.registry.close()
    await engines.eventually(lambda: not servers(), what="the server is gone")


async def test_eslint(scene_of: Any) -> None:
    scene = await configured(scene_of("eslint", {"eslint.config.mjs": ESLINT, "m.js": SCRIPT}))
    delta = await scene.run("lint", "m.js")
    assert [(f.rule, f.severity, scene.text_at(f, SCRIPT)) for f in delta.diagnostics] == [
        ("no-var", "error", "var a = 1;"),
        ("no-extra-semi", "error", ";"),
        ("no-debugger", "error", "debugger;"),
        ("eqeqeq", "warning", "=="),
    ]
    fixed = await scene.run("lint", "m.js", fix=True)
    assert fixed.changed == {"m.js": SCRIPT.replace("var a = 1;;", "let a = 1;")}
    assert sorted(f.rule for f in fixed.fixed) == ["no-extra-semi", "no-var"]
    again = await scene.compare(changes={"m.js": SCRIPT.replace("debugger;", "")}, step="lint")
    assert [e.rule for e in again.resolved] == ["no-debugger"]
    assert again.introduced == []


@pytest.mark.parametrize(
    ("preset", "path", "text", "token"),
    [
        ("pyright", "m.py", "s = '😀'; x: int = undefined_name\nprint(s, x)\n", "undefined_name"),
        (
            "typescript-language-server",
            "m.ts",
            "const s = '😀', x: number = undefinedName\nconsole.log(s, x)\n",
            "undefinedName",
        ),
    ],
)
async def test_checkers_that_resemble_others(scene_of: Any, preset: str, path: str, text: str, token: str) -> None:
    """Their scenes of the delta are those of their near relatives, in the long form of the suite."""
    scene = await configured(scene_of(preset, {path: text.replace(token, "1"), "tsconfig.json": "{}"}))
    verdict = await scene.compare(changes={path: text})
    (error,) = verdict.introduced
    assert (error.severity, scene.text_at(error, text)) == ("error", token)
    assert path in verdict.judged
    after = await scene.run("check", path)
    assert (after.diagnostics, after.pending) == ((), ())


async def test_shellcheck(make_scene: Any, tool: Any) -> None:
    tool("shellcheck")
    text = "#!/bin/sh\n# 😀\necho '😀' $1\n"
    scene = make_scene(spec_from_table("shellcheck", {"preset": "shellcheck"}), files={"run.sh": "#!/bin/sh\necho\n"})
    delta = await scene.run("lint", "run.sh", changes={"run.sh": text})
    assert [(f.rule, f.severity, scene.text_at(f, text)) for f in delta.diagnostics] == [("2086", "info", "$1")]
    assert (await scene.run("lint", "run.sh")).diagnostics == ()
    broken = await scene.run("lint", "run.sh", changes={"run.sh": "#!/bin/sh\nif true; then\n"})
    assert "error" in [f.severity for f in broken.diagnostics]


async def test_prettier(scene_of: Any) -> None:
    scene = await configured(scene_of("prettier", {"m.js": SCRIPT, "package.json": '{"prettier": {"semi": false}}'}))
    delta = await scene.run("format", "m.js")
    assert delta.changed["m.js"].startswith('var a = 1\nconst x = "😀"\n')
    assert scene.engine.describe().config == "package.json"
    broken = await scene.run("format", "m.js", changes={"m.js": "x = (\n"})
    assert broken.changed == {}
    assert "SyntaxError" in broken.diagnostics[0].message


@pytest.fixture
def mypy(make_scene: Any, tool: Any) -> Any:
    tool("dmypy")
    return lambda files: make_scene(spec_from_table("mypy", {"preset": "mypy"}), files=files)


async def test_mypy_judges_the_whole_project_in_any_state(mypy: Any) -> None:
    """D1, D2, D3, D7 and D8 on mypy: what it says covers dependents, created and deleted files."""
    scene = mypy({"lib.py": "def total(x: int) -> int:\n    return x\n", "user.py": "import lib\n\nlib.total(1)\n"})
    renamed = await scene.compare(changes={"lib.py": "def sum_up(x: int) -> int:\n    return x\n"})
    assert [(e.path, e.rule) for e in renamed.introduced] == [("user.py", "attr-defined")]
    assert renamed.judged == {"lib.py", "user.py"}
    deleted = await scene.compare(changes={"lib.py": None})
    assert [(e.path, e.rule) for e in deleted.introduced] == [("user.py", "import-not-found")]
    created = await scene.compare("user.py", changes={"more.py": "import lib\n\nlib.total('')\n"})
    assert [(e.path, e.rule) for e in created.introduced] == [("more.py", "arg-type")]
    assert (await scene.run("check", "lib.py", "user.py")).diagnostics == ()
    assert scene.read("lib.py").startswith("def total")


async def test_mypy_follows_the_disk(mypy: Any) -> None:
    """P93."""
    scene = mypy({"a.py": "from b import f\n"})
    assert [f.rule for f in (await scene.run("check", "a.py")).diagnostics] == ["import-not-found"]
    scene.write({"b.py": "def f() -> None: ...\n"})
    assert (await scene.run("check", "a.py")).diagnostics == ()


async def test_mypy_that_dies_is_started_again(mypy: Any, engines: Any) -> None:
    import os
    import signal

    scene = mypy({"a.py": "x: int = ''\n"})
    assert len((await scene.run("check", "a.py")).diagnostics) == 1
    pid = scene.registry.status()[0].pid
    os.kill(pid, signal.SIGKILL)
    await engines.eventually(lambda: scene.registry.status()[0].pid is None, what="gone")
    assert len((await scene.run("check", "a.py", changes={"a.py": "x: int = ''\ny: str = 1\n"})).diagnostics) == 2
    assert scene.registry.status()[0].generation == 2


async def test_mypy_without_one_module_tree_checks_the_plans_files(mypy: Any) -> None:
    scene = mypy({"one/tool.py": "x: int = ''\n", "two/tool.py": "x = 1\n", "three/tool.py": "x = 1\n"})
    verdict = await scene.compare(changes={"one/tool.py": "x: int = ''\ny: str = 1\n"})
    assert [e.line for e in verdict.introduced] == [2]
    assert verdict.judged == {"one/tool.py"}
    assert "module name twice" in str(verdict.pending)


async def test_mypy_at_the_deadline_leaves_the_file_pending(mypy: Any) -> None:
    scene = mypy({"a.py": "x: int = ''\n"})
    delta = await scene.run("check", "a.py", deadline_s=0.01)
    assert [p.path for p in delta.pending] == ["a.py"]
    assert len((await scene.run("check", "a.py")).diagnostics) == 1


async def test_mypy_with_a_broken_configuration_judges_nothing_and_says_why(mypy: Any) -> None:
    scene = mypy({"a.py": "x = 1\n", "mypy.ini": "[mypy]\nplugins = no_such_plugin\n"})
    verdict = await scene.compare(changes={"a.py": "x = 2\n"})
    assert verdict.judged == frozenset()
    assert "no_such_plugin" in verdict.pending["a.py"]
    delta = await scene.run("check", "a.py")
    assert [p.path for p in delta.pending] == ["a.py"]
