"""What a plan's `paths` name: patterns to concrete files, what is left out of them and why, and the bounds (SPEC 3.2).

Looks at names and sizes only and comes before the gate; contents are read in `loading.py`. Asks nobody.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from types import TracebackType

import msgspec

from devtools_lsp.core.diagnostics import Diagnostic, notice
from devtools_lsp.core.summary import first_names
from devtools_lsp.errors import BadArgumentError, PolicyError, StepFailedError, WorkspaceBoundsError
from devtools_lsp.paths import PathPattern, is_pattern
from devtools_lsp.pipeline.parts import Bounds, PipelineParts
from devtools_lsp.ports import Access, FileKind, FileStat, batching

READ_A_WINDOW = "; read a window of it with read_lines or read_file"
_NARROWER = "; leave it out by naming the other files, or by narrower patterns such as src/**/*.py"
_NOTHING_LOOKED_AT: Mapping[str, FileStat | None] = {}


class Resolved(msgspec.Struct, frozen=True):
    """What acquisition will read: concrete `targets`, sorted and unique, and what was left out of patterns.

    `by_pattern` is what each pattern found; `spelled` are the targets that are named as they are, too.
    """

    targets: tuple[str, ...]
    stats: dict[str, FileStat]
    notices: tuple[Diagnostic, ...]
    by_pattern: Mapping[str, frozenset[str]]
    spelled: frozenset[str]

    @property
    def patterned(self) -> frozenset[str]:
        """What patterns alone brought in: nobody asked for such a file by its name."""
        return frozenset(self.targets) - self.spelled


class _Skipped(msgspec.Struct):
    links: list[str] = msgspec.field(default_factory=list[str])
    denied: list[str] = msgspec.field(default_factory=list[str])

    def notices(self) -> tuple[Diagnostic, ...]:
        if not self.links and not self.denied:
            return ()
        return (
            *left_out(self.links, "symbolic links are not followed by wildcards"),
            *left_out(self.denied, "the policy denies reading them"),
        )


def left_out(names: Collection[str], why: str, step: str = "") -> list[Diagnostic]:
    """What is said of files that a pattern matches and that nobody named, when they do not take part."""
    if not names:
        return []
    said = f"{len(names)} matching path(s) were left out: {first_names(sorted(names))} ({why})"
    return [notice(f"{step}: {said}" if step else said, rule="skipped")]


async def resolve(
    parts: PipelineParts,
    entries: Sequence[str],
    literals: Sequence[str] = (),
    looked: Mapping[str, FileStat | None] = _NOTHING_LOOKED_AT,
) -> Resolved:
    """Resolve `entries` (patterns, and literals too) and `literals` (never patterns) to files, reading no contents.

    What `looked` holds was screened and looked at already.
    Raises BadArgumentError (`notFound` naming the entry, `isDirectory`), PolicyError or WorkspaceBoundsError.
    """
    stats: dict[str, FileStat] = {}
    by_pattern: dict[str, frozenset[str]] = {}
    spelled: set[str] = set()
    skipped = _Skipped()
    for entry in entries:
        if is_pattern(entry):
            found = await _expand(parts, PathPattern.parse(entry), skipped)
            if not found:
                raise BadArgumentError(
                    f"pattern {entry!r} matches no file (wildcards do not match names that start with a dot); "
                    "check it against the tree",
                    reason="notFound",
                    path=entry,
                )
            stats.update(found)
            by_pattern[entry] = frozenset(found)
        elif (known := _known_file(looked, entry)) is not None:
            stats[entry] = known
            spelled.add(entry)
        else:
            path = await parts.gauntlet.screen(entry, "read")
            stats[path] = await _stat_literal(parts, path)
            spelled.add(path)
        check_bound(
            len(stats), parts.bounds.max_files, "max_files", entry, f"{len(stats)} files are named so far", "files"
        )
    for literal in literals:
        if (known := _known_file(looked, literal)) is not None:
            stats[literal] = known
            spelled.add(literal)
            continue
        path = await parts.gauntlet.screen(literal, "read")
        stats[path] = await stat_file(parts, path)
        spelled.add(path)
    if len(stats) > parts.bounds.max_files:
        beyond = list(stats)[parts.bounds.max_files]
        check_bound(
            len(stats),
            parts.bounds.max_files,
            "max_files",
            beyond,
            f"{len(stats)} files are named, with {beyond}",
            "files",
        )
    for path, stat in stats.items():
        _check_depth(path, parts.bounds)
        check_bound(
            stat.size,
            parts.bounds.max_bytes_per_file,
            "max_bytes_per_file",
            path,
            f"{path} has {stat.size} bytes",
            "bytes",
            READ_A_WINDOW if path in spelled else f"{_NARROWER}{READ_A_WINDOW}",
        )
    check_total({path: stat.size for path, stat in stats.items()}, parts.bounds)
    return Resolved(tuple(sorted(stats)), stats, skipped.notices(), by_pattern, frozenset(spelled))


def _known_file(looked: Mapping[str, FileStat | None], path: str) -> FileStat | None:
    """A path that was seen to be a plain file; whatever else is asked about again, for the words of its refusal."""
    found = looked.get(path)
    return found if found is not None and found.kind == "file" else None


async def _stat_literal(parts: PipelineParts, path: str) -> FileStat:
    try:
        return await stat_file(parts, path)
    except BadArgumentError as error:
        if error.reason == "notFound":
            # A name may hold ? or [ literally; when no such file is there, it was meant as a pattern and is refused.
            PathPattern.parse(path)
        raise


async def stat_file(parts: PipelineParts, path: str) -> FileStat:
    """The stat of a regular file; three different reasons when it is not one."""
    if path == "":
        raise BadArgumentError("the path is the workspace root; name a file", reason="isDirectory", path=".")
    try:
        with refusing(parts, path):
            stat = await parts.file_system.stat(parts.translator.to_adapter(path))
    except FileNotFoundError:
        raise BadArgumentError(
            f"{path} does not exist; check the path, or create it with apply_patch (*** Add File)",
            reason="notFound",
            path=path,
        ) from None
    if stat.kind == "directory":
        raise BadArgumentError(
            f"{path} is a directory; name files, or use a pattern such as {path}/**", reason="isDirectory", path=path
        )
    if stat.kind != "file":
        raise BadArgumentError(f"{path} is not a regular file", reason="notText", path=path)
    return stat


async def exists(parts: PipelineParts, path: str, looked: Mapping[str, FileStat | None] = _NOTHING_LOOKED_AT) -> bool:
    """Whether anything is at the path."""
    if path in looked:
        return looked[path] is not None
    try:
        with refusing(parts, path):
            await parts.file_system.stat(parts.translator.to_adapter(path))
    except FileNotFoundError:
        return False
    return True


class refusing:  # noqa: N801 -- named as what it does in a `with`
    """Around a call of an adapter: "not found" stays itself, any other fault is a refusal and never an absence."""

    __slots__ = ("_parts", "_path")

    def __init__(self, parts: PipelineParts, path: str) -> None:
        self._parts = parts
        self._path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say it in the taxonomy's words. Raises FileNotFoundError or StepFailedError."""
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise FileNotFoundError(str(error)) from error
        if isinstance(error, OSError):
            said = self._parts.translator.redact(error.strerror or str(error))
            raise StepFailedError(f"{self._path} cannot be looked at: {said}", path=self._path, retry="no") from error


