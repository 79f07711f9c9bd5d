"""The attack inputs through every door: one table, one verdict each, and nothing changed by a refusal.

Doors and inputs are in `doors.py` and `inputs.py`. A reason is the verdict; a patch that names what no path looks
like does not parse, which has the same reason under the code for malformed arguments.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.errors import DevToolsError
from devtools_lsp.fs.local import LocalFileSystem
from tests.attack.daemon import PLACE
from tests.attack.doors import (
    AWAY,
    CHANGE,
    DOORS,
    ELSEWHERE,
    NEW,
    OLD,
    SPARE,
    TRIGGER,
    Door,
    Entrance,
    edit_file,
    enter,
    facade_move_from,
    patch_move_from,
    write_file,
)
from tests.attack.inputs import INPUTS, OWN, Input, build, everything
from tests.attack.wire import envelope

CODES = {
    "outsideRoot": {"E_DEV_POLICY"},
    "symlink": {"E_DEV_POLICY"},
    "protected": {"E_DEV_POLICY"},
    "malformed": {"E_DEV_POLICY", "E_DEV_BAD_ARG"},
    "notFound": {"E_DEV_STEP_FAILED"},
}
RULES = ("reject", "inside")
REFUSED = [(row, rule) for row in INPUTS for rule in RULES if getattr(row, rule) is not None]
ALLOWED = [(row, rule) for row in INPUTS for rule in RULES if getattr(row, rule) is None]


def by_default(pairs: list[tuple[Input, str]]) -> list:
    """Both rules where they differ; where they agree one of them is enough but for the long form."""
    return [
        pytest.param(row, rule, marks=pytest.mark.full if rule == "inside" and row.reject == row.inside else ())
        for row, rule in pairs
    ]


def named(value: object) -> str | None:
    return str(value) if isinstance(value, Input) else getattr(value, "__name__", None)


@pytest.fixture(scope="module")
def entrances() -> Iterator[dict[str, Entrance]]:
    """One tree under both rules; refusals leave it as it is, which every test checks."""
    with tempfile.TemporaryDirectory(prefix="atk-", dir=PLACE) as directory:
        root = build(Path(directory).resolve())
        opened = {rule: enter(root, symlinks=rule, own_paths=OWN) for rule in RULES}
        yield opened
        for entrance in opened.values():
            entrance.close()


@pytest.mark.parametrize(("row", "rule"), by_default(REFUSED), ids=named)
async def test_every_door_gives_the_same_refusal(entrances, row: Input, rule: str):
    entrance = entrances[rule]
    base = entrance.root.parent
    path = row.path.replace("{root}", str(entrance.root))
    before = everything(base)
    verdicts: dict[tuple[str, str | None], list[str]] = {}
    for door in DOORS:
        if row.takes_away and door in AWAY:
            continue
        entrance.questions.clear()
        with pytest.raises(DevToolsError) as refused:
            await door(entrance, path)
        error = refused.value
        verdicts.setdefault((error.code, error.reason), []).append(door.__name__)
        assert str(base / "outside") not in error.message
        # What could not land is not asked about; the in-place engine was asked about before it tried.
        if not door.__name__.startswith("facade"):
            assert [call.step for call in entrance.questions] == []
    assert everything(base) == before
    reason = getattr(row, rule)
    assert {known for _, known in verdicts} == {reason}, verdicts
    assert {code for code, _ in verdicts} <= CODES[reason], verdicts


@pytest.mark.parametrize(("row", "rule"), by_default(ALLOWED), ids=named)
async def test_every_door_lets_the_innocent_through(tmp_path: Path, row: Input, rule: str):
    """The other side of the table: a policy that refuses everything would pass the test above."""
    root = build(tmp_path)
    path = row.path.replace("{root}", str(root))
    landed = root / (row.lands or row.path)
    entrance = enter(root, symlinks=rule, own_paths=OWN)
    try:
        for door in DOORS:
            await through(entrance, door, path, landed)
    finally:
        entrance.close()


async def through(entrance: Entrance, door: Door, path: str, landed: Path) -> None:
    """Go through one door, and find done what it is for and nothing else."""
    root, base = entrance.root, entrance.root.parent
    landed.parent.mkdir(parents=True, exist_ok=True)
    landed.unlink(missing_ok=True)
    (root / ELSEWHERE).unlink(missing_ok=True)
    (root / SPARE).write_text(NEW)
    entrance.acquired = (path,) if door in CHANGE else ()
    if door in CHANGE:
        if path == "linked.txt":
            os.link(base / "outside/twin.txt", landed)
        else:
            landed.write_text(OLD)
    if door is edit_file:
        await entrance.call("read_file", "workspace", path=path)
    before = everything(base)
    await door(entrance, path)
    after = everything(base)
    if door in AWAY:
        assert not landed.exists(), door.__name__
        assert (root / ELSEWHERE).exists() == (door in (patch_move_from, facade_move_from))
    else:
        assert landed.read_text() == NEW, door.__name__
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed - {str(root / SPARE), str(root / ELSEWHERE)} == {str(landed)}, door.__name__
    # Another name of the same file keeps the old content (P57).
    assert (base / "outside/twin.txt").read_text() == OLD


async def test_what_would_be_a_repository_only_as_a_whole_is_not_asked_about(entrances):
    """Each file alone is harmless; git would take the directory for a repository and run what its config says."""
    entrance: Entrance = entrances["reject"]
    files = [f"*** Add File: bare/{name}" for name in ("HEAD", "config", "objects/x", "refs/x")]
    entrance.questions.clear()
    with pytest.raises(DevToolsError) as refused:
        await entrance.call("apply_patch", patch=envelope(*[line for name in files for line in (name, "+x")]))
    assert (refused.value.code, refused.value.reason) == ("E_DEV_POLICY", "protected")
    assert entrance.questions == []


def added(*names: str) -> dict[str, Any]:
    return {"step": "apply_patch", "args": {"patch": envelope(*[x for name in names for x in (name, "+x")])}}


ADD_HEAD = added("*** Add File: bare/HEAD")
ADD_REST = added("*** Add File: bare/objects/x", "*** Add File: bare/refs/x")
WRITE: dict[str, Any] = {"step": "write", "args": {}}


def only(*paths: str) -> dict[str, Any]:
    return {"step": "write", "args": {"paths": list(paths)}}


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param([ADD_HEAD, ADD_REST, WRITE], id="one write"),
        pytest.param([ADD_HEAD, WRITE, ADD_REST, WRITE], id="a write between"),
        pytest.param([ADD_HEAD, ADD_REST, only("bare/HEAD"), only("bare/objects/x", "bare/refs/*")], id="in parts"),
    ],
)
async def test_patches_that_make_a_repository_only_together_are_not_asked_about(entrances, ops):
    """Nothing is asked for what cannot land: also when no single step, but what is written in the end, is harmful."""
    entrance: Entrance = entrances["reject"]
    entrance.questions.clear()
    with pytest.raises(DevToolsError) as refused:
        await entrance.call("dev_plan", "composite", paths=[], ops=ops)
    assert (refused.value.code, refused.value.reason, refused.value.step) == ("E_DEV_POLICY", "protected", "write")
    assert "bare/" in (refused.value.path or "")
    assert entrance.questions == []
    assert not (entrance.root / "bare").exists()


@pytest.mark.parametrize(
    ("ops", "left"),
    [
        pytest.param(
            [ADD_HEAD, {"step": "apply_patch", "args": {"patch": envelope("*** Delete File: bare/HEAD")}}, ADD_REST],
            {"objects/x", "refs/x"},
            id="taken back",
        ),
        pytest.param([ADD_HEAD, ADD_REST, only("bare/HEAD")], {"HEAD"}, id="a part only"),
    ],
)
async def test_a_repository_that_never_lands_is_no_reason_to_refuse(tmp_path: Path, ops, left):
    entrance = enter(build(tmp_path), symlinks="reject")
    ops = ops if ops[-1]["step"] == "write" else [*ops, WRITE]
    await entrance.call("dev_plan", "composite", paths=[], ops=ops)
    bare = entrance.root / "bare"
    assert {str(path.relative_to(bare)) for path in bare.rglob("*") if path.is_file()} == left
    entrance.close()


async def refusals(entrance: Entrance, path: str) -> set[tuple[str, str | None]]:
    """What the doors say to a path, one and all."""
    verdicts = set()
    for door in DOORS:
        with pytest.raises(DevToolsError) as refused:
            await door(entrance, path)
        verdicts.add((refused.value.code, refused.value.reason))
    return verdicts


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("real", [".git", ".git/hooks", ".vscode", "tools/hooks", "state"])
async def test_another_name_of_a_protected_directory(tmp_path: Path, mounted, real: str, rule: str):
    """A bind mount has a name of its own and no link to see: the directory is known by its identity."""
    root = build(tmp_path)
    (root / real).mkdir(exist_ok=True)
    mounted("--bind", str(root / real), at=root / "alias")
    entrance = enter(root, symlinks=rule, own_paths=OWN)
    before = everything(tmp_path)
    try:
        for path in ("alias/x", "alias/deep/er/x", "src/../alias/config"):
            assert await refusals(entrance, path) == {("E_DEV_POLICY", "protected")}, path
    finally:
        entrance.close()
    assert everything(tmp_path) == before


async def test_what_the_operator_denied_is_denied_in_every_spelling(tmp_path: Path):
    """`deny_write` meets look-alikes, too, and no `allow_write` opens what it closes."""
    root = build(tmp_path)
    entrance = enter(root, allow_write=["**", "closed/**"], deny_write=["closed/**", "**/*.lck"])
    try:
        for path in ("closed/x", "CLOSED/x", "clo\u200bsed/x", "closed./x", "x/../closed/x", "src/a.lck", "src/A.LCK"):
            assert await refusals(entrance, path) == {("E_DEV_POLICY", "protected")}, path
    finally:
        entrance.close()


async def test_what_no_rule_allows_is_refused(tmp_path: Path):
    """Only what `allow_write` names is open; without a policy nothing is."""
    root = build(tmp_path)
    entrance = enter(root, allow_write=["docs/**", SPARE, ELSEWHERE, TRIGGER])
    try:
        for path in ("src/a.py", "new.txt", "doc", "docs2/x"):
            assert await refusals(entrance, path) == {("E_DEV_POLICY", "protected")}, path
        await write_file(entrance, "docs/new/x.md")
    finally:
        entrance.close()
    bare = Entrance(root, LocalFileSystem(str(root)), None)
    try:
        assert await refusals(bare, "docs/new/x.md") == {("E_DEV_POLICY", "protected")}
    finally:
        bare.close()
