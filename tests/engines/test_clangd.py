"""clangd for real: its findings depend on headers, and it publishes early words that are not its last (I14)."""

from __future__ import annotations

from typing import Any

import pytest

from devtools_lsp.engines.spec import spec_from_table

MAIN = '#include "lib.h"\nint main(void) { return total(1); }\n'
HEADER = "int total(int x);\n"


@pytest.fixture
def clangd(make_scene: Any, tool: Any) -> Any:
    tool("clangd")
    return lambda files: make_scene(spec_from_table("clangd", {"preset": "clangd"}), files=files)


def errors(found: Any) -> list[tuple[str, str]]:
    return [(entry.path, entry.message) for entry in found if entry.severity == "error"]


async def test_it_judges_and_formats_text_in_memory(clangd: Any) -> None:
    scene = clangd({"main.c": MAIN, "lib.h": HEADER})
    text = '#include "lib.h"\nint main(void) { const char *s = "😀"; return total(s[0]) + missing; }\n'
    delta = await scene.run("check", "main.c", changes={"main.c": text})
    (error,) = delta.diagnostics
    assert (error.severity, scene.text_at(error, text)) == ("error", "missing")
    assert (await scene.run("check", "main.c")).diagnostics == ()
    assert (await scene.run("format", "main.c")).changed == {}
    assert (await scene.run("format", "main.c", changes={"main.c": "int  x ;\n"})).changed == {"main.c": "int x;\n"}
    assert scene.registry.status()[0].version[0].isdigit()


async def test_a_header_in_memory_counts_and_is_put_back(clangd: Any) -> None:
    """D1, D3 and D7 in turn, again and again: an early word from the headers of before must never pass for the last."""
    scene = clangd({"main.c": MAIN, "lib.h": HEADER})
    for number in range(4):
        renamed = await scene.compare("main.c", changes={"lib.h": f"int sum_up{number}(int x);\n"})
        assert [path for path, _ in errors(renamed.introduced)] == ["main.c"]
        assert any("not judged" in reason for path, reason in renamed.pending.items() if path is None)
        own = await scene.compare(changes={"main.c": f"{MAIN}int k{number} = missing;\n"})
        assert [message for _, message in errors(own.introduced)] == ["Use of undeclared identifier 'missing'"]
        without = await scene.compare(changes={"main.c": MAIN.partition("\n")[2]})
        assert ["total" in message for _, message in errors(without.introduced)] == [True]
        assert (await scene.run("check", "main.c", "lib.h")).diagnostics == ()


async def test_a_header_that_changes_on_disk_is_seen_at_once(clangd: Any) -> None:
    """P93."""
    scene = clangd({"main.c": MAIN, "lib.h": HEADER})
    for _ in range(3):
        assert (await scene.run("check", "main.c")).diagnostics == ()
        scene.write({"lib.h": "int other(int x);\n"})
        assert ["total" in message for _, message in errors((await scene.run("check", "main.c")).diagnostics)] == [True]
        scene.write({"lib.h": HEADER})


async def test_a_header_that_is_created_counts_and_one_that_goes_is_pending(clangd: Any) -> None:
    """D8."""
    scene = clangd({"main.c": '#include "more.h"\n' + MAIN, "lib.h": HEADER})
    created = await scene.compare("main.c", changes={"more.h": "int more(void);\n"})
    assert ["more.h" in message for _, message in errors(created.resolved)] == [True]
    deleted = await scene.compare("main.c", changes={"lib.h": None})
    assert "main.c" not in deleted.judged
    assert "lib.h" in deleted.pending["main.c"]
