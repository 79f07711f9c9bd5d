"""A reply that was made beforehand is given for the answer that came, and for no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devtools_lsp.agent.artifacts import ArtifactStore
from devtools_lsp.agent.forge import ToolAnswer
from devtools_lsp.core.diagnostics import Diagnostic
from devtools_lsp.daemon.replies import Reply
from devtools_lsp.errors import BadArgumentError
from devtools_lsp.pipeline.parts import SystemClock
from tests.results import result_of


@pytest.fixture
def artifacts(tmp_path: Path) -> Iterator[ArtifactStore]:
    made = ArtifactStore(tmp_path / "artifacts", clock=SystemClock())
    yield made
    made.close()


def answer(*messages: str, content: str | None = None) -> ToolAnswer:
    found = [Diagnostic("a.py", "error", message, "ruff", False, line=1) for message in messages]
    return ToolAnswer(result_of(diagnostics=found), content)


async def test_the_foretold_reply_is_given_and_its_artifact_is_kept(artifacts: ArtifactStore):
    reply = Reply(artifacts, 2000)
    reply.foretell(answer("bad", content="done\n"))
    given: Any = await reply.to(answer("bad", content="done\n"))
    assert given["content"] == "done\n"
    assert (await artifacts.page(given["artifact"]["handle"]))["total"] == 1


@pytest.mark.parametrize("other", [answer("bad", "worse"), answer("bad", content="else\n")])
async def test_another_answer_has_a_reply_of_its_own(
    artifacts: ArtifactStore, other: ToolAnswer, monkeypatch: pytest.MonkeyPatch
):
    kept: list[str] = []
    monkeypatch.setattr(artifacts, "keep", lambda artifact, _result: kept.append(artifact.handle))
    reply = Reply(artifacts, 2000)
    reply.foretell(answer("bad"))
    given: Any = await reply.to(other)
    assert len(given["diagnostics"]) == len(other.result.diagnostics)
    assert given.get("content") == other.content
    assert kept == [given["artifact"]["handle"]]


async def test_what_was_only_foretold_is_nowhere(artifacts: ArtifactStore):
    named = artifacts.name(answer("bad").result)
    assert named.total == 1
    with pytest.raises(BadArgumentError, match="unknown"):
        await artifacts.page(named.handle)


async def test_a_heavy_answer_is_not_made_beforehand(artifacts: ArtifactStore):
    heavy = answer(content="x" * 100_000)
    reply = Reply(artifacts, 2000)
    reply.foretell(heavy)
    given: Any = await reply.to(heavy)
    assert isinstance(given, msgspec.Raw)
