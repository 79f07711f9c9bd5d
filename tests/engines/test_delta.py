"""The ten scenes of a diagnostics delta, on real checkers (I14)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from devtools_lsp.engines.registry import EngineRegistry
from devtools_lsp.engines.spec import spec_from_table

pytestmark = pytest.mark.asyncio(loop_scope="module")

TSCONFIG = {"compilerOptions": {"strict": True, "noEmit": True, "module": "esnext", "moduleResolution": "bundler"}}
"""Imports of the scenes are relative, so one configuration at the root serves all."""


@dataclass(frozen=True)
class Python:
    """How the scenes read in Python."""

    suffix: str = "py"

    def undefined(self, name: str) -> str:
        return f"print({name})\n"

    def function(self, name: str) -> str:
        return f"def {name}(x: int) -> int:\n    return x\n"

    def call(self, package: str, module: str, name: str) -> str:
        return f"from {package}.{module} import {name}\n\nprint({name}(1))\n"

    def inferred(self, value: str) -> str:
        return f"def make():\n    return {value}\n"

    def use_inferred(self, package: str, module: str) -> str:
        return f"from {package}.{module} import make\n\nprint(make().upper())\n"

    def base(self, method: str) -> str:
        return f"class Base:\n    def {method}(self) -> int:\n        return 1\n"

    def child(self, package: str, module: str) -> str:
        return f"from {package}.{module} import Base\n\n\nclass Child(Base):\n    pass\n"

    def use_child(self, package: str, module: str, method: str) -> str:
        return f"from {package}.{module} import Child\n\nprint(Child().{method}())\n"

    def harmless(self, number: int) -> str:
        return f"value_{number} = {number}\nprint(value_{number})\n"


@dataclass(frozen=True)
class TypeScript(Python):
    """How the scenes read in TypeScript."""

    suffix: str = "ts"

    def undefined(self, name: str) -> str:
        return f"console.log({name})\n"

    def function(self, name: str) -> str:
        return f"export function {name}(x: number): number {{\n  return x\n}}\n"

    def call(self, package: str, module: str, name: str) -> str:
        return f"import {{ {name} }} from './{module}'\n\nconsole.log({name}(1))\n"

    def inferred(self, value: str) -> str:
        return f"export function make() {{\n  return {value}\n}}\n"

    def use_inferred(self, package: str, module: str) -> str:
        return f"import {{ make }} from './{module}'\n\nconsole.log(make().toUpperCase())\n"

    def base(self, method: str) -> str:
        return f"export class Base {{\n  {method}(): number {{\n    return 1\n  }}\n}}\n"

    def child(self, package: str, module: str) -> str:
        return f"import {{ Base }} from './{module}'\n\nexport class Child extends Base {{}}\n"

    def use_child(self, package: str, module: str, method: str) -> str:
        return f"import {{ Child }} from './{module}'\n\nconsole.log(new Child().{method}())\n"

    def harmless(self, number: int) -> str:
        return f"export const value_{number} = {number}\n"


DIALECTS: dict[str, Python] = {
    "basedpyright": Python(),
    "ty": Python(),
    "typescript": TypeScript(),
    "pyright": Python(),
    "typescript-language-server": TypeScript(),
}
ALIKE = frozenset({"pyright", "typescript-language-server"})
"""Judged by default through a near relative; themselves in the long form."""
SHADOWED = frozenset({"ty", "typescript"})


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[pytest.param(name, marks=pytest.mark.full if name in ALIKE else ()) for name in sorted(DIALECTS)],
)
async def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engines: Any
) -> AsyncIterator[Any]:
    """One warm engine over one root for all scenes of a module; each scene lives in a directory of its own."""
    preset: str = request.param
    engines.require(preset)
    root = tmp_path_factory.mktemp(preset)
    engines.link_node_modules(root, preset)
    (root / "tsconfig.json").write_text(json.dumps(TSCONFIG))
    registry = EngineRegistry(root, [spec_from_table(preset, {"preset": preset, "dependents_deadline_s": 10})])
    await registry.start()
    yield engines.Scene(root, registry, preset)
    await registry.close()


@pytest.fixture
def at(world: Any, request: pytest.FixtureRequest) -> Any:
    """Paths of this test's own package."""
    package = request.node.originalname.removeprefix("test_")[:20]
    dialect = DIALECTS[world.engine_id]

    class At:
        name = package
        d = dialect

        def __call__(self, module: str) -> str:
            return f"{package}/{module}.{dialect.suffix}"

    return At()


