"""What the journal's files are called: in its sessions, and for a moment in the tree itself. Pure.

A session is a directory. In it `<id>.intent` (prepared) is renamed to `<id>.done` (committed), or both are lines of the
`ledger`; `<id>.old.<n>` are before-images; for the length of a commit there are `<id>.new.<n>`, `<id>.gone.<n>`,
`<id>.back.<n>`, `<id>.strays` and `<id>.writing`. A part that cannot be in the session has a name in the tree.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from typing import Literal, NamedTuple, cast

LEDGER = "ledger"
LOCK = "lock"

Part = Literal["new", "old", "gone", "back"]
"""A file that is put in place, its before-image, a deleted one until it is compared, and one on its way back."""
State = Literal["writing", "intent", "done", "strays"]
"""A record that is being written, a prepared and a committed one, and what a transaction leaves in the tree."""

_ID = r"\d{20}-[0-9a-f]{8}"
_IS_ID = re.compile(_ID)
_STATE = re.compile(rf"({_ID})\.(writing|intent|done|strays)")
_STRAY = re.compile(rf"\.devtools-lsp-{_ID}-\w+\.tmp")
_SESSION = re.compile(r"[0-9a-f]{16}")
_UNBORN = re.compile(r"[0-9a-f]{16}\.new")


class StateName(NamedTuple):
    """The name of a record, or of what it leaves in the tree, taken apart."""

    id: str
    state: State


def new_id() -> str:
    """The id of a transaction; ids sort by time."""
    return f"{time.time_ns():020d}-{os.urandom(4).hex()}"


def is_id(text: str) -> bool:
    """Whether it has the form of such an id."""
    return _IS_ID.fullmatch(text) is not None


def part_name(id_: str, part: Part, number: int) -> str:
    """The name of a part in the session; `number` is that of its entry."""
    return f"{id_}.{part}.{number}"


def stray_name(id_: str, part: Part, number: int) -> str:
    """The name of a part that has to stand in the tree itself."""
    return f".devtools-lsp-{id_}-{part[0]}{number}.tmp"


def is_stray(name: str) -> bool:
    """Whether a name in the tree has the form of such a part."""
    return _STRAY.fullmatch(name) is not None


def state_name(id_: str, state: State) -> str:
    """The name of the file that stands for a transaction in a state."""
    return f"{id_}.{state}"


def state_of(name: str) -> StateName | None:
    """The transaction and the state that a file of the session stands for; None for any other file."""
    known = _STATE.fullmatch(name)
    return StateName(known[1], cast("State", known[2])) if known is not None else None


def new_session() -> str:
    """The name of a session."""
    return secrets.token_hex(8)


def is_session(name: str) -> bool:
    """Whether it is one."""
    return _SESSION.fullmatch(name) is not None


def unborn(session: str) -> str:
    """Its name until it is locked: a session without a holder may be adopted at any moment."""
    return f"{session}.new"


def is_unborn(name: str) -> bool:
    """Whether it is such a name."""
    return _UNBORN.fullmatch(name) is not None
