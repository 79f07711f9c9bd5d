"""The program that stands in for ripgrep where there is none: the same answers in Python, many times slower.

Run as `python -P -m devtools_lsp.agent.search_fallback` in the workspace root, as a process of its own, so that a
search can be ended whatever its pattern does. Prints what `search_process.py` reads. Patterns have Python's syntax.
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

from devtools_lsp.agent.search_rules import REPOSITORY_NAMES, SKIPPED_DIRECTORIES, IgnoreRules

_SNIFFED_BYTES = 64 * 1024


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


def read_text(path: str, max_bytes: int) -> bytes | None:
    """A file's bytes as UTF-8, up to the first NUL; None when it is too large or binary from the start."""
    size = Path(path).stat().st_size
    if size > max_bytes:
        ignoring(path, f"{size} bytes")
        return None
    data = Path(path).read_bytes()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace").encode("utf-8", "surrogatepass")
    data = data.removeprefix(codecs.BOM_UTF8)
    nul = data.find(b"\0")
    if nul < 0:
        return data
    ignoring(path, f"found binary data at offset {nul}")
    return None if nul < _SNIFFED_BYTES else data[: data.rfind(b"\n", 0, nul) + 1]


def grep(path: str, regex: re.Pattern[str], max_file_bytes: int, max_line_bytes: int) -> None:
    """Print one file's matching lines."""
    data = read_text(path, max_file_bytes)
    if data is None:
        return
    out = sys.stdout.buffer
    for number, line in enumerate(data.split(b"\n"), 1):
        text = line.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        found = regex.search(text)
        if found is None or (not line and number > data.count(b"\n")):
            continue
        column = len(text[: found.start()].encode("utf-8", "surrogateescape")) + 1
        shown = line.removesuffix(b"\r")
        if len(shown) > max_line_bytes:
            shown = shown[:max_line_bytes] + b" [... omitted end of long line]"
        out.write(b"./" + os.fsencode(path) + b"\0" + f"{number}:{column}:".encode() + shown + b"\n")


def main() -> int:
    """Search as told by the arguments; 2 for a pattern that does not compile, 3 for a breakdown."""
    complain("DEBUG|this program tells what it passes over")
    try:
        return search()
    except Exception as error:
        complain(f"{type(error).__name__}: {error}")
        return 3


def search() -> int:
    """Parse the arguments and print what matches."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--base", required=True)
    parser.add_argument("--regexp")
    parser.add_argument("--ignore-case", action="store_true")
    parser.add_argument("--no-ignore", action="store_true")
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
    rules = None if options.no_ignore else IgnoreRules(Path.cwd())
    for path in Walk(rules, options.file_name).files(options.base.removeprefix("./").strip("/")):
        if regex is None:
            sys.stdout.buffer.write(b"./" + os.fsencode(path) + b"\0")
            continue
        try:
            grep(path, regex, options.max_file_bytes, options.max_line_bytes)
        except OSError as error:
            complain(f"./{path}: {error.strerror} (os error {error.errno})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
