"""Acquisition: from the paths a plan names to the texts it works on (SPEC 3.2, 3.3).

Resolving looks at names only and comes before the gate; loading reads contents and comes after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from devtools_lsp.core.diagnostics import Diagnostic, notice
from devtools_lsp.core.workspace import DiskFile, FileText, sha256
from devtools_lsp.errors import BadArgumentError, PolicyError, StepFailedError, WorkspaceBoundsError
from devtools_lsp.paths import PathPattern, is_pattern
from devtools_lsp.pipeline.parts import Bounds, PipelineParts
from devtools_lsp.ports import FileKind, FileStat
from devtools_lsp.text import NotTextError, decode

_READ_A_WINDOW = "; read a window of it with read_lines or read_file"
_NARROWER = "; leave it out by naming the other files, or by narrower patterns such as src/**/*.py"
_NOTHING_LOOKED_AT: Mapping[str, FileStat | None] = {}


@dataclass(frozen=True, slots=True)
class Resolved:
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


@dataclass(frozen=True, slots=True)
class Loaded:
    """The files as texts, and those that are none and were left out, with what is said of them."""

    files: dict[str, DiskFile]
    not_text: tuple[str, ...]
    notices: tuple[Diagnostic, ...]


@dataclass(slots=True)
class _Skipped:
    links: list[str] = field(default_factory=list[str])
    denied: list[str] = field(default_factory=list[str])

    def notices(self) -> tuple[Diagnostic, ...]:
        found: list[Diagnostic] = []
        for names, why in (
            (self.links, "symbolic links are not followed by wildcards"),
            (self.denied, "the policy denies reading them"),
        ):
            found += left_out(names, why)
        return tuple(found)


def left_out(names: Collection[str], why: str, step: str = "") -> list[Diagnostic]:
    """What is said of files that a pattern matches and that nobody named, when they do not take part."""
    if not names:
        return []
    shown = ", ".join(sorted(names)[:5]) + (" …" if len(names) > 5 else "")
    said = f"{len(names)} matching path(s) were left out: {shown} ({why})"
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
        _check_bound(
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
        _check_bound(
            len(stats),
            parts.bounds.max_files,
            "max_files",
            beyond,
            f"{len(stats)} files are named, with {beyond}",
            "files",
        )
    for path, stat in stats.items():
        _check_depth(path, parts.bounds)
        _check_bound(
            stat.size,
            parts.bounds.max_bytes_per_file,
            "max_bytes_per_file",
            path,
            f"{path} has {stat.size} bytes",
            "bytes",
            _READ_A_WINDOW if path in spelled else f"{_NARROWER}{_READ_A_WINDOW}",
        )
    _check_total({path: stat.size for path, stat in stats.items()}, parts.bounds)
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


@contextmanager
def refusing(parts: PipelineParts, path: str) -> Generator[None]:
    """Around a call of an adapter: "not found" stays itself, any other fault is a refusal and never an absence."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(str(error)) from error
    except OSError as error:
        said = parts.translator.redact(error.strerror or str(error))
        raise StepFailedError(f"{path} cannot be looked at: {said}", path=path, retry="no") from error


async def load(parts: PipelineParts, resolved: Resolved, targets: Sequence[str], named: Collection[str]) -> Loaded:
    """Read and decode. What is no text is left out, and said, where only patterns brought it in.

    `named` are the files that steps name. Raises BadArgumentError (`notText`, `notFound`) or WorkspaceBoundsError.
    """
    files: dict[str, DiskFile] = {}
    not_text: list[str] = []
    optional = resolved.patterned.difference(named)
    sizes: dict[str, int] = {}
    for path, data in (await _read_all(parts, targets)).items():
        _check_bound(
            len(data),
            parts.bounds.max_bytes_per_file,
            "max_bytes_per_file",
            path,
            f"{path} has {len(data)} bytes",
            "bytes",
            _READ_A_WINDOW,
        )
        sizes[path] = len(data)
        try:
            files[path] = decode_file(path, data)
        except BadArgumentError:
            if path not in optional:
                raise
            not_text.append(path)
    _check_total(sizes, parts.bounds)
    for pattern, found in resolved.by_pattern.items():
        if found.issubset(not_text):
            shown = ", ".join(sorted(found)[:5]) + (" …" if len(found) > 5 else "")
            raise BadArgumentError(
                f"pattern {pattern!r} matches no text file; what it matches is not text: {shown}",
                reason="notText",
                path=pattern,
            )
    return Loaded(files, tuple(not_text), tuple(left_out(not_text, "they are not text")))


