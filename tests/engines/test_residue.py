"""Findings for texts that are gone: a checker that hands them out later is made to read the file anew."""

from __future__ import annotations

from typing import Any

import pytest

from devtools_lsp.engines.residue import Residue
from devtools_lsp.engines.spec import spec_from_table

FILES = {
    "lib.py": "class Style:\n    size: int = 1\n",
    "mid.py": (
        "from lib import Style\n\n\nclass Segment:\n    style: Style = Style()\n\n"
        "    def get(self) -> Style:\n        return self.style\n"
    ),
    "user.py": "from mid import Segment\n\nprint(Segment().get().size, Segment().style)\n",
}


@pytest.mark.parametrize("preset", ["basedpyright", "ty"])
async def test_a_file_between_keeps_nothing_of_a_plan_that_was_not_written(
    make_scene: Any, engines: Any, preset: str
) -> None:
    """In the plan `user.py` is judged, which looks into `mid.py`; later `mid.py` is judged as the disk has it (D7)."""
    engines.require(preset)
    scene = make_scene(spec_from_table(preset, {"preset": preset}), files=FILES)
    broken = FILES["lib.py"].replace("Style", "Styles")
    in_plan = await scene.run("check", "user.py", "lib.py", changes={"lib.py": broken})
    assert in_plan.pending == ()
    on_disk = await scene.run("check", "mid.py", "user.py", "lib.py")
    assert [f for f in on_disk.diagnostics if f.severity == "error"] == []
    verdict = await scene.compare(changes={"lib.py": broken})
    assert [e.path for e in verdict.introduced if e.severity == "error"][:1] == ["mid.py"]


def test_a_file_judged_in_the_state_before_carries_nothing() -> None:
    residue = Residue()
    residue.asked()
    residue.emptied("a")
    assert not residue.may_remain("a")
    assert not residue.may_remain("b"), "there was no state before the first"
    residue.changed()
    assert not residue.may_remain("a")
    assert residue.may_remain("b")


def test_a_state_in_which_nothing_was_asked_leaves_nothing() -> None:
    residue = Residue()
    residue.asked()
    residue.emptied("a")
    residue.changed()
    residue.changed()
    assert not residue.may_remain("a")
    residue.asked()
    residue.changed()
    assert residue.may_remain("a")
    residue.emptied("a")
    assert not residue.may_remain("a")
    residue.asked()
    assert not residue.may_remain("a")
