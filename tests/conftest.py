"""What every test shares: visible skips that CI turns into failures, and roots that look like a project."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Tools that come with the test environment are found whether or not it is activated.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """On CI a skip is a failure: whatever a test needs is installed there."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI allows no skips: {report.longrepr}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Measurements and the long forms of suites run only when asked for."""
    asked = config.getoption("-m") or ""
    kept, dropped = [], []
    for item in items:
        optional = [name for name in ("bench", "full") if item.get_closest_marker(name) is not None]
        (dropped if any(name not in asked for name in optional) else kept).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.fixture
def tool() -> Callable[[str], str]:
    """The path of a program, or a visible skip that names it."""

    def find(name: str) -> str:
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is not installed")
        return found

    return find
