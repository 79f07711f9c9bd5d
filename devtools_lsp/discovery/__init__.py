"""Where things are and how to reach them: the root, its socket, its private directories, and its daemon.

Only the standard library and cheap to import, because the stdio proxy pays for it before its first byte. Knows nothing
of the wire.
"""

from devtools_lsp.discovery.peers import connect, lock_holder, lock_path, peer_credentials, try_lock
from devtools_lsp.discovery.places import (
    MARKERS,
    SOCKET_PATH_BYTES,
    SOCKET_VARIABLE,
    checked_root,
    daemon_places,
    find_root,
    is_too_wide,
    private_directory,
    require_posix,
    root_id,
    runtime_directory,
    socket_path,
    state_directory,
)
from devtools_lsp.discovery.starting import (
    START_TIMEOUT_S,
    NotRunningError,
    StartFailedError,
    Starting,
    connect_or_start,
    daemon_command,
    spawn_daemon,
    started,
)

__all__ = [
    "MARKERS",
    "SOCKET_PATH_BYTES",
    "SOCKET_VARIABLE",
    "START_TIMEOUT_S",
    "NotRunningError",
    "StartFailedError",
    "Starting",
    "checked_root",
    "connect",
    "connect_or_start",
    "daemon_command",
    "daemon_places",
    "find_root",
    "is_too_wide",
    "lock_holder",
    "lock_path",
    "peer_credentials",
    "private_directory",
    "require_posix",
    "root_id",
    "runtime_directory",
    "socket_path",
    "spawn_daemon",
    "started",
    "state_directory",
    "try_lock",
]
