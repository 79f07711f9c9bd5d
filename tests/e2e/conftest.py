"""Where daemons of this suite come from, and where their end is judged."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from tests.e2e.place import Content, Place


@pytest.fixture(scope="module")
def new_place() -> Iterator[Callable[..., Place]]:
    """Makes places; their daemons end, and are judged, with the module."""
    made: list[Place] = []

    def make(configuration: str = "", files: Mapping[str, Content] | None = None, *, start: bool = True) -> Place:
        # Short, because a socket's path has at most 108 bytes.
        base = Path(tempfile.mkdtemp(prefix="e2e-", dir="/tmp")).resolve()
        for name in ("root", "run", "home"):
            (base / name).mkdir(mode=0o700)
        env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("DEVTOOLS_LSP")},
            "XDG_RUNTIME_DIR": str(base / "run"),
            "XDG_STATE_HOME": str(base / "state"),
            "HOME": str(base / "home"),
        }
        place = Place(base, base / "root", env)
        made.append(place)
        place.put({"devtools.toml": configuration, **(files or {})} if configuration else files or {})
        if start:
            place.start()
        return place

    yield make
    faults: list[BaseException] = []
    for place in made:
        if place.process is not None:
            # All begin to end at once; how each does is looked at below.
            place.begin_stop()
    for place in made:
        try:
            place.close()
        except (AssertionError, psutil.Error) as fault:
            faults.append(fault)
            if place.process is not None:
                place.process.kill()
        shutil.rmtree(place.base, ignore_errors=True)
    if faults:
        raise faults[0]


@pytest.fixture(scope="module")
def engines() -> None:
    """The servers that the engines of these tests are; a visible skip names one that is not installed."""
    for name in ("ruff", "basedpyright-langserver"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