async def names_matching(parts: PipelineParts, pattern: PathPattern) -> set[str]:
    """Every regular file that a pattern matches, without bounds: for comparing a part of the tree before and after."""
    return {path async for path, kind in _walk(parts, pattern) if kind == "file"}


async def _expand(parts: PipelineParts, pattern: PathPattern, skipped: _Skipped) -> dict[str, FileStat]:
    """The readable files that a pattern matches."""
    names: list[str] = []
    async for path, kind in _walk(parts, pattern):
        _check_depth(path, parts.bounds)
        if kind == "symlink":
            skipped.links.append(path)
        elif kind == "file":
            names.append(path)
            check_bound(
                len(names),
                parts.bounds.max_files,
                "max_files",
                path,
                f"pattern {pattern.text!r} matches at least {len(names)} files, with {path}",
                "files",
            )
    denied = await refused_among(parts, names, "read")
    skipped.denied += sorted(denied)
    return await _stat_each(parts, [name for name in names if name not in denied])


async def refused_among(parts: PipelineParts, paths: Sequence[str], access: Access) -> frozenset[str]:
    """Those of the normal paths to which the policy refuses an access. All in one go first: mostly none is."""
    try:
        await parts.gauntlet.screen_many([(path, access) for path in paths])
    except PolicyError:
        found: set[str] = set()
        for path in paths:
            try:
                await parts.gauntlet.screen(path, access)
            except PolicyError:
                found.add(path)
        return frozenset(found)
    return frozenset()


