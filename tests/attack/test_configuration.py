"""The daemon's own configuration in a pyproject.toml: no door brings it there, changes it, or takes it away.

A pyproject.toml without it is an ordinary file that always asks; which of the two it is depends on contents, before
and after, so that every door is tried with the content that matters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.errors import DevToolsError
from tests.attack.doors import CHANGE, DOORS, NEW, OLD, SPARE, TRIGGER, Door, Entrance, edit_file, enter
from tests.attack.wire import envelope

OURS = "[tool.devtools-lsp]\n"
OTHERS = "[tool.ruff]\n"
PROJECT = "sub/pyproject.toml"


@pytest.fixture
def entrance(tmp_path: Path):
    for path, text in ((SPARE, NEW), (TRIGGER, NEW), (PROJECT, OTHERS), ("ours.txt", OURS)):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    entrance = enter(tmp_path)
    yield entrance
    entrance.close()


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".devtools" not in path.parts
    }


async def write_file(entrance: Entrance) -> Any:
    return await entrance.call("write_file", "workspace", path="pyproject.toml", content=OURS)


async def add(entrance: Entrance) -> Any:
    return await entrance.call("apply_patch", patch=envelope("*** Add File: PyProject.toml", f"+{OURS.strip()}"))


async def move(entrance: Entrance) -> Any:
    patch = envelope("*** Update File: ours.txt", "*** Move to: pyproject.toml")
    return await entrance.call("apply_patch", patch=patch)


async def edit(entrance: Entrance) -> Any:
    return await entrance.call("edit", path=PROJECT, edits=[{"find": OTHERS, "replace": OTHERS + OURS}])


async def plan(entrance: Entrance) -> Any:
    return await entrance.pipeline([PROJECT]).edit(PROJECT, [{"find": OTHERS, "replace": OURS}]).write()


async def dotted(entrance: Entrance) -> Any:
    text = "tool.'devtools-\\u006csp'.gate.mode = 'allow'\n".replace("'", '"')
    return await entrance.call("write_file", "workspace", path="pyproject.toml", content=text)


async def malformed(entrance: Entrance) -> Any:
    return await entrance.call("write_file", "workspace", path="pyproject.toml", content=f"]{OURS}")


BRINGING = (write_file, add, move, edit, plan, dotted, malformed)


@pytest.mark.parametrize("door", BRINGING, ids=lambda door: door.__name__)
async def test_it_never_comes_into_being(entrance: Entrance, door: Callable[[Entrance], Awaitable[Any]]):
    """And nobody is asked about it: what could not land is no question."""
    before = tree(entrance.root)
    with pytest.raises(DevToolsError) as refused:
        await door(entrance)
    assert (refused.value.code, refused.value.reason) == ("E_DEV_POLICY", "protected")
    assert refused.value.step
    assert not {"write_file", "apply_patch", "edit", "write"} & {call.step for call in entrance.questions} - (
        {"edit"} if door is plan else set()
    )
    assert tree(entrance.root) == before


async def test_an_engine_does_not_bring_it_either(entrance: Entrance):
    before = tree(entrance.root)
    with pytest.raises(DevToolsError) as refused:
        await entrance.in_facade(lambda facade: facade.write("pyproject.toml", OURS.encode()), "pyproject.toml")
    assert refused.value.reason == "protected"
    assert tree(entrance.root) == before


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_where_it_is_it_stays(entrance: Entrance, door: Door):
    (entrance.root / PROJECT).write_text(OURS + f"# {OLD}")
    before = tree(entrance.root)
    with pytest.raises(DevToolsError) as refused:
        await door(entrance, PROJECT)
    assert (refused.value.code, refused.value.reason) == ("E_DEV_POLICY", "protected")
    assert tree(entrance.root) == before


@pytest.mark.parametrize("door", CHANGE, ids=lambda door: door.__name__)
async def test_without_it_the_file_is_like_any_other(entrance: Entrance, door: Door):
    (entrance.root / PROJECT).write_text(OLD)
    entrance.acquired = (PROJECT,)
    if door is edit_file:
        await entrance.call("read_file", "workspace", path=PROJECT)
    before = tree(entrance.root)
    await door(entrance, PROJECT)
    assert tree(entrance.root) != before
