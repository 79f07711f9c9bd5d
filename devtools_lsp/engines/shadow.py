"""A private copy of a project in which a plan's texts are really on disk, for engines that read nothing else.

Owns the copy: bringing it to any state of the workspace and telling what that changed. Installed packages are
linked, not copied. It runs nothing and judges nothing; files written there never reach the project.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from devtools_lsp.engines.scratch import remove_scratch, scratch_directory
from devtools_lsp.engines.tree import ProjectTree, Signature

MAX_COPIED_BYTES = 2 * 1024 * 1024
LINKED = ("node_modules", ".venv", "venv")
_SECRETS = re.compile(r"(^|/)(\.env[^/]*|id_(rsa|ecdsa|ed25519)|[^/]*\.pem)$")
_UNKNOWN = "?"


class Shadow:
    """One copy; made empty, filled by `lay`. All methods block: call them in a thread."""

    def __init__(self, name: str) -> None:
        self.root = scratch_directory(f"shadow-{name}")
        self._holds: dict[str, Signature | str] = {}
        self._linked: set[str] = set()

    def lay(self, tree: ProjectTree, texts: Mapping[str, str], deleted: Collection[str]) -> None:
        """Bring the copy to the project's disk with `texts` laid over it and without `deleted`."""
        wanted: dict[str, Signature | str] = {
            path: signature
            for path, signature in tree.files.items()
            if path not in deleted and signature[1] <= MAX_COPIED_BYTES and not _SECRETS.search(path)
        }
        wanted.update({path: _digest(text) for path, text in texts.items()})
        self._link(tree)
        for path in [path for path in self._holds if path not in wanted]:
            with contextlib.suppress(FileNotFoundError):
                (self.root / path).unlink()
            del self._holds[path]
        for path, state in wanted.items():
            if self._holds.get(path) == state:
                continue
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(state, str):
                _replace(target, texts[path].encode("utf-8", "surrogatepass"))
            else:
                try:
                    _replace(target, (tree.root / path).read_bytes())
                except OSError:
                    continue  # It vanished or may not be read: the next sweep says so.
            self._holds[path] = state

    def read(self, path: str) -> bytes | None:
        """A file of the copy as it is now, None when absent; what a program wrote there is forgotten by `lay`."""
        try:
            return (self.root / path).read_bytes()
        except OSError:
            return None

    def touched(self, paths: Collection[str]) -> None:
        """A program may have changed these: the next `lay` writes them again."""
        self._holds.update(dict.fromkeys(paths, _UNKNOWN))

    def close(self) -> None:
        """Remove the copy."""
        remove_scratch(self.root)

    def _link(self, tree: ProjectTree) -> None:
        places = {"", *(path.rpartition("/")[0] for path in tree.files if path.endswith("package.json"))}
        for place in places:
            for name in LINKED:
                source = tree.root / place / name
                if f"{place}/{name}" in self._linked or not source.is_dir():
                    continue
                (self.root / place).mkdir(parents=True, exist_ok=True)
                (self.root / place / name).symlink_to(source.resolve(), target_is_directory=True)
                self._linked.add(f"{place}/{name}")


def _replace(target: Path, data: bytes) -> None:
    # A new file each time: a server that has the old one open or mapped keeps what it has read.
    with contextlib.suppress(FileNotFoundError):
        target.unlink()
    target.write_bytes(data)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