def decode_file(path: str, data: bytes) -> DiskFile:
    """Bytes to a known disk state; raises BadArgumentError `notText`."""
    try:
        text, form = decode(data)
    except NotTextError as error:
        raise BadArgumentError(f"{path} is not text: {error}", reason="notText", path=path) from None
    return DiskFile(sha256(data), len(data), FileText(text, form))


async def names_matching(parts: PipelineParts, pattern: PathPattern) -> set[str]:
    """Every regular file that a pattern matches, without bounds: for comparing a part of the tree before and after."""
    return {path async for path, kind in _walk(parts, pattern) if kind == "file"}


async def read_present(parts: PipelineParts, paths: Sequence[str]) -> dict[str, bytes]:
    """The bytes of those of the paths that are there."""
    found: dict[str, bytes] = {}
    for path in paths:
        try:
            with refusing(parts, path):
                found[path] = await parts.file_system.read(parts.translator.to_adapter(path))
        except FileNotFoundError:
            continue
    return found


async def _read_all(parts: PipelineParts, targets: Sequence[str]) -> dict[str, bytes]:
    # A batch read saves a thread hop a file; adapters that lack one are read file by file.
    read_many = getattr(parts.file_system, "read_many", None)
    adapter_paths = {parts.translator.to_adapter(path): path for path in targets}
    if read_many is not None and len(targets) > 1:
        found = await read_many(list(adapter_paths))
        contents: dict[str, bytes] = {}
        for adapter_path, path in adapter_paths.items():
            content = found[adapter_path]
            if isinstance(content, BaseException):
                raise _vanished(path) if isinstance(content, FileNotFoundError) else content
            contents[path] = content
        return contents
    contents = {}
    for adapter_path, path in adapter_paths.items():
        try:
            with refusing(parts, path):
                contents[path] = await parts.file_system.read(adapter_path)
        except FileNotFoundError:
            raise _vanished(path) from None
    return contents


def _vanished(path: str) -> BadArgumentError:
    return BadArgumentError(f"{path} disappeared before it could be read", reason="notFound", path=path)


async def _expand(parts: PipelineParts, pattern: PathPattern, skipped: _Skipped) -> dict[str, FileStat]:
    """The readable files that a pattern matches."""
    names: list[str] = []
    async for path, kind in _walk(parts, pattern):
        _check_depth(path, parts.bounds)
        if kind == "symlink":
            skipped.links.append(path)
        elif kind == "file":
            names.append(path)
            _check_bound(
                len(names),
                parts.bounds.max_files,
                "max_files",
                path,
                f"pattern {pattern.text!r} matches at least {len(names)} files, with {path}",
                "files",
            )
    readable = await _screen_each(parts, names, skipped)
    return await _stat_each(parts, readable)


async def _screen_each(parts: PipelineParts, names: Sequence[str], skipped: _Skipped) -> list[str]:
    """Those that may be read. All in one go where the gauntlet can; one by one only when some are refused."""
    screen_many = getattr(parts.gauntlet, "screen_many", None)
    if screen_many is not None:
        try:
            return await screen_many([(name, "read") for name in names])
        except PolicyError:
            # Somebody among them is refused; who it is, the single questions below tell.
            screen_many = None
    readable: list[str] = []
    for name in names:
        try:
            readable.append(await parts.gauntlet.screen(name, "read"))
        except PolicyError:
            skipped.denied.append(name)
    return readable


async def _stat_each(parts: PipelineParts, names: Sequence[str]) -> dict[str, FileStat]:
    """What each is. Adapters that can look at many at once save a thread hop a file."""
    stat_many = getattr(parts.file_system, "stat_many", None)
    if stat_many is None:
        return {name: await stat_file(parts, name) for name in names}
    adapter_paths = {name: parts.translator.to_adapter(name) for name in names}
    answers = await stat_many(list(adapter_paths.values()))
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


def _check_total(sizes: Mapping[str, int], bounds: Bounds) -> None:
    total = sum(sizes.values())
    if total <= bounds.max_total_bytes:
        return
    passed = 0
    for path in sorted(sizes):
        passed += sizes[path]
        if passed > bounds.max_total_bytes:
            found = f"the files have {total} bytes in all, and {path} is the first beyond"
            _check_bound(total, bounds.max_total_bytes, "max_total_bytes", path, found, "bytes")


def _check_bound(number: int, bound: int, name: str, path: str | None, found: str, unit: str, remedy: str = "") -> None:
    if number > bound:
        raise WorkspaceBoundsError(
            f"bound {name}: {found} and at most {bound} {unit} are allowed ([workspace] {name} sets it){remedy}",
            path=path,
        )
