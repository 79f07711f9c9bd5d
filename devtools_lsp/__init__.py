"""devtools-lsp: one warm daemon per workspace root, for coding agents and the people who watch them.

Importing this package loads nothing else: the stdio proxy depends on that. The names below come from their own modules
when they are first asked for: `Workspace` and `DevToolset` are the workspace tools in one's own process,
`create_dev_pipeline` is the pipeline over one's own parts. `devtools_lsp.client` talks to the daemon.
"""

__version__ = "0.1.0"

__all__ = ["Cancellation", "Decision", "DevToolsError", "DevToolset", "Workspace", "create_dev_pipeline"]

_HOMES = {
    "Cancellation": "devtools_lsp.ports",
    "Decision": "devtools_lsp.ports",
    "DevToolsError": "devtools_lsp.errors",
    "DevToolset": "devtools_lsp.toolset",
    "Workspace": "devtools_lsp.toolset",
    "create_dev_pipeline": "devtools_lsp.app",
}

TYPE_CHECKING = False
if TYPE_CHECKING:
    from devtools_lsp.app import create_dev_pipeline as create_dev_pipeline
    from devtools_lsp.errors import DevToolsError as DevToolsError
    from devtools_lsp.ports import Cancellation as Cancellation
    from devtools_lsp.ports import Decision as Decision
    from devtools_lsp.toolset import DevToolset as DevToolset
    from devtools_lsp.toolset import Workspace as Workspace
else:
    # Hidden from type checkers, which would take any name for one that is here.
    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(home), name)

    def __dir__() -> list[str]:
        return [*globals(), *__all__]
