"""The engines that this package knows: one `NAME.engine.toml` each, data only.

Owns finding and parsing the files in this directory; `spec` gives them meaning. (The double suffix keeps tools from
taking a `ruff.toml` in their way for their own configuration.)
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

_SUFFIX = ".engine.toml"


@cache
def preset_names() -> list[str]:
    """All presets, sorted."""
    names = [entry.name for entry in files(__name__).iterdir()]
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


@cache
def preset_table(name: str) -> dict[str, Any]:
    """One preset as it is written; raises KeyError for an unknown name."""
    if name not in preset_names():
        raise KeyError(name)
    return tomllib.loads((files(__name__) / f"{name}{_SUFFIX}").read_text("utf-8"))
