"""The Python client of the daemon's socket.

::

    async with await connect(root, name="my-agent") as client:
        result = await client.call("check", {"paths": ["src/**"]})

What the daemon refuses is raised as the DevToolsError that it is, a fault of the protocol itself as ProtocolError.
When the connection is lost every waiting call fails at once with ConnectionLostError. Every wait has a bound.
"""

from devtools_lsp.client.link import ConnectionLostError, NotificationCallback, ProgressCallback, ProtocolError
from devtools_lsp.client.session import Client, Initialized, connect
from devtools_lsp.client.stopping import Stopped, stop_daemon

__all__ = [
    "Client",
    "ConnectionLostError",
    "Initialized",
    "NotificationCallback",
    "ProgressCallback",
    "ProtocolError",
    "Stopped",
    "connect",
    "stop_daemon",
]
