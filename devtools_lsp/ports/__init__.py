"""The protocols between the rooms: what the pipeline asks of the world and what the world asks of it.

Everything here is a protocol or plain data, but for the switch that stops a call; implementations live in `fs/`,
`engines/`, `daemon/` and in the programs that embed the pipeline. Paths are root-relative POSIX unless a name says
`host`. The names are imported from here: which module has one is no business of the rooms.
"""

from devtools_lsp.ports.cancellation import Cancellation
from devtools_lsp.ports.engines import Candidate, Capability, Compare, DevEngine, EngineCall, Facade, Run
from devtools_lsp.ports.files import (
    UNCHECKED,
    BatchFileSystem,
    DirectoryEntry,
    FileKind,
    FileStat,
    FileSystem,
    Mutation,
    PathTranslator,
    TransactionalFileSystem,
    WindowedFileSystem,
    batching,
)
from devtools_lsp.ports.gate import Decision, Edited, Gate, GateCall, GateContext
from devtools_lsp.ports.gauntlet import Access, Gauntlet, Permit
from devtools_lsp.ports.surroundings import Buffers, Clock, LandedFile, LineCounter, Observer, PlanIdentity

__all__ = [
    "UNCHECKED",
    "Access",
    "BatchFileSystem",
    "Buffers",
    "Cancellation",
    "Candidate",
    "Capability",
    "Clock",
    "Compare",
    "Decision",
    "DevEngine",
    "DirectoryEntry",
    "Edited",
    "EngineCall",
    "Facade",
    "FileKind",
    "FileStat",
    "FileSystem",
    "Gate",
    "GateCall",
    "GateContext",
    "Gauntlet",
    "LandedFile",
    "LineCounter",
    "Mutation",
    "Observer",
    "PathTranslator",
    "Permit",
    "PlanIdentity",
    "Run",
    "TransactionalFileSystem",
    "WindowedFileSystem",
    "batching",
]