async def test_d1_an_old_error_that_moved_is_unchanged(world: Any, at: Any) -> None:
    path = at("main")
    lines = "".join(at.d.harmless(number) for number in range(20))
    world.write({path: lines + at.d.undefined("missing")})
    verdict = await world.compare(changes={path: at.d.harmless(99) + lines + at.d.undefined("missing")})
    assert (verdict.introduced, verdict.resolved) == ([], [])
    assert verdict.unchanged >= 1
    assert path in verdict.judged


async def test_d2_one_error_for_another_is_two_facts(world: Any, at: Any) -> None:
    path = at("main")
    world.write({path: at.d.undefined("missing_one")})
    verdict = await world.compare(changes={path: at.d.undefined("missing_two")})
    assert [e.severity for e in verdict.introduced].count("error") == 1
    assert [e.severity for e in verdict.resolved].count("error") == 1


async def test_d3_a_renamed_function_breaks_an_unopened_importer(world: Any, at: Any) -> None:
    world.write({at("lib"): at.d.function("total"), at("user"): at.d.call(at.name, "lib", "total")})
    verdict = await world.compare(changes={at("lib"): at.d.function("sum_up")})
    assert any(e.severity == "error" for e in verdict.introduced_in(at("user"))), verdict


async def test_d3_an_inherited_method_breaks_a_user_two_imports_away(world: Any, at: Any) -> None:
    world.write(
        {
            at("base"): at.d.base("size"),
            at("child"): at.d.child(at.name, "base"),
            at("user"): at.d.use_child(at.name, "child", "size"),
        }
    )
    verdict = await world.compare(changes={at("base"): at.d.base("length")})
    assert any(e.severity == "error" for e in verdict.introduced_in(at("user"))), verdict


async def test_d3_an_inferred_return_type_breaks_its_user(world: Any, at: Any) -> None:
    world.write({at("lib"): at.d.inferred("'a'"), at("user"): at.d.use_inferred(at.name, "lib")})
    verdict = await world.compare(changes={at("lib"): at.d.inferred("1")})
    assert at("user") in verdict.judged
    # ty takes the result of a function without annotation for unknown, on the command line too.
    assert any(e.severity == "error" for e in verdict.introduced_in(at("user"))) == (world.engine_id != "ty"), verdict


async def test_d3_without_time_the_importer_is_pending_not_clean(world: Any, at: Any) -> None:
    world.write({at("lib"): at.d.function("total"), at("user"): at.d.call(at.name, "lib", "total")})
    verdict = await world.compare(changes={at("lib"): at.d.function("sum_up")}, deadline_s=0.0)
    assert at("user") not in verdict.judged
    assert at("lib") in verdict.pending


async def test_d5_an_error_from_outside_belongs_to_the_acquired_state(world: Any, at: Any) -> None:
    path = at("main")
    world.write({path: at.d.harmless(1)})
    await world.compare(changes={path: at.d.harmless(1) + at.d.harmless(2)})
    world.write({path: at.d.harmless(1) + at.d.undefined("from_outside")})
    verdict = await world.compare(changes={path: at.d.harmless(3) + at.d.harmless(1) + at.d.undefined("from_outside")})
    assert [e for e in verdict.introduced if e.severity == "error"] == []
    assert any(finding.severity == "error" for finding in verdict.comparison.before)


async def test_d6_two_plans_at_once_see_their_own_consequences(world: Any, at: Any) -> None:
    path = at("main")
    world.write({path: at.d.harmless(1)})
    one, other = await asyncio.gather(
        world.compare(changes={path: at.d.harmless(1) + at.d.undefined("of_the_one")}),
        world.compare(changes={path: at.d.harmless(1) + at.d.undefined("of_the_other")}),
    )
    assert "of_the_one" in str(one.introduced)
    assert "of_the_other" not in str(one.introduced)
    assert "of_the_other" in str(other.introduced)
    assert "of_the_one" not in str(other.introduced)
    after = await world.run("check", path)
    assert [e for e in after.diagnostics if e.severity == "error"] == []