async def _stat_each(parts: PipelineParts, names: Sequence[str]) -> dict[str, FileStat]:
    batch = batching(parts.file_system)
    if batch is None:
        return {name: await stat_file(parts, name) for name in names}
    adapter_paths = {name: parts.translator.to_adapter(name) for name in names}
    answers = await batch.stat_many(list(adapter_paths.values()))
    found: dict[str, FileStat] = {}
    for name, adapter_path in adapter_paths.items():
        stat = answers[adapter_path]
        # Whatever is not a plain file is asked about by itself, for the words of its refusal.
        found[name] = stat if isinstance(stat, FileStat) and stat.kind == "file" else await stat_file(parts, name)
    return found


async def _walk(parts: PipelineParts, pattern: PathPattern) -> AsyncIterator[tuple[str, FileKind]]:
    """Everything but directories that a pattern matches, listing only directories below which it could match."""
    pending = [_literal_prefix(pattern)]
    while pending:
        directory = pending.pop()
        try:
            with refusing(parts, directory or "."):
                entries = await parts.file_system.list(parts.translator.to_adapter(directory))
        except FileNotFoundError:
            continue
        for entry in sorted(entries, key=lambda item: item.name):
            path = f"{directory}/{entry.name}" if directory else entry.name
            if entry.kind == "directory":
                if pattern.may_match_below(path, dot_names=False):
                    pending.append(path)
            elif pattern.matches(path, dot_names=False):
                yield path, entry.kind


def _literal_prefix(pattern: PathPattern) -> str:
    """The leading directories that hold no wildcard: where the walk starts."""
    literal: list[str] = []
    for segment in pattern.segments[:-1]:
        if is_pattern(segment):
            break
        literal.append(segment)
    return "/".join(literal)


def _check_depth(path: str, bounds: Bounds) -> None:
    depth = path.count("/") + 1
    if depth > bounds.max_depth:
        raise WorkspaceBoundsError(
            f"bound max_depth: {path} is {depth} levels deep and at most {bounds.max_depth} are "
            "allowed; name files that are nearer to the root",
            path=path,
        )


def check_total(sizes: Mapping[str, int], bounds: Bounds) -> None:
    """Hold the bytes of all files to `max_total_bytes`; raises WorkspaceBoundsError naming the first file beyond."""
    total = sum(sizes.values())
    if total <= bounds.max_total_bytes:
        return
    passed = 0
    for path in sorted(sizes):
        passed += sizes[path]
        if passed > bounds.max_total_bytes:
            found = f"the files have {total} bytes in all, and {path} is the first beyond"
            check_bound(total, bounds.max_total_bytes, "max_total_bytes", path, found, "bytes")


def check_bound(number: int, bound: int, name: str, path: str | None, found: str, unit: str, remedy: str = "") -> None:
    """Hold one number to a bound of `[workspace]`; raises WorkspaceBoundsError that says what was `found`."""
    if number > bound:
        raise WorkspaceBoundsError(
            f"bound {name}: {found} and at most {bound} {unit} are allowed ([workspace] {name} sets it){remedy}",
            path=path,
        )
