"""The write gauntlet: the eight stages that every mutation of ours passes, in order, from every door (SPEC 5.2.1).

Owns the order and the permit. The judgements are `paths`, `fs.policy` and the file system's: the local one makes
stages 5 and 6 inside its own descriptor walk, where nothing can change between check and use, and others are
examined through `fs.adapters`.

A test records the order by passing `on_stage`: it is called with a stage's name and the path whenever a mutation
passes that stage; `errors` comes last whether or not there was one. Directories made on the way pass all stages
too. On the local file system `symlinks` and `mutation` are called from its thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Literal

import msgspec

from devtools_lsp.errors import PolicyError
from devtools_lsp.fs.adapters import Adapter
from devtools_lsp.fs.local import LandedThenCancelled, LocalFileSystem
from devtools_lsp.fs.names import check_depth, is_pyproject
from devtools_lsp.fs.partly import PartlyLandedError
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.paths import PathPattern, is_pattern, relative_path
from devtools_lsp.ports import Access, FileStat, FileSystem, Mutation, PathTranslator, Permit

Stage = Literal["permit", "lexical", "containment", "translation", "policy", "symlinks", "mutation", "errors"]
STAGES: tuple[Stage, ...] = (
    "permit",
    "lexical",
    "containment",
    "translation",
    "policy",
    "symlinks",
    "mutation",
    "errors",
)
"""The eight, in order."""

_OF_DIRECTORIES = ("mkdir", "rmdir")

_JUDGED_AT_ONCE = 100
"""Paths that are judged by name on the loop: some 10 microseconds each."""

OnStage = Callable[[Stage, str], None]
Landed = Callable[[Mutation], None]


class WriteGauntlet:
    """`ports.Gauntlet` over any duck-typed file system."""

    def __init__(
        self,
        root: str,
        file_system: FileSystem,
        policy: PathPolicy | None,
        translator: PathTranslator,
        *,
        on_stage: OnStage | None = None,
    ) -> None:
        """`root` is absolute and only compared as text. Without a policy everything is refused."""
        self._root = root
        self._policy = policy
        self._translator = translator
        self._on_stage = on_stage
        self._adapter = Adapter(file_system, translator)
        self._local = file_system if isinstance(file_system, LocalFileSystem) else None
        self.atomic = self._adapter.atomic
        """Whether `commit` is all or nothing."""
        self.methods = self._adapter.methods
        """Which of `delete`, `rename`, `mkdir`, `read_window`, `commit` the file system has."""

    # -- before the gate -----------------------------------------------------------------------------------------

    def lexical(self, raw: str) -> str:
        """Stages 2 and 3 on a path that somebody wrote: the root-relative path; raises PolicyError."""
        path = relative_path(raw, self._root)
        check_depth(path)
        return path

    async def screen(self, raw: str, access: Access) -> str:
        """Stages 2 to 6 without mutating; raises PolicyError."""
        return (await self.screen_many([(raw, access)]))[0]

    async def screen_many(self, raws: Sequence[tuple[str, Access]]) -> list[str]:
        """`screen` for many paths in one go, which are judged together, too; the first refusal is raised."""
        return [path for path, _ in (await self._look(raws))[0]]

    async def look_many(self, raws: Sequence[tuple[str, Access]]) -> dict[str, FileStat | None] | None:
        """`screen_many`, and what each path below the root is, None where nothing is.

        Answers None on file systems where that would take a question for each path.
        """
        return (await self._look(raws))[1] if self._local is not None else None

    async def _look(
        self, raws: Sequence[tuple[str, Access]]
    ) -> tuple[list[tuple[str, Access]], dict[str, FileStat | None]]:
        """The paths, and what was seen of them on the way: on the local file system what each is."""
        looked: dict[str, FileStat | None] = {}
        if len(raws) <= _JUDGED_AT_ONCE:
            ends = self._judged_by_name(raws)
        else:
            ends = await asyncio.to_thread(self._judged_by_name, raws)
        below: list[tuple[str, Access]] = [(path, access) for path, access in ends if path]
        if self._local is not None:
            try:
                named: list[tuple[str, Access]] = [
                    (self._translator.to_adapter(path), access) for path, access in below
                ]
                stats = await self._local.examine_many(named)
            except Exception as error:
                self._adapter.refuse(error, "look at", below[0][0] if below else "")
            for (path, _), stat in zip(below, stats, strict=True):
                looked[path] = stat
        else:
            for path, access in below:
                self._required_policy(path).judge(path, access)
                await self._adapter.missing_above(path, access, looked)
            arriving = [path for path, access in below if access in ("write", "create")]
            if arriving:
                await self._adapter.judge_layouts(self._required_policy(arriving[0]), arriving)
        for path, access in below:
            if access != "read" and is_pyproject(path):
                self._required_policy(path).judge_content(path, [await self._adapter.read(path)])
        return ends, looked

    def _judged_by_name(self, raws: Sequence[tuple[str, Access]]) -> list[tuple[str, Access]]:
        """Stages 2 to 5, by name: the paths, root-relative."""
        ends: list[tuple[str, Access]] = []
        paths: dict[str, str] = {}
        for raw, access in raws:
            # What is read and then written is asked about twice.
            path = paths.get(raw)
            if path is None:
                path = paths[raw] = self.lexical(raw)
            self._judge_name(path, access)
            ends.append((path, access))
        return ends

    def judge_text(self, path: str, text: str) -> None:
        """What a path would hold, judged before the gate is asked; raises PolicyError."""
        if is_pyproject(path):
            self._required_policy(path).judge_content(path, [text.encode("utf-8", "surrogatepass")])

    # -- after the gate ------------------------------------------------------------------------------------------

    async def commit(
        self,
        permit: Permit,
        mutations: Sequence[Mutation],
        landed: Landed,
        *,
        waiting: Callable[[], None] | None = None,
    ) -> None:
        """All eight stages for each mutation, in order; see `ports.Gauntlet`.

        Directories that are missing above a target are made first; they are part of the transaction and are not
        reported to `landed`. What has begun is finished when the caller is cancelled meanwhile, and reported before
        the cancellation goes on. `waiting` is called for journalled commits of the local file system alone.
        """
        entered = [self._enter(permit, mutation) for mutation in mutations]
        if self._local is None or not self._local.atomic:
            await _to_its_end(self._commit_adapter(permit, entered, mutations, landed))
            return
        witness = _Stages(self._on_stage, entered, waiting)
        translate = self._translator.to_adapter
        translated = [
            _named(mutation, translate(mutation.path), mutation.source and translate(mutation.source))
            for mutation in entered
        ]
        try:
            await self._local.commit_witnessed(permit.plan, translated, make_parents=True, witness=witness)
        except LandedThenCancelled:
            _report(mutations, landed)
            raise
        except Exception as error:
            if isinstance(error, PartlyLandedError):
                _report(_stayed(list(zip(translated, mutations, strict=True)), error.landed), landed)
            self._adapter.refuse(error, "write", mutations[0].path if mutations else "")
        finally:
            witness.ends()
        _report(mutations, landed)

    async def _commit_adapter(
        self, permit: Permit, entered: Sequence[Mutation], mutations: Sequence[Mutation], landed: Landed
    ) -> None:
        whole, reported = await self._with_parents(entered, mutations)
        await self._adapter.check_conflicts(whole)
        if self._adapter.atomic:
            await self._commit_whole(permit.plan, whole, reported, landed)
        else:
            await self._commit_each(whole, reported, landed)

    def _enter(self, permit: Permit, mutation: Mutation) -> Mutation:
        """Stages 1 to 5, by name."""
        _require_permit(permit, mutation.path, mutation.kind)
        if mutation.source is not None:
            _require_permit(permit, mutation.source, "delete")
        self._pass(mutation.path, "permit")
        path = self.lexical(mutation.path)
        source = self.lexical(mutation.source) if mutation.source is not None else None
        self._pass(path, "lexical", "containment", "translation")
        self._judge_name(path, _access(mutation), directory=mutation.kind in _OF_DIRECTORIES)
        if source is not None:
            self._judge_name(source, "delete")
        self._pass(path, "policy")
        return _named(mutation, path, source)

    def _judge_name(self, path: str, access: Access, *, directory: bool = False) -> None:
        if not path and access != "read":
            raise PolicyError("the workspace root itself cannot be written", reason="protected", path=path)
        policy = self._policy or self._required_policy(path)
        if access == "read":
            policy.judge(path, access)
        else:
            policy.judge_name(path, directory=directory)

    def _required_policy(self, path: str) -> PathPolicy:
        if self._policy is None:
            raise PolicyError(
                "no path policy is configured, so every path is refused; give the pipeline a policy",
                reason="protected",
                path=path,
            )
        return self._policy

    async def _with_parents(
        self, entered: Sequence[Mutation], mutations: Sequence[Mutation]
    ) -> tuple[list[Mutation], list[Mutation | None]]:
        """Stages 5 and 6 on an adapter, and the missing parents put in front; what each is reported as, if at all."""
        policy = self._required_policy("")
        looked: dict[str, FileStat | None] = {}
        missing: dict[str, None] = {}
        for mutation in entered:
            access = _access(mutation)
            policy.judge(mutation.path, access, directory=mutation.kind in _OF_DIRECTORIES)
            above = await self._adapter.missing_above(mutation.path, access, looked)
            if mutation.kind in ("write", "rename"):
                missing.update(dict.fromkeys(above))
            if mutation.source is not None:
                policy.judge(mutation.source, "delete")
                await self._adapter.missing_above(mutation.source, "delete", looked)
            self._pass(mutation.path, "symlinks")
        made = {mutation.path for mutation in entered if mutation.kind == "mkdir"}
        parents = [
            Mutation("mkdir", path)
            for path in sorted(missing, key=lambda path: (path.count("/"), path))
            if path not in made
        ]
        for parent in parents:
            # Each is a part of a path that was approved, judged and looked at above; the rules need not name it.
            self._pass(parent.path, *STAGES[: STAGES.index("mutation")])
        whole = [*parents, *entered]
        self._adapter.require_methods(whole)
        await self._adapter.judge_whole(policy, whole)
        return whole, [*[None for _ in parents], *mutations]

    async def _commit_whole(
        self, plan: str, whole: Sequence[Mutation], reported: Sequence[Mutation | None], landed: Landed
    ) -> None:
        for mutation in whole:
            self._pass(mutation.path, "mutation")
        try:
            await self._adapter.commit(plan, whole)
        finally:
            for mutation in whole:
                self._pass(mutation.path, "errors")
        _report(reported, landed)

    async def _commit_each(
        self, whole: Sequence[Mutation], reported: Sequence[Mutation | None], landed: Landed
    ) -> None:
        for mutation, original in zip(whole, reported, strict=True):
            self._pass(mutation.path, "mutation")
            try:
                await self._adapter.apply(mutation)
            except (LandedThenCancelled, PartlyLandedError):
                _report([original], landed)
                raise
            finally:
                self._pass(mutation.path, "errors")
            _report([original], landed)

    def _pass(self, path: str, *stages: Stage) -> None:
        if self._on_stage is not None:
            for stage in stages:
                self._on_stage(stage, path)


class _Stages:
    """Records for `on_stage` what happens inside the local file system's commit, and has `waiting` called on the loop.

    Made and ended on the loop, told from the thread in between.
    """

    def __init__(
        self, on_stage: OnStage | None, mutations: Sequence[Mutation], waiting: Callable[[], None] | None
    ) -> None:
        self._on_stage = on_stage
        self._paths = [mutation.path for mutation in mutations] if on_stage is not None else []
        self._begun = False
        self._loop = asyncio.get_running_loop()
        self._waiting = waiting

    def examined(self, path: str, *, implied: bool) -> None:
        if self._on_stage is None:
            return
        if implied:
            self._paths.insert(0, path)
            for stage in STAGES[: STAGES.index("symlinks")]:
                self._on_stage(stage, path)
        if path in self._paths:
            self._on_stage("symlinks", path)

    def begins(self) -> None:
        self._begun = True
        if self._on_stage is not None:
            for path in self._paths:
                self._on_stage("mutation", path)

    def syncing(self) -> None:
        if self._waiting is not None:
            try:
                self._loop.call_soon_threadsafe(self._tell)
            except RuntimeError:
                return  # The loop was closed meanwhile, so nobody waits.

    def _tell(self) -> None:
        if self._waiting is not None:
            self._waiting()

    def ends(self) -> None:
        self._waiting = None
        if self._on_stage is not None and self._begun:
            for path in self._paths:
                self._on_stage("errors", path)


async def _to_its_end(commit: Coroutine[Any, Any, None]) -> None:
    """Await a commit to its end even when this task is cancelled meanwhile."""
    task = asyncio.ensure_future(commit)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error from None
        raise


def _stayed(pairs: Sequence[tuple[Mutation, Mutation]], landed: Collection[str]) -> list[Mutation]:
    """What of a list is on the disk, given the paths that hold their new state: (as the disk names it, as authored).

    A move is two changes there. Of one that came half-way the half is told: the new file, or that the old one is gone.
    """
    stayed: list[Mutation] = []
    moved_on = {there.source for there, _ in pairs}
    written = {there.path for there, _ in pairs if there.kind == "write"}
    for there, here in pairs:
        arrived, source = there.path in landed, here.source
        if source is None or (arrived and there.source in landed):
            stayed += [here] if arrived else []
        elif arrived and there.path not in written:
            stayed.append(Mutation("write", here.path))
        elif not arrived and there.source in landed and there.path not in moved_on:
            stayed.append(Mutation("delete", source))
    return stayed


def _report(mutations: Sequence[Mutation | None], landed: Landed) -> None:
    for mutation in mutations:
        if mutation is not None:
            landed(mutation)


def _named(mutation: Mutation, path: str, source: str | None) -> Mutation:
    if path == mutation.path and source == mutation.source:
        return mutation
    return msgspec.structs.replace(mutation, path=path, source=source)


def _access(mutation: Mutation) -> Access:
    if mutation.kind in ("delete", "rmdir"):
        return "delete"
    if mutation.restores:
        return "restore"
    creating = mutation.kind in ("mkdir", "rename") or mutation.expect is None
    return "create" if creating else "write"


def _require_permit(permit: Permit, path: str, kind: str) -> None:
    """Stage 1: what the gate approved covers this path."""
    if path in permit.targets or path in permit.may_create:
        return
    if kind in _OF_DIRECTORIES and any(other.startswith(path + "/") for other in (*permit.targets, *permit.may_create)):
        return
    for text in permit.may_create:
        if not is_pattern(text):
            continue
        pattern = PathPattern.parse(text)
        if pattern.matches(path, dot_names=False):
            return
        if kind == "mkdir" and pattern.may_match_below(path, dot_names=False):
            return
    raise PolicyError(
        f"{path!r} is not among the files that the gate approved for step {permit.step!r}",
        reason="protected",
        step=permit.step,
        path=path,
    )
