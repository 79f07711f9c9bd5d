"""Every way in which a caller's path can reach the disk, each as one function of a pipeline and a path.

All of them try to make `path` hold `NEW`, to take it away, or to move it. Doors of the kind "create" suit a path where
nothing is, those of the kind "change" one that holds `OLD`; a refusal must not depend on the kind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from devtools_lsp import app
from devtools_lsp.agent.forge import Invocation, forge_dev_tools
from devtools_lsp.agent.sessions import SessionMemory
from devtools_lsp.agent.workspace_tools import WorkspaceTools
from devtools_lsp.core.delta import Delta
from devtools_lsp.errors import PolicyError
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.paths import relative_path
from devtools_lsp.pipeline.pipeline import DevPipeline
from devtools_lsp.ports import Cancellation, Capability, Decision, DevEngine, EngineCall, Facade, GateCall, GateContext
from tests.attack.wire import envelope

OLD, NEW = "old\n", "new\n"
ELSEWHERE = "spare/moved.txt"
"""Where doors move things to: nothing is there."""
SPARE = "spare/file.txt"
"""What doors move onto the path: a file that holds NEW."""

TRIGGER = "trigger.in-place"
"""A file that holds NEW already, so that a format of it lets nobody but the in-place engine do anything."""


@dataclass
class Entrance:
    """A pipeline, the questions that its gate was asked, and engines that do what they are told.

    The in-place engine's `scope` is what a test says; `acquired` are files that its step acquires beside its own. The
    other engines rewrite to NEW.
    """

    root: Path
    file_system: Any
    policy: PathPolicy | None
    scope: tuple[str, ...] = ("**",)
    acquired: tuple[str, ...] = ()
    questions: list[GateCall] = field(default_factory=list)
    in_place: Callable[[Facade], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        self.pipeline: DevPipeline = app.create_dev_pipeline(
            root=str(self.root),
            file_system=self.file_system,
            policy=self.policy,
            gate=self._approve,
            engines=self._engines,
            text="preserve",
        )
        self.granular = forge_dev_tools(self.pipeline, "granular")
        self.composite = forge_dev_tools(self.pipeline, "composite")
        self.workspace = WorkspaceTools(
            self.pipeline, memory=SessionMemory(), deny=lambda _path: False, shell=None
        ).tools()

    def _engines(self) -> list[DevEngine]:
        needs = frozenset({"delete", "rename", "mkdir"})
        in_place = Capability(
            self._run, frozenset({"in-place"}), generates=True, in_place=True, scope=self.scope, needs=needs
        )
        return [
            DevEngine("rewriter", formats=(Capability(self._rewrite),)),
            DevEngine("fixer", lints=(Capability(self._rewrite, fixable=True),)),
            DevEngine("in-place", formats=(in_place,)),
        ]

    async def _approve(self, _context: GateContext, call: GateCall) -> Decision:
        self.questions.append(call)
        return Decision(approved=True, by="test")

    async def _rewrite(self, call: EngineCall) -> Delta:
        if self.in_place is not None or (call.step == "lint" and not call.fix):
            return Delta()
        return Delta(changed={path: NEW for path in call.paths if call.texts[path] != NEW})

    async def _run(self, call: EngineCall) -> Delta:
        if self.in_place is not None:
            assert call.facade is not None
            await self.in_place(call.facade)
        return Delta()

    async def call(self, tool: str, surface: str = "granular", **arguments: Any) -> Any:
        who = Invocation("attacker", "session", Cancellation())
        return await getattr(self, surface).find(tool).call(arguments, who, None)

    async def in_facade(self, work: Callable[[Facade], Awaitable[None]], *scope: str) -> None:
        """Let the in-place engine do something within a scope (default: everything), and nothing else take part."""
        self.in_place, self.scope = work, scope or ("**",)
        try:
            await self.call("format", paths=[TRIGGER, SPARE, *self.acquired])
        finally:
            self.in_place = None

    def close(self) -> None:
        close = getattr(self.file_system, "close", None)
        if close is not None:
            close()


def enter(root: Path, *, symlinks: Literal["reject", "inside"] = "reject", **policy: Any) -> Entrance:
    """An entrance over the local file system, as an embedder would build it."""
    rules = PathPolicy(root=str(root), **policy)
    return Entrance(root, LocalFileSystem(str(root), symlinks=symlinks, policy=rules), rules)


Door = Callable[[Entrance, str], Awaitable[Any]]


async def edit(entrance: Entrance, path: str) -> Any:
    return await entrance.call("edit", path=path, edits=[{"find": OLD, "replace": NEW}])


async def edit_and_write(entrance: Entrance, path: str) -> Any:
    return await entrance.pipeline([path]).edit(path, [{"find": OLD, "replace": NEW}]).write()


async def dev_plan(entrance: Entrance, path: str) -> Any:
    edited = {"step": "edit", "args": {"path": path, "edits": [{"find": OLD, "replace": NEW}]}}
    ops = [edited, {"step": "write", "args": {}}]
    return await entrance.call("dev_plan", "composite", paths=[path], ops=ops)


async def patch_add(entrance: Entrance, path: str) -> Any:
    return await entrance.call("apply_patch", patch=envelope(f"*** Add File: {path}", f"+{NEW.strip()}"))


async def patch_update(entrance: Entrance, path: str) -> Any:
    lines = (f"*** Update File: {path}", "@@", f"-{OLD.strip()}", f"+{NEW.strip()}")
    return await entrance.call("apply_patch", patch=envelope(*lines))


async def patch_delete(entrance: Entrance, path: str) -> Any:
    return await entrance.call("apply_patch", patch=envelope(f"*** Delete File: {path}"))


async def patch_move_from(entrance: Entrance, path: str) -> Any:
    return await entrance.call("apply_patch", patch=envelope(f"*** Update File: {path}", f"*** Move to: {ELSEWHERE}"))


async def patch_move_to(entrance: Entrance, path: str) -> Any:
    return await entrance.call("apply_patch", patch=envelope(f"*** Update File: {SPARE}", f"*** Move to: {path}"))


async def diff_add(entrance: Entrance, path: str) -> Any:
    quoted = "".join(chr(byte) if 32 < byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in _bytes(path))
    return await entrance.call("apply_patch", patch=f'--- /dev/null\n+++ "b/{quoted}"\n@@ -0,0 +1 @@\n+{NEW}')


async def ops_patch(entrance: Entrance, path: str) -> Any:
    patch = envelope(f"*** Add File: {path}", f"+{NEW.strip()}")
    return await entrance.pipeline.ops([], [{"step": "apply_patch", "args": {"patch": patch}}, {"step": "write"}])


async def format_(entrance: Entrance, path: str) -> Any:
    return await entrance.call("format", paths=[path])


async def lint_fix(entrance: Entrance, path: str) -> Any:
    return await entrance.call("lint", paths=[path], fix=True)


async def write_file(entrance: Entrance, path: str) -> Any:
    return await entrance.call("write_file", "workspace", path=path, content=NEW)


async def edit_file(entrance: Entrance, path: str) -> Any:
    return await entrance.call("edit_file", "workspace", path=path, old_string=OLD, new_string=NEW)


async def facade_write(entrance: Entrance, path: str) -> Any:
    await entrance.in_facade(lambda facade: facade.write(path, NEW.encode()), _scoped(entrance, path))


async def facade_delete(entrance: Entrance, path: str) -> Any:
    await entrance.in_facade(lambda facade: facade.delete(path), _scoped(entrance, path))


async def facade_move_from(entrance: Entrance, path: str) -> Any:
    await entrance.in_facade(lambda facade: facade.rename(path, ELSEWHERE), _scoped(entrance, path), ELSEWHERE)


async def facade_move_to(entrance: Entrance, path: str) -> Any:
    await entrance.in_facade(lambda facade: facade.rename(SPARE, path), _scoped(entrance, path), SPARE)


def _scoped(entrance: Entrance, path: str) -> str:
    """A scope that lets the path through to the judges behind it."""
    try:
        return relative_path(path, str(entrance.root)) or "**"
    except PolicyError:
        return "**"


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


CREATE: tuple[Door, ...] = (patch_add, patch_move_to, diff_add, ops_patch, write_file, facade_write, facade_move_to)
CHANGE: tuple[Door, ...] = (
    edit,
    edit_and_write,
    dev_plan,
    patch_update,
    patch_delete,
    patch_move_from,
    format_,
    lint_fix,
    edit_file,
    facade_delete,
    facade_move_from,
)
DOORS = (*CREATE, *CHANGE)
AWAY: tuple[Door, ...] = (patch_delete, patch_move_from, facade_delete, facade_move_from)
"""Those that only take away what is at the path."""
