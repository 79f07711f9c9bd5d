"""Which files import which, by reading import lines: a superset, cheap and without any engine.

An import that could mean several files counts for all of them. What no import line shows (a plug-in loaded by
name) is not seen; whoever uses this says so. Owns the scan and its cache; the order of judging is not decided here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from posixpath import normpath

from devtools_lsp.engines.tree import ProjectTree, Signature
from devtools_lsp.paths import extension_of, parent_of

PYTHON = frozenset({"py", "pyi"})
SCRIPTS = frozenset({"js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte"})

_FROM = re.compile(r"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]+)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import[ \t]+([\w., \t]+)", re.MULTILINE)
_SCRIPT_IMPORT = re.compile(r"""(?:\bfrom|\bimport|\brequire[ \t]*\(|\bimport[ \t]*\()[ \t\n]*["']([^"'\n]+)["']""")
_NAME = re.compile(r"[A-Za-z_]\w*")

Imports = frozenset[str]
"""What one file asks for: `.`-joined Python modules (`pkg.mod`), or script paths without extension (`src/util`)."""


class ImportGraph:
    """The import lines of a project's files of some extensions, read again where a file changed."""

    def __init__(self, tree: ProjectTree, extensions: frozenset[str]) -> None:
        self._tree = tree
        self._extensions = extensions
        self._imports: dict[str, tuple[Signature, Imports]] = {}
        self._importers: dict[str, set[str]] = {}
        self._fresh = False

    def forget(self) -> None:
        """The disk changed."""
        self._fresh = False

    async def refresh(self) -> None:
        """Read what changed; in a thread, because a large project takes a while the first time."""
        if not self._fresh:
            files = {path: self._tree.files[path] for path in self._tree.with_extensions(self._extensions)}
            self._fresh = True
            self._imports, self._importers = await asyncio.to_thread(self._read, files, dict(self._imports))

    def _read(
        self, files: Mapping[str, Signature], known: dict[str, tuple[Signature, Imports]]
    ) -> tuple[dict[str, tuple[Signature, Imports]], dict[str, set[str]]]:
        imports: dict[str, tuple[Signature, Imports]] = {}
        for path, signature in files.items():
            entry = known.get(path)
            if entry is None or entry[0] != signature:
                entry = (signature, imports_of(path, self._tree.read(path) or ""))
            imports[path] = entry
        names = _Names(files)
        importers: dict[str, set[str]] = {}
        for path, (_, wanted) in imports.items():
            for name in wanted:
                for target in names.files(path, name):
                    if target != path:
                        importers.setdefault(target, set()).add(path)
        return imports, importers

    def importers(self, paths: Iterable[str]) -> list[str]:
        """The files that import one of these directly, sorted, without these."""
        given = set(paths)
        return sorted({importer for path in given for importer in self._importers.get(path, ())} - given)

    def closure(self, paths: Iterable[str]) -> list[str]:
        """The files that import one of these over any number of steps, nearest first, without these."""
        seen = set(paths)
        level = self.importers(seen)
        found: list[str] = []
        while level:
            found.extend(level)
            seen.update(level)
            level = [path for path in self.importers(level) if path not in seen]
        return found

    def asking_for(self, absent: Iterable[str], texts: Mapping[str, str]) -> list[str]:
        """The files whose import lines ask for one of these paths, which need not be on disk; `texts` go before it."""
        targets = set(absent)
        names = _Names(targets)
        wanted = {path: entry[1] for path, entry in self._imports.items()}
        wanted.update({path: imports_of(path, text) for path, text in texts.items()})
        return sorted(
            path
            for path, imports in wanted.items()
            if path not in targets and any(names.files(path, name) for name in imports)
        )


def imports_of(path: str, text: str) -> Imports:
    """What the import lines of a text ask for."""
    extension = extension_of(path)
    if extension in PYTHON:
        return frozenset(_python_imports(path, text))
    if extension in SCRIPTS:
        return frozenset(_script_imports(path, text))
    return frozenset()


def _python_imports(path: str, text: str) -> Iterable[str]:
    for match in _IMPORT.finditer(text):
        for part in match.group(1).split(","):
            words = part.split()
            if words:
                yield words[0]
    for match in _FROM.finditer(text):
        dots, module, names = match.groups()
        if dots:
            package = parent_of(path).split("/") if parent_of(path) else []
            kept = package[: len(package) - (len(dots) - 1)]
            module = ".".join(["", *kept, *([module] if module else [])])
        yield module
        for name in _NAME.findall(names):
            yield f"{module}.{name}"


def _script_imports(path: str, text: str) -> Iterable[str]:
    for match in _SCRIPT_IMPORT.finditer(text):
        name = match.group(1)
        if name.startswith("."):
            yield normpath(f"{parent_of(path) or '.'}/{name}")
        else:
            yield f"*{name}"


class _Names:
    """Which files a name may mean."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._modules: dict[str, list[tuple[list[str], str]]] = {}
        self._scripts: dict[str, list[str]] = {}
        for path in paths:
            stem = path.rpartition(".")[0]
            if extension_of(path) in PYTHON:
                parts = stem.split("/")
                if parts[-1] == "__init__":
                    parts = parts[:-1]
                if parts:
                    self._modules.setdefault(parts[-1], []).append((parts, path))
            else:
                names = [stem, path, stem.removesuffix("/index")]
                for name in dict.fromkeys(names):
                    self._scripts.setdefault(name, []).append(path)

    def files(self, importer: str, name: str) -> list[str]:
        """The files that `name`, written in `importer`, may mean."""
        if extension_of(importer) in PYTHON:
            return self._python(name)
        if not name.startswith("*"):
            bare = name.rpartition(".")[0] if extension_of(name) in SCRIPTS else name
            return [*self._scripts.get(name, ()), *(self._scripts.get(bare, ()) if bare != name else ())]
        tail = name.lstrip("*@~").lstrip("/")
        return [path for stem, paths in self._scripts.items() if stem.endswith(f"/{tail}") for path in paths]

    def _python(self, name: str) -> list[str]:
        exact = name.startswith(".")
        parts = [part for part in name.split(".") if part]
        found: list[str] = []
        for length in range(1, len(parts) + 1):
            wanted = parts[:length]
            for known, path in self._modules.get(wanted[-1], ()):
                if known == wanted or (not exact and known[-length:] == wanted):
                    found.append(path)
        return found
