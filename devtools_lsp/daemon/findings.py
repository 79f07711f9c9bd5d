"""What is known to be wrong in each file, by engine and step, and for which text that holds. Pure bookkeeping.

Owns what replaces what when an engine answers again. Knows nothing of editors and reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from devtools_lsp.core.diagnostics import Diagnostic

Key = tuple[str, str]
"""An engine and a step: an engine's lint and its check answer apart."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """An engine's answer: everything that it says about `paths`, and maybe about files beside them."""

    engine_id: str
    step: str
    paths: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]


@dataclass(slots=True, eq=False)
class Held:
    """One answer's findings in one file, and the `paths` that were judged with it.

    `digest` is that of the text they hold for; None stands for what is on disk and was not read yet.
    """

    diagnostics: tuple[Diagnostic, ...]
    judged: frozenset[str]
    digest: bytes | None = None


class Findings:
    """All files with findings."""

    def __init__(self) -> None:
        self._files: dict[str, dict[Key, Held]] = {}

    def of(self, path: str) -> list[Held]:
        """A file's findings, one entry for each engine and step that has any."""
        return list(self._files.get(path, {}).values())

    def paths(self) -> list[str]:
        """Every file that has some."""
        return list(self._files)

    def engines(self, path: str) -> frozenset[str]:
        """Which engines have findings in a file."""
        return frozenset(engine for engine, _ in self._files.get(path, {}))

    def judged(self, judgement: Judgement, digests: Mapping[str, bytes] | None = None) -> set[str]:
        """Take an answer; returns the paths whose findings may differ now.

        It replaces what the same engine and step said of its `paths` before, and what it said beside them when it
        last judged any of these: an importer that one of them broke is judged with it. `digests` names the texts
        of paths that were not judged as they are on disk.
        """
        key = (judgement.engine_id, judgement.step)
        judged = frozenset(judgement.paths)
        by_path: dict[str, list[Diagnostic]] = {}
        for diagnostic in judgement.diagnostics:
            if diagnostic.path is not None:
                by_path.setdefault(diagnostic.path, []).append(diagnostic)
        touched = set(by_path)
        for path, answers in list(self._files.items()):
            held = answers.get(key)
            if held is None or path in by_path:
                continue
            if path in judged or (path not in held.judged and held.judged & judged):
                touched.add(path)
                self._drop(path, key)
        for path, diagnostics in by_path.items():
            held = Held(tuple(diagnostics), judged, (digests or {}).get(path))
            self._files.setdefault(path, {})[key] = held
        return touched

    def drop_engine(self, engine_id: str) -> set[str]:
        """Forget everything that an engine said; returns the paths it concerned."""
        touched: set[str] = set()
        for path, answers in list(self._files.items()):
            for key in [key for key in answers if key[0] == engine_id]:
                touched.add(path)
                self._drop(path, key)
        return touched

    def drop(self, paths: Iterable[str]) -> set[str]:
        """Forget files; returns those that had findings."""
        return {path for path in paths if self._files.pop(path, None) is not None}

    def below(self, names: Sequence[str]) -> list[str]:
        """Files with findings that are among the names or in directories among them."""
        wanted = set(names)
        return [path for path in self._files if _is_below(path, wanted)]

    def _drop(self, path: str, key: Key) -> None:
        answers = self._files[path]
        del answers[key]
        if not answers:
            del self._files[path]


def _is_below(path: str, names: set[str]) -> bool:
    while path:
        if path in names:
            return True
        path = path.rpartition("/")[0]
    return False
