"""What the gauntlet does for a duck-typed file system that has only the methods of SPEC 5.1.

Owns the examination of ancestors by `stat`, the comparison of every target before the first byte, and the calls
themselves, one mutation at a time unless the adapter has a `commit` of its own. Such an adapter keeps its own gap
between check and use. Every error that comes out is in the taxonomy and free of host paths.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import msgspec

from devtools_lsp.core.workspace import sha256
from devtools_lsp.errors import DevToolsError, PolicyError, StepFailedError, StepUnavailableError
from devtools_lsp.fs.effects import conflict, net_plan
from devtools_lsp.fs.layout import ancestors, created_below, judge_layouts
from devtools_lsp.fs.names import REPOSITORY_MEMBERS, check_creatable, is_pyproject
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.refusals import refusal
from devtools_lsp.ports import Access, Cancellation, FileStat, FileSystem, Mutation, PathTranslator

OPTIONAL_METHODS = ("delete", "rename", "mkdir", "read_window", "commit")
_DOING = {
    "write": "write",
    "delete": "delete",
    "rename": "move",
    "mkdir": "make the directory",
    "rmdir": "remove the directory",
}


class Adapter:
    """One duck-typed file system, addressed by root-relative paths."""

    def __init__(self, file_system: FileSystem, translator: PathTranslator) -> None:
        self._file_system: Any = file_system
        self._translator = translator
        self.methods = frozenset(name for name in OPTIONAL_METHODS if callable(getattr(file_system, name, None)))
        self.atomic = "commit" in self.methods and getattr(file_system, "atomic", False) is True
        if not self.atomic:
            self.methods -= {"commit"}

    # -- looking -------------------------------------------------------------------------------------------------

    async def missing_above(self, path: str, access: Access, looked: dict[str, FileStat | None]) -> list[str]:
        """Stage 6: look at every ancestor up to the first missing one; the missing directories, parents first.

        `looked` remembers answers within one call of the gauntlet. Raises PolicyError for links and devices.
        """
        missing: list[str] = []
        for place in (*reversed(ancestors(path)[:-1]), path):
            if missing:
                missing.append(place)
                continue
            if place not in looked:
                looked[place] = await self.stat(place)
            found = looked[place]
            if found is None:
                missing.append(place)
            elif found.kind == "symlink":
                raise PolicyError(
                    f"{path!r} goes through a symbolic link at {place!r}; use the real path",
                    reason="symlink",
                    path=path,
                )
            elif place != path and found.kind != "directory":
                raise StepFailedError(
                    f"{path!r}: {place!r} is a file, so nothing can be below it", reason="notFound", path=path
                )
            elif place == path and found.kind == "other" and access != "read":
                raise PolicyError(f"{path!r} is not a regular file", reason="protected", path=path)
        if access not in ("read", "delete", "restore"):
            check_creatable([place.rpartition("/")[2] for place in missing], path)
        return [place for place in missing if place != path]

    async def stat(self, path: str) -> FileStat | None:
        """What is there, None for nothing; any other answer than "not found" is a refusal (SPEC 5.1)."""
        try:
            return cast("FileStat", await self._file_system.stat(self._translator.to_adapter(path)))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self.mapped(error, "look at", path) from error

    async def read(self, path: str) -> bytes | None:
        """A file's bytes, None for an absent one."""
        try:
            return cast("bytes", await self._file_system.read(self._translator.to_adapter(path)))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self.mapped(error, "read", path) from error

    # -- before the first byte -----------------------------------------------------------------------------------

    def require_methods(self, mutations: Sequence[Mutation]) -> None:
        """Refuse what the adapter has no method for; raises StepUnavailableError naming it."""
        if self.atomic:
            return
        for mutation in mutations:
            method = mutation.kind
            if not callable(getattr(self._file_system, method, None)):
                raise StepUnavailableError(
                    f"the file system has no {method!r} method, which {mutation.path!r} needs; nothing was changed",
                    path=mutation.path,
                )

    async def judge_whole(self, policy: PathPolicy, mutations: Sequence[Mutation]) -> None:
        """What only the whole list shows: configuration in a pyproject.toml, and repository layouts."""
        for mutation in mutations:
            ends = list(dict.fromkeys((mutation.path, mutation.source or mutation.path)))
            configuration = next((path for path in ends if is_pyproject(path)), None)
            if configuration is not None:
                policy.judge_content(configuration, [mutation.data, *[await self.read(path) for path in ends]])
        arriving = [mutation.path for mutation in mutations if mutation.kind not in ("delete", "rmdir")]
        await self.judge_layouts(policy, arriving)

    async def judge_layouts(self, policy: PathPolicy, arriving: Sequence[str]) -> None:
        """Refuse paths that would be written in, or would make, what git takes for a repository."""
        created = created_below(arriving)
        standing: set[tuple[str, str]] = set()
        for directory in dict.fromkeys(place for path in arriving for place in ancestors(path)):
            coming = {name.lower() for name in created.get(directory, ())}
            if "head" not in coming and not await self._is_there(directory, "HEAD", standing):
                continue
            for name in REPOSITORY_MEMBERS:
                await self._is_there(directory, name, standing)
        judge_layouts(policy, arriving, created, lambda directory, name: (directory, name) in standing)

    async def _is_there(self, directory: str, name: str, standing: set[tuple[str, str]]) -> bool:
        if await self.stat(f"{directory}/{name}" if directory else name) is None:
            return False
        standing.add((directory, name))
        return True

    async def check_conflicts(self, mutations: Sequence[Mutation]) -> None:
        """Compare every path with what the mutations expect there (SPEC 3.8.4); raises ConflictError."""
        hashes: dict[str, str | None] = {}
        for mutation in mutations:
            if mutation.kind in ("mkdir", "rmdir"):
                continue
            for path in (mutation.path, mutation.source):
                if path is not None and path not in hashes:
                    data = await self.read(path)
                    hashes[path] = sha256(data) if data is not None else None
        net_plan(mutations, lambda path: hashes[path])

    # -- changing ------------------------------------------------------------------------------------------------

    async def apply(self, mutation: Mutation) -> None:
        """Stage 7 for one mutation."""
        with self.errors(_DOING[mutation.kind], mutation.path):
            target = self._translator.to_adapter(mutation.path)
            if mutation.kind == "write":
                await self._file_system.write(target, mutation.data)
                return
            method = getattr(self._file_system, mutation.kind)
            if mutation.source is None:
                await _call(method, target)
            else:
                await _call(method, self._translator.to_adapter(mutation.source), target)

    async def commit(self, plan: str, mutations: Sequence[Mutation]) -> None:
        """Stage 7 for all mutations, by the adapter's own transaction."""
        translate = self._translator.to_adapter
        translated = [
            msgspec.structs.replace(
                mutation,
                path=translate(mutation.path),
                source=translate(mutation.source) if mutation.source is not None else None,
            )
            for mutation in mutations
        ]
        with self.errors("write", mutations[0].path if mutations else ""):
            await self._file_system.commit(plan, translated)

    # -- stage 8 -------------------------------------------------------------------------------------------------

    @contextmanager
    def errors(self, doing: str, path: str) -> Generator[None]:
        """Map whatever is raised."""
        try:
            yield
        except Exception as error:
            self.refuse(error, doing, path)

    def refuse(self, error: Exception, doing: str, path: str) -> NoReturn:
        """Raise what was raised, in the taxonomy."""
        mapped = self.mapped(error, doing, path)
        if mapped is error:
            raise error
        raise mapped from error

    def mapped(self, error: Exception, doing: str, path: str) -> DevToolsError:
        """The error in the taxonomy, with host paths taken out of its message."""
        if isinstance(error, DevToolsError):
            error.message = self._translator.redact(error.message)
            error.args = (error.message,)
            return error
        if isinstance(error, FileExistsError):
            return conflict({path: "something is there now"})
        if isinstance(error, FileNotFoundError):
            return StepFailedError(f"cannot {doing} {path!r}: it is not there", reason="notFound", path=path)
        if isinstance(error, OSError) and error.errno:
            return refusal(error, doing, path)
        reason = self._translator.redact(str(error)) or type(error).__name__
        return StepFailedError(f"cannot {doing} {path!r}: the file system failed: {reason}", path=path, retry="no")


async def _call(method: Callable[..., Awaitable[None]], *arguments: str) -> None:
    """Call an optional method with a cancellation signal, which older adapters may not take."""
    parameters = inspect.signature(method).parameters
    keyword = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    if keyword or "signal" in parameters:
        await method(*arguments, signal=Cancellation())
    else:
        await method(*arguments)
