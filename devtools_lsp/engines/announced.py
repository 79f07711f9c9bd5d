"""What this client tells servers about itself and about files: capabilities and language ids. Data only."""

from __future__ import annotations

from typing import Any

_EXTENSIONS_OF_LANGUAGES = {
    "python": "py pyi",
    "javascript": "js mjs cjs",
    "javascriptreact": "jsx",
    "typescript": "ts mts cts",
    "typescriptreact": "tsx",
    "markdown": "md",
    "yaml": "yml yaml",
    "rust": "rs",
    "cpp": "cc cpp cxx hpp hh",
    "c": "c h",
    "shellscript": "sh bash",
}
LANGUAGE_IDS: dict[str, str] = {
    extension: language for language, extensions in _EXTENSIONS_OF_LANGUAGES.items() for extension in extensions.split()
}
"""Language ids of the protocol where they differ from the extension and a preset does not spell them out."""

CLIENT_CAPABILITIES: dict[str, Any] = {
    "general": {"positionEncodings": ["utf-8", "utf-16", "utf-32"], "markdown": {"parser": "none"}},
    "textDocument": {
        "synchronization": {"dynamicRegistration": True, "willSave": False, "didSave": False},
        "filters": {"relativePatternSupport": True},
        "diagnostic": {"dynamicRegistration": True, "relatedDocumentSupport": False},
        "publishDiagnostics": {"versionSupport": True, "tagSupport": {"valueSet": [1, 2]}},
        "formatting": {"dynamicRegistration": True},
        "references": {"dynamicRegistration": True},
        "documentSymbol": {"dynamicRegistration": True, "hierarchicalDocumentSymbolSupport": True},
        "codeAction": {
            "dynamicRegistration": True,
            "isPreferredSupport": True,
            "disabledSupport": True,
            "dataSupport": True,
            "resolveSupport": {"properties": ["edit"]},
            "codeActionLiteralSupport": {
                "codeActionKind": {"valueSet": ["", "quickfix", "source", "source.fixAll", "source.organizeImports"]}
            },
        },
    },
    "workspace": {
        "applyEdit": False,
        "workspaceEdit": {"documentChanges": True},
        "configuration": True,
        "workspaceFolders": True,
        "didChangeConfiguration": {"dynamicRegistration": True},
        "didChangeWatchedFiles": {"dynamicRegistration": True, "relativePatternSupport": True},
        "diagnostics": {"refreshSupport": True},
    },
    "window": {"workDoneProgress": True, "showMessage": {}, "showDocument": {"support": False}},
}
