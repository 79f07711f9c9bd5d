"""How far a command is confined: bubblewrap where it works, stated degradation otherwise.

Inside bubblewrap a command sees the whole file system read-only, except: the root, the temporary directories and
the package managers' caches are writable. Of the root's git directory everything is writable but what makes an
innocent git run code later (`hooks`, `config`, `config.worktree`, `info`), and the directory itself is pinned, so
that those cannot be moved out of the way: `git commit` works, planting a hook does not. Files that the caller names
(the daemon's configuration) can be read and neither changed nor replaced. Hidden altogether are the directories that
the caller names (the daemon's socket and state) and the user's runtime directory with its sockets. Processes have a
pid namespace of their own and die with the call. The network is shared: package managers need it.

This prevents accidents and closes the obvious doors; it is no defence against code that attacks through the network
or through a service that listens elsewhere (Docker's socket, for one). Whether bubblewrap works is found out by
running it, not by looking for the file. Knows nothing of output and of how processes are ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from devtools_lsp.agent import shell_processes
from devtools_lsp.errors import StepUnavailableError

SandboxMode = Literal["auto", "bwrap", "none"]
Level = Literal["bwrap", "runner", "subreaper", "processGroup"]

_SENTENCES: dict[Level, str] = {
    "bwrap": "Commands run in bubblewrap: only the root, temporary directories and package caches are writable, git "
    "hooks and configuration are not, the daemon's socket and state are out of sight, and every process dies with "
    "its call.",
    "runner": "Commands run through the configured runner; what it confines, and what it leaves running, is the "
    "operator's choice.",
    "subreaper": "Commands are not sandboxed: they can do what the user can, the daemon's socket included. Every "
    "process that a command starts is ended with its call.",
    "processGroup": "Commands are not sandboxed: they can do what the user can, the daemon's socket included. What a "
    "command starts is ended with its call as far as it can be found; a detached process may escape.",
}

_CACHES = (
    ".cache",
    ".npm",
    ".yarn",
    ".bun/install/cache",
    ".local/share/pnpm",
    ".cargo/registry",
    ".cargo/git",
    ".gradle",
    ".m2",
    ".nuget/packages",
    "go/pkg",
)
"""Below the home directory; writable when they exist, since installing a project's dependencies fills them."""

_GIT_PROTECTED = ("hooks", "config", "config.worktree", "info")
_ROOT_CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
)
"""What remains of root's powers inside: enough to own files, not enough to undo the mounts."""

_PROBE_BOUND_S = 5.0

_REPORTING_SHELL = """\
trap : TERM
echo ready >&3
sh -c "$1" 3>&-
code=$?
rounds=0
while set -- /proc/[0-9]*; [ "$#" -gt 2 ] && [ "$rounds" -lt 10 ]; do
  sleep 0.02
  rounds=$((rounds + 1))
done
for process; do
  case "$process" in
    /proc/1 | "/proc/$$") ;;
    *) printf '%s %s\\n' "${process#/proc/}" "$(tr '\\0' ' ' <"$process/cmdline")" >&3 ;;
  esac
done 2>/dev/null
exit "$code"
"""
"""Runs the command inside the sandbox, gives stragglers a moment and names those that the sandbox's end will end.

Its first line on descriptor 3 tells that the sandbox stands, so that a failure to set it up is never mistaken for
the command's own. It outlives SIGTERM (without making the command ignore it), since the sandbox ends with it.
"""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What bounds the commands of one root. `sentence` is for people and models; `degraded` why it is not more."""

    level: Level
    sentence: str
    degraded: str | None = None

    @property
    def description(self) -> str:
        """The sentence, with the reason when a sandbox was wanted and is not there."""
        return f"{self.sentence} ({self.degraded})" if self.degraded else self.sentence


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A command line ready to start. `reports`: its descriptor 3 carries the reporting shell's lines."""

    argv: tuple[str, ...]
    reports: bool = False


async def assess(
    root: str, *, sandbox: SandboxMode = "auto", required: bool = False, runner: Sequence[str] = ()
) -> Confinement:
    """Find out what confinement commands of `root` will have.

    Raises StepUnavailableError when a sandbox is required (`required`, or `sandbox="bwrap"`) and does not work.
    """
    if runner:
        return Confinement("runner", _SENTENCES["runner"])
    degraded: str | None = None
    if sandbox == "none":
        degraded = "the configuration turns the sandbox off" if required else None
    else:
        degraded = await _why_not(root)
        if degraded is None:
            return Confinement("bwrap", _SENTENCES["bwrap"])
    if required or sandbox == "bwrap":
        raise StepUnavailableError(
            f"bash is not available: the configuration requires a sandbox, and {degraded}. Install bubblewrap, allow "
            "unprivileged user namespaces, or relax [shell] sandbox and require_sandbox",
            step="bash",
        )
    level: Level = "subreaper" if shell_processes.subreaper_available() else "processGroup"
    return Confinement(level, _SENTENCES[level], degraded)


