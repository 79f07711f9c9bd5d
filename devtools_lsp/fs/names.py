"""Names that are dangerous whatever the rules say: folding, mandatory denies and always-ask, by text alone.

Owns the pure half of SPEC 5.2.3, so that the path policy and the approval rules judge a name alike. Performs no
I/O and knows no directory identities: `fs.protected` and `fs.policy` do.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache
from itertools import pairwise

from devtools_lsp.errors import PolicyError

MAX_DEPTH = 128
"""Components of a path; deeper ones are refused before any directory is made."""

CONFIGURATION = "devtools.toml"
PYPROJECT = "pyproject.toml"
JOURNAL_DIRECTORY = ".devtools"
"""The journal's place in a root without a usable git directory."""
JOURNAL_IN_GIT = "devtools-lsp"
"""The journal's directory inside a git directory."""

GIT_HOOKS = frozenset(
    (
        "applypatch-msg",
        "commit-msg",
        "fsmonitor-watchman",
        "post-applypatch",
        "post-checkout",
        "post-commit",
        "post-index-change",
        "post-merge",
        "post-receive",
        "post-rewrite",
        "post-update",
        "pre-applypatch",
        "pre-auto-gc",
        "pre-commit",
        "pre-merge-commit",
        "pre-push",
        "pre-rebase",
        "pre-receive",
        "prepare-commit-msg",
        "proc-receive",
        "push-to-checkout",
        "reference-transaction",
        "sendemail-validate",
        "update",
    )
)
"""The file names that git runs when they stand in its hooks directory."""

_DENIED = frozenset(
    (
        ".git",
        ".gitmodules",
        ".gitconfig",
        ".hg",
        ".svn",
        ".jj",
        ".vscode",
        ".idea",
        ".husky",
        ".devcontainer",
        ".claude",
        ".codex",
        ".agents",
        ".cursor",
        ".mcp.json",
        ".bashrc",
        ".bash_profile",
        ".profile",
        ".zshrc",
        ".zprofile",
        ".zshenv",
        ".envrc",
        ".ripgreprc",
        ".netrc",
        ".ssh",
        ".exrc",
        ".nvim.lua",
        ".nvimrc",
        CONFIGURATION,
        JOURNAL_DIRECTORY,
    )
)
_DENIED_SUFFIXES = (".code-workspace",)
_DENIED_PAIRS = frozenset(((".github", "hooks"), (".github", "agents")))

DENIED_DIRECTORIES = (
    *sorted(name for name in _DENIED if "." not in name[1:]),
    ".github/hooks",
    ".github/agents",
)
"""The denied names that are directories in practice, for the comparison by identity."""

_ASK = frozenset(
    (
        "package.json",
        "cargo.toml",
        "build.rs",
        PYPROJECT,
        "setup.py",
        ".npmrc",
        "pnpm-workspace.yaml",
        ".gitattributes",
        ".pre-commit-config.yaml",
        "go.sum",
        "npm-shrinkwrap.json",
        "packages.lock.json",
    )
)
_ASK_PATTERNS = (
    ".yarnrc*",
    ".env*",
    "*.csproj",
    "*.props",
    "*.targets",
    "*.gradle*",
    "*.lock",
    "*.lockb",
    "*.lockfile",
    "*-lock.json",
    "*-lock.yaml",
)

_ASKED = re.compile("|".join(translate(pattern) for pattern in _ASK_PATTERNS))

# The 8.3 aliases that Windows file systems, and shares served from them, give to .git and .gitmodules.
_SHORT_ALIASES = ((re.compile(r"git~\d+"), ".git"), (re.compile(r"gitmod~\d+"), ".gitmodules"))

# Default-ignorable code points that are not of category Cf: joiners, fillers and variation selectors.
_IGNORABLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


@lru_cache(maxsize=8192)
def fold(component: str) -> str:
    """One path component as the most forgiving file system would read it.

    NFD, invisible code points dropped, NFKC, case folded, cut at `:` (a stream name), trailing dots and blanks
    stripped, 8.3 aliases of git's names resolved. `.GIT`, `.gi<U+200C>t`, `.git.` and `git~1` all give `.git`.
    """
    text = component
    if not text.isascii():
        decomposed = unicodedata.normalize("NFD", text)
        visible = "".join(char for char in decomposed if unicodedata.category(char) != "Cf")
        text = unicodedata.normalize("NFKC", _IGNORABLE.sub("", visible))
        text = unicodedata.normalize("NFKC", text.casefold())
    text = text.lower().partition(":")[0].rstrip(". \t")
    for alias, name in _SHORT_ALIASES:
        if alias.fullmatch(text):
            return name
    return text


@lru_cache(maxsize=8192)
def fold_path(path: str) -> str:
    """Every component of a path folded."""
    return "/".join(fold(component) for component in path.split("/"))


def denied_component(path: str) -> str | None:
    """The component that no rule may open for writing, as it is written in `path`; None when there is none."""
    parts = path.split("/")
    folded = [fold(part) for part in parts]
    for index, name in enumerate(folded):
        if name in _DENIED or name.endswith(_DENIED_SUFFIXES):
            return parts[index]
        if index and (folded[index - 1], name) in _DENIED_PAIRS:
            return f"{parts[index - 1]}/{parts[index]}"
    return None


def always_ask(path: str) -> bool:
    """Whether a change of this file is asked about even where all edits are allowed (SPEC 5.2.3).

    A pure test of names, which the approval rules use too. A `pyproject.toml` asks by its name; that one which
    carries our configuration is denied besides is the policy's business, since it takes the content to know.
    """
    folded = [fold(part) for part in path.split("/")]
    if any(pair == (".github", "workflows") for pair in pairwise(folded)):
        return True
    name = folded[-1]
    return name in _ASK or _ASKED.match(name) is not None


def is_pyproject(path: str) -> bool:
    """Whether the last component reads as `pyproject.toml`."""
    return fold(path.rpartition("/")[2]) == PYPROJECT


def check_depth(path: str) -> None:
    """Refuse a path of more than `MAX_DEPTH` components; raises PolicyError."""
    if path.count("/") >= MAX_DEPTH:
        raise PolicyError(f"the path has more than {MAX_DEPTH} components; put the file higher up", reason="malformed")


def check_creatable(components: Iterable[str], path: str) -> None:
    """Refuse to bring names into being that other tools misread; raises PolicyError (`malformed`).

    Control characters, backslashes, and names that UTF-8 cannot hold. `components` are those of `path` that do not
    exist yet.
    """
    for component in components:
        if _CONTROL.search(component) or "\\" in component:
            raise PolicyError(
                f"cannot create {component!r}: a new name may hold neither control characters nor backslashes",
                reason="malformed",
                path=path.encode("utf-8", "backslashreplace").decode("utf-8"),
            )
        try:
            component.encode("utf-8")
        except UnicodeEncodeError as error:
            raise PolicyError("cannot create a name that is not valid UTF-8", reason="malformed") from error


REPOSITORY_MEMBERS = ("HEAD", "objects", "refs", "commondir")
"""What to look for in a directory before asking `is_repository_layout`; without HEAD the answer is no."""


def is_repository_layout(present: Iterable[str]) -> bool:
    """Whether a directory with these names in it is one that git takes for a repository.

    Git wants HEAD with objects and refs, or HEAD with a `commondir` that says where those are; neither `config`
    nor a name such as `x.git` is needed, but a `config` in such a place runs commands.
    """
    folded = {fold(name) for name in present}
    return "head" in folded and ("commondir" in folded or {"objects", "refs"} <= folded)
