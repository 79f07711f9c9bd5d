"""Host paths taken out of messages: what lies under the root becomes relative, everything else is not named."""

from __future__ import annotations

import pytest

from devtools_lsp.fs.translate import OUTSIDE, RootTranslator

ROOT = "/srv/my project"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (f"see {ROOT}/src/a.py:3", "see src/a.py:3"),
        (f"'{ROOT}' is the root", "'.' is the root"),
        (f"file://{ROOT}/a.py", "a.py"),
        ("file:///srv/my%20project/a.py", "a.py"),
        ("file:///etc/passwd", OUTSIDE),
        ("(/etc/passwd)", f"({OUTSIDE})"),
        ("cannot read /root", f"cannot read {OUTSIDE}"),
        ("/home/me/x.py:1:2: bad", f"{OUTSIDE}:1:2: bad"),
        ("see https://docs.astral.sh/ruff/rules/unused-import", "see https://docs.astral.sh/ruff/rules/unused-import"),
        ("JSX expects </div> here", "JSX expects </div> here"),
        ("read/write, 1/2, a / b, // and src/a.py", "read/write, 1/2, a / b, // and src/a.py"),
    ],
)
def test_host_paths_are_made_relative_or_removed(message: str, told: str):
    assert RootTranslator(ROOT).redact(message) == told


def test_every_spelling_of_the_root_counts():
    translator = RootTranslator("/link/to/root", "/real/root/")
    assert translator.redact("/link/to/root/a and /real/root/b") == "a and b"