def wrap(
    command: str,
    confinement: Confinement,
    root: str,
    *,
    runner: Sequence[str],
    hidden: Sequence[str] = (),
    fixed: Sequence[str] = (),
) -> Wrapped:
    """The command line for `sh -c command` under a confinement."""
    plain = ("sh", "-c", command)
    if confinement.level == "runner":
        return Wrapped((*runner, *plain))
    if confinement.level == "bwrap":
        arguments = bwrap_arguments(root, hidden, fixed)
        return Wrapped(("bwrap", *arguments, "--", "sh", "-c", _REPORTING_SHELL, "sh", command), reports=True)
    return Wrapped(plain)


def bwrap_arguments(root: str, hidden: Sequence[str] = (), fixed: Sequence[str] = ()) -> list[str]:
    """Bubblewrap's options for one root; later ones lie over earlier ones. `fixed` files can be read, not changed."""
    real_root = os.path.realpath(root)
    arguments = ["--die-with-parent", "--new-session", "--unshare-pid", "--cap-drop", "ALL"]
    if os.geteuid() == 0:
        for capability in _ROOT_CAPABILITIES:
            arguments += ["--cap-add", capability]
    arguments += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for directory in _writable_outside():
        arguments += ["--bind", directory, directory]
    arguments += ["--bind", real_root, real_root]
    arguments += _git_arguments(real_root)
    for path in fixed:
        if Path(path).is_file():
            # What is mounted cannot be replaced or moved away either.
            arguments += ["--ro-bind", path, path]
    for path in _hidden(real_root, hidden):
        arguments += ["--tmpfs", path] if Path(path).is_dir() else ["--ro-bind", "/dev/null", path]
    return [*arguments, "--chdir", real_root]


# -- whether it works --------------------------------------------------------------------------------------------

_probed: dict[tuple[str, str], str | None] = {}
"""Why bubblewrap does not work here (None: it does), by program and root; a machine does not change its mind often."""


async def _why_not(root: str) -> str | None:
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap (bwrap) is not installed"
    key = (program, root)
    if key not in _probed:
        _probed[key] = await _probe(program, root)
    return _probed[key]


async def _probe(program: str, root: str) -> str | None:
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *bwrap_arguments(root),
            "--",
            "true",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return f"bubblewrap could not be started: {error.strerror}"
    try:
        async with asyncio.timeout(_PROBE_BOUND_S):
            _, errors = await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return f"a trial run of bubblewrap did not end within {_PROBE_BOUND_S:g} s"
    if process.returncode == 0:
        return None
    return f"a trial run of bubblewrap failed: {errors.decode('utf-8', 'replace').strip()[:300] or 'no message'}"


# -- what is mounted ---------------------------------------------------------------------------------------------


def _writable_outside() -> list[str]:
    home = Path.home()
    wanted = [Path("/tmp"), Path("/var/tmp"), Path(tempfile.gettempdir()), *(home / name for name in _CACHES)]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "/nonexistent")
    if cache.is_absolute():
        wanted.append(cache)
    return list(dict.fromkeys(os.path.realpath(path) for path in wanted if path.is_dir()))


def _hidden(root: str, hidden: Sequence[str]) -> list[str]:
    """What exists of the directories to hide and does not hold the root, outermost ones only."""
    wanted = [*hidden]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        wanted.append(runtime)
    wanted.append(f"/run/user/{os.getuid()}")
    existing = sorted({os.path.realpath(path) for path in wanted if Path(path).exists()})
    return [
        path
        for path in existing
        if path != root
        and not _lies_in(root, path)
        and not any(other != path and _lies_in(path, other) for other in existing if not _lies_in(root, other))
    ]


def _lies_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _git_arguments(root: str) -> list[str]:
    found = git_directories(root)
    if found is None:
        return []
    entry, own, common = found
    arguments: list[str] = []
    for directory in dict.fromkeys((common, own)):
        arguments += ["--bind", directory, directory]
    for directory in dict.fromkeys((common, own)):
        for name in _GIT_PROTECTED:
            target = os.path.realpath(os.path.join(directory, name))
            if Path(target).exists():
                arguments += ["--ro-bind", target, target]
    if Path(entry).is_file():
        arguments += ["--ro-bind", entry, entry]
    return arguments


def git_directories(root: str) -> tuple[str, str, str] | None:
    """The `.git` entry that governs a root, its git directory, and the one shared by its worktrees.

    None without a repository, and for a `.git` file that the place it points to does not confirm: a file that
    anybody could have planted opens nothing.
    """
    directory = Path(os.path.realpath(root))
    for candidate in (directory, *directory.parents):
        entry = candidate / ".git"
        if entry.is_symlink():
            return None
        if entry.is_dir():
            return str(entry), str(entry), str(entry)
        if entry.is_file():
            return _linked_worktree(entry)
    return None


def _linked_worktree(entry: Path) -> tuple[str, str, str] | None:
    try:
        own = Path(os.path.realpath(entry.parent / _only_line(entry).removeprefix("gitdir:").strip()))
        back = Path(os.path.realpath(own / _only_line(own / "gitdir")))
        common = Path(os.path.realpath(own / _only_line(own / "commondir")))
    except (OSError, ValueError):
        return None
    if back != entry or own.parent != common / "worktrees":
        return None
    return str(entry), str(own), str(common)


def _only_line(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(4096).strip()
