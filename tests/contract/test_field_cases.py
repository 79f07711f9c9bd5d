"""What people met with edit and patch tools, through the whole pipeline and the real disk."""

from __future__ import annotations

import pytest

from devtools_lsp.errors import DevToolsError
from devtools_lsp.text import NotTextError
from tests.contract.bench import Scene
from tests.core.test_field_cases import CASES, Case

clause = pytest.mark.clause


@clause("3.21")
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_what_people_met_end_to_end(scene: Scene, case: Case):
    scene.put(case.before)
    if case.patch:
        work = scene.call("apply_patch", patch=case.patch)
    else:
        (path,) = case.before
        edits = [{"find": find, "replace": replace} for find, replace in case.edits]
        work = scene.call("edit", path=path, edits=edits)
    if case.after is not None:
        await work
        expected = {name: text.encode() if isinstance(text, str) else text for name, text in case.after.items()}
        assert scene.disk() == expected
        return
    before = scene.disk()
    with pytest.raises(DevToolsError) as caught:
        await work
    if case.error is NotTextError:
        assert (caught.value.code, caught.value.reason) == ("E_DEV_BAD_ARG", "notText")
    else:
        assert isinstance(caught.value, case.error)
        assert case.reason in (None, caught.value.reason)
        for word in case.says:
            assert word in caught.value.message
    assert scene.disk() == before
