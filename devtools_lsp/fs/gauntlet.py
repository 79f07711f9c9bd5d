"""The write gauntlet: the eight stages that every mutation of ours passes, in order, from every door (SPEC 5.2.1).

Owns the order, the permit, conflict detection before the first byte for adapters without transactions, and the
mapping of an adapter's errors. The judgements themselves are `paths`, `fs.policy` and the adapter's; the local file
system repeats stages 3, 5 and 6 inside its own descriptor walk, where nothing can change between check and use.

A test records the order by passing `on_stage`: it is called with the stage's name and the path (root-relative from
`lexical` on) whenever a mutation passes a stage, `errors` last whether or not there was one.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, cast

from devtools_lsp.core.workspace import sha256
from devtools_lsp.errors import ConflictError, DevToolsError, PolicyError, StepFailedError, StepUnavailableError
from devtools_lsp.fs.effects import conflict, net_plan
from devtools_lsp.fs.layout import ancestors, created_below, judge_layouts
from devtools_lsp.fs.local import LandedThenCancelled
from devtools_lsp.fs.names import REPOSITORY_MEMBERS, check_creatable, check_depth, is_pyproject
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.refusals import refusal
from devtools_lsp.fs.transaction import PartlyLandedError
from devtools_lsp.paths import PathPattern, is_pattern, relative_path
from devtools_lsp.ports import (
    Access,
    Cancellation,
    FileStat,
    FileSystem,
    Mutation,
    PathTranslator,
    Permit,
)

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

_OPTIONAL = ("delete", "rename", "mkdir", "read_window", "commit")
_NEEDED = {"write": "write", "delete": "delete", "rename": "rename", "mkdir": "mkdir"}


class WriteGauntlet:
    """`ports.Gauntlet` over any duck-typed file system."""

    def __init__(
        self,
        root: str,
        file_system: FileSystem,
        policy: PathPolicy | None,
        translator: PathTranslator,
        *,
        on_stage: Callable[[Stage, str], None] | None = None,
    ) -> None:
        """`root` is absolute and only compared as text. Without a policy everything is refused."""
        self._root = root
        self._file_system: Any = file_system
        self._policy = policy
        self._translator = translator
        self._on_stage = on_stage
        self._methods = frozenset(name for name in _OPTIONAL if callable(getattr(file_system, name, None)))
        self._atomic = "commit" in self._methods and getattr(file_system, "atomic", False) is True
        if not self._atomic:
            self._methods -= {"commit"}
        self._examines = callable(getattr(file_system, "examine_many", None))

    @property
    def atomic(self) -> bool:
        """Whether `commit` is all or nothing."""
        return self._atomic

    @property
    def methods(self) -> frozenset[str]:
        """Which of `delete`, `rename`, `mkdir`, `read_window`, `commit` the file system has."""
        return self._methods

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
        """`screen` for many paths in one go; the first refusal is raised."""
        paths: list[str] = []
        for raw, access in raws:
            path = self.lexical(raw)
            self._judge(path, access)
            paths.append(path)
        await self._examine([(path, access) for path, (_, access) in zip(paths, raws, strict=True) if path])
        for path, (_, access) in zip(paths, raws, strict=True):
            if access in ("write", "delete") and is_pyproject(path):
                self._require_policy(path).judge_content(path, [await self._read(path)])
        return paths

    # -- after the gate ------------------------------------------------------------------------------------------

    async def commit(self, permit: Permit, mutations: Sequence[Mutation], landed: Callable[[Mutation], None]) -> None:
        """All eight stages for each mutation, in order; see `ports.Gauntlet`.

        Directories that are missing above a target are made first; they are part of the transaction and are not
        reported to `landed`.
        """
        checked = [self._enter(permit, mutation) for mutation in mutations]
        missing = await self._examine_mutations(checked)
        made = {mutation.path for mutation in checked if mutation.kind == "mkdir"}
        parents = [Mutation("mkdir", path) for path in missing if path not in made]
        for parent in parents:
            self._enter(permit, parent, implied=True)
            self._pass("symlinks", parent.path)
        self._require_methods([*parents, *checked])
        await self._judge_whole(parents, checked)
        translated = [self._translate(mutation) for mutation in [*parents, *checked]]
        reported: list[Mutation | None] = [None] * len(parents)
        reported.extend(mutations)
        if self._atomic:
            await self._commit_whole(permit.plan, translated, reported, landed)
        else:
            await self._commit_each(translated, reported, landed)

    def _enter(self, permit: Permit, mutation: Mutation, *, implied: bool = False) -> Mutation:
        """Stages 1 to 5 by name."""
        access = _access(mutation)
        self._pass("permit", mutation.path)
        path = self.lexical(mutation.path)
        source = self.lexical(mutation.source) if mutation.source is not None else None
        if not implied:
            _require_permit(permit, path, mutation.kind)
            if source is not None:
                _require_permit(permit, source, "delete")
        self._pass("lexical", path)
        self._pass("containment", path)
        self._pass("translation", path)
        self._judge(path, access)
        if source is not None:
            self._judge(source, "delete")
        self._pass("policy", path)
        return replace(mutation, path=path, source=source)

    def _judge(self, path: str, access: Access) -> None:
        if not path and access != "read":
            raise PolicyError("the workspace root itself cannot be written", reason="protected", path=path)
        policy = self._require_policy(path)
        if self._examines and access != "read":
            # By name only: the walk that follows asks with resolved names, identities and git's places.
            policy.judge_name(path)
        else:
            policy.judge(path, access)
        if access == "create":
            check_creatable(path)

    def _require_policy(self, path: str) -> PathPolicy:
        if self._policy is None:
            raise PolicyError(
                "no path policy is configured, so every path is refused; give the pipeline a policy",
                reason="protected",
                path=path,
            )
        return self._policy

    async def _examine_mutations(self, mutations: Sequence[Mutation]) -> list[str]:
        """Stage 6 for every end of every mutation; the missing directories above targets, parents first."""
        ends: list[tuple[str, Access]] = [(mutation.path, _access(mutation)) for mutation in mutations]
        ends.extend((mutation.source, "delete") for mutation in mutations if mutation.source is not None)
        missing = await self._examine(ends)
        for mutation in mutations:
            self._pass("symlinks", mutation.path)
        targets = {mutation.path for mutation in mutations if mutation.kind in ("write", "rename")}
        needed = {directory for path in targets for directory in missing.get(path, ())}
        return sorted(needed, key=lambda path: (path.count("/"), path))

    async def _examine(self, ends: Sequence[tuple[str, Access]]) -> dict[str, tuple[str, ...]]:
        """Look at every existing ancestor up to the first missing one; each path's missing directories."""
        if self._examines:
            named: list[tuple[str, Access]] = [(self._translator.to_adapter(path), access) for path, access in ends]
            with self._errors("look at", ends[0][0] if ends else ""):
                answers = await self._file_system.examine_many(named)
            found: dict[str, tuple[str, ...]] = {}
            for (path, _), (real, missing) in zip(ends, answers, strict=True):
                # The names below the first missing directory are the same, however the part above was resolved.
                depth = len(missing)
                above = [path.rsplit("/", count)[0] for count in range(1, depth + 1)]
                found[path] = tuple(reversed(above)) if real else ()
            return found
        looked: dict[str, FileStat | None] = {}
        return {path: await self._examine_by_stat(path, access, looked) for path, access in ends}

    async def _examine_by_stat(self, path: str, access: Access, looked: dict[str, FileStat | None]) -> tuple[str, ...]:
        missing: list[str] = []
        chain = [*reversed(ancestors(path)[:-1]), path]
        for place in chain:
            if missing:
                if place != path:
                    missing.append(place)
                continue
            if place not in looked:
                looked[place] = await self._stat(place)
            found = looked[place]
            if found is None:
                if place != path:
                    missing.append(place)
                continue
            if found.kind == "symlink":
                raise PolicyError(
                    f"{path!r} goes through a symbolic link at {place!r}; use the real path",
                    reason="symlink",
                    path=path,
                )
            if place != path and found.kind != "directory":
                raise StepFailedError(
                    f"{path!r}: {place!r} is a file, so nothing can be below it", reason="notFound", path=path
                )
            if place == path and found.kind == "other" and access != "read":
                raise PolicyError(f"{path!r} is not a regular file", reason="protected", path=path)
        return tuple(missing)

    def _require_methods(self, mutations: Sequence[Mutation]) -> None:
        if self._atomic:
            return
        for mutation in mutations:
            method = _NEEDED[mutation.kind]
            if not callable(getattr(self._file_system, method, None)):
                raise StepUnavailableError(
                    f"the file system has no {method!r} method, which {mutation.kind} of {mutation.path!r} needs; "
                    "nothing was changed",
                    path=mutation.path,
                )

    async def _judge_whole(self, parents: Sequence[Mutation], mutations: Sequence[Mutation]) -> None:
        """What can only be judged of all mutations together: configuration in pyproject.toml, repository layouts.

        The local file system does so itself, on the bytes that it swaps.
        """
        if self._examines and self._atomic:
            return
        policy = self._require_policy("")
        for mutation in mutations:
            ends = (mutation.path, mutation.source or mutation.path)
            if any(is_pyproject(path) for path in ends):
                contents = [await self._read(path) for path in dict.fromkeys(ends)]
                policy.judge_content(next(path for path in ends if is_pyproject(path)), [mutation.data, *contents])
        arriving = [mutation.path for mutation in mutations if mutation.kind != "delete"]
        looked: dict[tuple[str, str], bool] = {}
        for path in arriving:
            for directory in ancestors(path):
                for name in REPOSITORY_MEMBERS:
                    if (directory, name) in looked:
                        continue
                    if name != "HEAD" and not looked[(directory, "HEAD")] and "HEAD" not in _names(arriving, directory):
                        looked[(directory, name)] = False
                        continue
                    place = f"{directory}/{name}" if directory else name
                    looked[(directory, name)] = await self._stat(place) is not None
        created = created_below([*(parent.path for parent in parents), *arriving])
        judge_layouts(policy, arriving, created, lambda directory, name: looked.get((directory, name), False))

    def _translate(self, mutation: Mutation) -> Mutation:
        return replace(
            mutation,
            path=self._translator.to_adapter(mutation.path),
            source=self._translator.to_adapter(mutation.source) if mutation.source is not None else None,
        )

    async def _commit_whole(
        self,
        plan: str,
        mutations: Sequence[Mutation],
        reported: Sequence[Mutation | None],
        landed: Callable[[Mutation], None],
    ) -> None:
        for mutation in reported:
            if mutation is not None:
                self._pass("mutation", mutation.path)
        try:
            with self._errors("write", mutations[0].path if mutations else ""):
                await self._file_system.commit(plan, mutations)
        except LandedThenCancelled:
            self._report(reported, landed)
            raise
        except PartlyLandedError as error:
            stayed = [
                original
                for original, mutation in zip(reported, mutations, strict=True)
                if mutation.path in error.landed
            ]
            self._report(stayed, landed)
            raise
        finally:
            for mutation in reported:
                if mutation is not None:
                    self._pass("errors", mutation.path)
        self._report(reported, landed)

    async def _commit_each(
        self, mutations: Sequence[Mutation], reported: Sequence[Mutation | None], landed: Callable[[Mutation], None]
    ) -> None:
        await self._check_conflicts(mutations)
        for mutation, original in zip(mutations, reported, strict=True):
            if original is not None:
                self._pass("mutation", original.path)
            try:
                with self._errors(mutation.kind, original.path if original is not None else mutation.path):
                    await self._apply(mutation)
            except LandedThenCancelled:
                self._report([original], landed)
                raise
            finally:
                if original is not None:
                    self._pass("errors", original.path)
            self._report([original], landed)

    async def _apply(self, mutation: Mutation) -> None:
        adapter = self._file_system
        if mutation.kind == "write":
            await adapter.write(mutation.path, mutation.data)
            return
        method = getattr(adapter, mutation.kind)
        arguments = (mutation.path,) if mutation.source is None else (mutation.source, mutation.path)
        await _call(method, arguments)

    async def _check_conflicts(self, mutations: Sequence[Mutation]) -> None:
        """Before the first byte: every path is compared with what the mutation expects there (SPEC 3.8.4)."""
        hashes: dict[str, str | None] = {}
        for mutation in mutations:
            if mutation.kind == "mkdir":
                continue
            for path in (mutation.path, mutation.source):
                if path is not None and path not in hashes:
                    hashes[path] = await self._hash(path)
        try:
            net_plan(mutations, lambda path: hashes[path])
        except ConflictError as error:
            raise ConflictError(self._translator.redact(error.message), paths=error.paths, path=error.path) from error

    async def _hash(self, path: str) -> str | None:
        try:
            return sha256(await self._file_system.read(path))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._mapped(error, "read", path) from error

    async def _stat(self, path: str) -> FileStat | None:
        try:
            return cast("FileStat", await self._file_system.stat(self._translator.to_adapter(path)))
        except FileNotFoundError:
            return None
        except Exception as error:
            # Whatever it is, it is not an absence (SPEC 5.1).
            raise self._mapped(error, "look at", path) from error

    async def _read(self, path: str) -> bytes | None:
        try:
            return cast("bytes", await self._file_system.read(self._translator.to_adapter(path)))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._mapped(error, "read", path) from error

    # -- stage 8 -------------------------------------------------------------------------------------------------

    @contextmanager
    def _errors(self, doing: str, path: str) -> Generator[None]:
        try:
            yield
        except Exception as error:
            mapped = self._mapped(error, doing, path)
            if mapped is error:
                raise
            raise mapped from error

    def _mapped(self, error: Exception, doing: str, path: str) -> DevToolsError:
        """The error in the taxonomy, with host paths taken out of its message."""
        if isinstance(error, DevToolsError):
            error.message = self._translator.redact(error.message)
            error.args = (error.message,)
            return error
        if isinstance(error, FileExistsError):
            return conflict({path: "something is there now"})
        if isinstance(error, OSError) and error.errno:
            return refusal(error, doing, path).at(path=path)
        if isinstance(error, FileNotFoundError):
            return StepFailedError(f"cannot {doing} {path!r}: it is not there", reason="notFound", path=path)
        reason = self._translator.redact(str(error)) or type(error).__name__
        return StepFailedError(f"cannot {doing} {path!r}: the file system failed: {reason}", path=path)

    @staticmethod
    def _report(mutations: Sequence[Mutation | None], landed: Callable[[Mutation], None]) -> None:
        for mutation in mutations:
            if mutation is not None:
                landed(mutation)

    def _pass(self, stage: Stage, path: str) -> None:
        if self._on_stage is not None:
            self._on_stage(stage, path)


def _access(mutation: Mutation) -> Access:
    if mutation.kind == "delete":
        return "delete"
    creating = mutation.kind in ("mkdir", "rename") or mutation.expect is None
    return "create" if creating else "write"


def _require_permit(permit: Permit, path: str, kind: str) -> None:
    """Stage 1: what the gate approved covers this path."""
    approved = [*permit.targets, *permit.may_create]
    if path in approved:
        return
    if kind == "mkdir" and any(other.startswith(path + "/") for other in approved):
        return
    for text in permit.may_create:
        if is_pattern(text):
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


def _names(paths: Sequence[str], directory: str) -> set[str]:
    prefix = f"{directory}/" if directory else ""
    return {path[len(prefix) :].partition("/")[0] for path in paths if path.startswith(prefix)}


async def _call(method: Callable[..., Awaitable[None]], arguments: tuple[str, ...]) -> None:
    """Call an optional method with a cancellation signal, which old adapters may not take."""
    parameters = inspect.signature(method).parameters
    takes_signal = "signal" in parameters or any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    if takes_signal:
        await method(*arguments, signal=Cancellation())
    else:
        await method(*arguments)
