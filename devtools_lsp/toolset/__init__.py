"""The workspace tools inside one's own process: `Workspace` and `DevToolset`, a door without a daemon (SPEC 7.6).

::

    async with DevToolset(Workspace("."), gate) as toolset:
        result = await toolset.call("read_file", {"path": "README.md"})
"""

from devtools_lsp.toolset.door import DevToolset, ProgressCallback
from devtools_lsp.toolset.workspace import Workspace

__all__ = ["DevToolset", "ProgressCallback", "Workspace"]