async def test_d7_a_plan_that_does_not_write_leaves_nothing_behind(world: Any, at: Any) -> None:
    path = at("main")
    world.write({path: at.d.undefined("really_missing")})
    clean = await world.run("check", path, changes={path: at.d.harmless(1)})
    assert [e for e in clean.diagnostics if e.severity == "error"] == []
    again = await world.run("check", path)
    assert "really_missing" in str(again.diagnostics)
    assert world.read(path) == at.d.undefined("really_missing")


async def test_d8_a_created_file_that_others_wait_for(world: Any, at: Any) -> None:
    world.write({at("user"): at.d.call(at.name, "lib", "total")})
    verdict = await world.compare(at("user"), changes={at("lib"): at.d.function("total")})
    if world.engine_id in SHADOWED:
        assert any(e.path == at("user") and e.severity == "error" for e in verdict.resolved), verdict.comparison
    else:
        assert at("user") in verdict.pending
    world.write({at("lib"): at.d.function("total")})
    written = await world.run("check", at("user"))
    assert [e for e in written.diagnostics if e.severity == "error"] == []


async def test_d8_a_deleted_file_that_others_import(world: Any, at: Any) -> None:
    world.write(
        {at("lib"): at.d.function("total") + at.d.undefined("gone_too"), at("user"): at.d.call(at.name, "lib", "total")}
    )
    verdict = await world.compare(changes={at("lib"): None})
    assert "gone_too" in str(verdict.resolved)
    if world.engine_id in SHADOWED:
        assert any(e.severity == "error" for e in verdict.introduced_in(at("user"))), verdict
    else:
        assert at("user") in verdict.pending
    (world.root / at("lib")).unlink()
    written = await world.run("check", at("user"))
    assert any(e.severity == "error" for e in written.diagnostics)


async def test_d8_a_moved_file_that_others_import(world: Any, at: Any) -> None:
    text = at.d.function("total")
    world.write({at("lib"): text, at("user"): at.d.call(at.name, "lib", "total")})
    verdict = await world.compare(changes={at("lib"): None, at("moved"): text})
    if world.engine_id in SHADOWED:
        assert any(e.severity == "error" for e in verdict.introduced_in(at("user"))), verdict
    else:
        assert at("user") in verdict.pending


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
async def test_d10_columns_after_an_emoji_a_tab_and_crlf(world: Any, at: Any, ending: str) -> None:
    path = at(f"main_{len(ending)}")
    python = "if True:\n\ts = '😀'; print(missing_name)\n"
    script = "if (true) {\n\tconst s = '😀'; console.log(s, missing_name)\n}\n"
    text = script if at.d.suffix == "ts" else python
    world.write({path: text.replace("\n", ending)})
    delta = await world.run("check", path)
    (error,) = [e for e in delta.diagnostics if e.severity == "error"]
    assert world.text_at(error, text) == "missing_name"


async def test_p93_a_file_written_outside_is_seen_at_once(world: Any, at: Any) -> None:
    world.write({at("a"): at.d.call(at.name, "b", "f")})
    first = await world.run("check", at("a"))
    assert any(e.severity == "error" for e in first.diagnostics)
    # A writer that nobody announces: no event reaches the registry before the next question.
    writer = await asyncio.create_subprocess_exec(
        "sh", "-c", f'printf %s "$TEXT" > {world.root / at("b")}', env={"TEXT": at.d.function("f")}
    )
    assert await writer.wait() == 0
    second = await world.run("check", at("a"))
    assert [e for e in second.diagnostics if e.severity == "error"] == []


async def test_what_was_judged_before_it_landed_is_known_afterwards(world: Any, at: Any) -> None:
    """The state that a plan previewed and then wrote needs no second judgement; a stale baseline would show here."""
    world.write({at("lib"): at.d.function("total"), at("user"): at.d.call(at.name, "lib", "total")})
    broken = at.d.function("sum_up")
    before = await world.compare(changes={at("lib"): broken})
    assert any(e.severity == "error" for e in before.introduced_in(at("user")))
    world.write({at("lib"): broken})
    landed = await world.compare(at("user"), changes={at("lib"): broken + "\n"})
    assert [e for e in landed.introduced if e.severity == "error"] == []
    assert any(f.path == at("user") and f.severity == "error" for f in landed.comparison.before)
