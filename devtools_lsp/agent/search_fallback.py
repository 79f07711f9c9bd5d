"""The program that stands in for ripgrep where there is none: the same answers in Python, many times slower.

Run as `python -P -m devtools_lsp.agent.search_fallback` in the workspace root, as a process of its own, so that a
search can be ended whatever its pattern does. Prints what `search_output.py` reads.

Differs from ripgrep in this: patterns have Python's syntax, in which `.` matches a byte that is no UTF-8 and a lone
carriage return, and `^` and `$` do not match beside one. Of a file that has its first NUL behind the first 64 KiB all
lines up to there are searched, where ripgrep leaves out the last few.
"""

from __future__ import annotations

import argparse
import codecs
import os
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from devtools_lsp.agent.search_rules import REPOSITORY_NAMES, SKIPPED_DIRECTORIES, SNIFFED_BYTES, IgnoreRules


class Walk:
    """The files below a base directory that a search looks at."""

    def __init__(self, rules: IgnoreRules | None, file_names: list[str]) -> None:
        self._rules = rules
        self._file_names = file_names

    def files(self, base: str) -> Iterator[str]:
        """Root-relative paths; what is passed over is told on standard error."""
        if Path(base or ".").is_file():
            yield base
            return
        pending = [base]
        while pending:
            directory = pending.pop()
            try:
                with os.scandir(directory or ".") as entries:
                    found = list(entries)
            except OSError as error:
                complain(f"./{directory}: {error.strerror} (os error {error.errno})")
                continue
            for entry in found:
                path = f"{directory}/{entry.name}" if directory else entry.name
                if self._passes_over(path, entry):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif entry.is_file(follow_symlinks=False) and self._named(entry.name):
                    yield path

    def _passes_over(self, path: str, entry: os.DirEntry[str]) -> bool:
        directory = entry.is_dir(follow_symlinks=False)
        if entry.name in REPOSITORY_NAMES or (directory and entry.name in SKIPPED_DIRECTORIES):
            ignoring(path, "Ignore(IgnoreMatch(Override))")
            return True
        if self._rules is not None and self._rules.entry_ignored(path, directory=directory):
            ignoring(path, "Ignore(IgnoreMatch(Gitignore))")
            return True
        return False

    def _named(self, name: str) -> bool:
        return not self._file_names or any(fnmatchcase(name, pattern) for pattern in self._file_names)


def ignoring(path: str, why: str) -> None:
    """Tell that a place is passed over."""
    complain(f"DEBUG|walk: ignoring ./{path}: {why}")


def complain(text: str) -> None:
    """A message on standard error, in the form that ripgrep gives its own."""
    sys.stderr.buffer.write(b"rg: " + os.fsencode(text) + b"\n")


def as_utf8(data: bytes) -> bytes:
    """A file's bytes without a byte order mark, in UTF-8."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace").encode("utf-8", "surrogatepass")
    return data.removeprefix(codecs.BOM_UTF8)


class Search:
    """One pattern, looked for in one file after the other."""

    def __init__(
        self, regex: re.Pattern[str], *, max_file_bytes: int, max_line_bytes: int, narrowed: bool, keep_cr: bool
    ) -> None:
        """`narrowed` is a search among files that were named somehow: a binary one is told of only if it matches.

        With `keep_cr` a line has the carriage return before its end.
        """
        self._regex = regex
        self._max_file_bytes = max_file_bytes
        self._max_line_bytes = max_line_bytes
        self._narrowed = narrowed
        self._keep_cr = keep_cr

    def look_into(self, path: str, *, named: bool) -> None:
        """Print one file's matching lines; a file that was named itself is searched whatever its size."""
        size = Path(path).stat().st_size
        if size > self._max_file_bytes and not named:
            ignoring(path, f"{size} bytes")
            return
        data = as_utf8(Path(path).read_bytes())
        nul = data.find(b"\0")
        if nul >= 0:
            if not self._narrowed or self._matches_anywhere(data):
                ignoring(path, f"found binary data at offset {nul}")
            data = b"" if nul < SNIFFED_BYTES else data[: data.rfind(b"\n", 0, nul) + 1]
        out = sys.stdout.buffer
        for number, line, column in self._lines(data):
            shown = line.removesuffix(b"\r")
            if len(shown) > self._max_line_bytes:
                shown = shown[: self._max_line_bytes] + b" [... omitted end of long line]"
            out.write(b"./" + os.fsencode(path) + b"\0" + f"{number}:{column}:".encode() + shown + b"\n")

    def _matches_anywhere(self, data: bytes) -> bool:
        # As ripgrep does it: whatever a NUL ends may be a text.
        return next(self._lines(data.replace(b"\0", b"\n")), None) is not None

    def _lines(self, data: bytes) -> Iterator[tuple[int, bytes, int]]:
        """Number, bytes and column (in bytes) of each line that matches."""
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines, 1):
            text = (line if self._keep_cr else line.removesuffix(b"\r")).decode("utf-8", "surrogateescape")
            found = self._regex.search(text)
            if found is not None:
                yield number, line, len(text[: found.start()].encode("utf-8", "surrogateescape")) + 1


def main() -> int:
    """Search as told by the arguments; 2 for a pattern that does not compile, 3 for a breakdown."""
    complain("DEBUG|this program tells what it passes over")
    try:
        return answer()
    except Exception as error:
        complain(f"{type(error).__name__}: {error}")
        return 3


def answer() -> int:
    """Parse the arguments and print what matches."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--base", required=True)
    parser.add_argument("--regexp")
    parser.add_argument("--ignore-case", action="store_true")
    parser.add_argument("--no-ignore", action="store_true")
    parser.add_argument("--keep-cr", action="store_true")
    parser.add_argument("--file-name", action="append", default=[])
    parser.add_argument("--max-file-bytes", type=int, default=0)
    parser.add_argument("--max-line-bytes", type=int, default=0)
    options = parser.parse_args()
    regex: re.Pattern[str] | None = None
    if options.regexp is not None:
        try:
            regex = re.compile(options.regexp, re.IGNORECASE if options.ignore_case else 0)
        except (re.error, RecursionError, OverflowError) as error:
            complain(f"regex parse error: {error}")
            return 2
    base = options.base.removeprefix("./").strip("/")
    named = Path(base or ".").is_file()
    rules = None if options.no_ignore else IgnoreRules(Path.cwd())
    files = Walk(rules, options.file_name).files(base)
    if regex is None:
        for path in files:
            sys.stdout.buffer.write(b"./" + os.fsencode(path) + b"\0")
        return 0
    search = Search(
        regex,
        max_file_bytes=options.max_file_bytes,
        max_line_bytes=options.max_line_bytes,
        narrowed=named or bool(options.file_name),
        keep_cr=options.keep_cr,
    )
    for path in files:
        try:
            search.look_into(path, named=named)
        except OSError as error:
            complain(f"./{path}: {error.strerror} (os error {error.errno})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
