"""Results as a plan that did nothing would have them, but for what a test gives."""

from __future__ import annotations

from typing import Any

from devtools_lsp.core.result import Result


def result_of(**parts: Any) -> Result:
    whole: dict[str, Any] = {
        "plan": "p1",
        "diagnostics": [],
        "changes": [],
        "reads": {},
        "written": [],
        "unwritten": [],
        "unreadable": [],
        "normalized": [],
        "ok": not any(item.severity == "error" for item in parts.get("diagnostics", ())),
        "line_counts_available": True,
        "atomic": True,
        "engines": [],
    }
    return Result(**{**whole, **parts})
