"""What a start meets while it takes back what a killed daemon left, moved by hand at a chosen moment."""

from __future__ import annotations

import pytest

from devtools_lsp.fs import recovery
from devtools_lsp.fs.opening import open_local
from tests.attack.daemon import Daemon
from tests.attack.wire import Gone, envelope

FILES = {"plain.txt": b"plain\n", "sub/g.txt": b"g\n"}


def test_a_link_at_the_last_moment_of_a_recovery_delays_it(new_daemon, monkeypatch):
    """A directory that turns into a link when all is taken back but not durable yet: the next start tries again."""
    daemon: Daemon = new_daemon()
    daemon.put(FILES)
    daemon.start(fault="journal:commit:kill")
    patch = envelope("*** Delete File: sub/g.txt", "*** Delete File: plain.txt")
    with pytest.raises(Gone):
        daemon.agent().call("apply_patch", {"patch": patch})
    assert daemon.ended() == -9
    sub, outside = daemon.root / "sub", daemon.base / "outside"
    outside.mkdir()

    def swap(point: str) -> None:
        if point == "recovery:reverted" and (sub / "g.txt").exists() and not sub.is_symlink():
            sub.rename(daemon.root / "away")
            sub.symlink_to(outside)

    monkeypatch.setattr(recovery, "point", swap)
    opened = open_local(str(daemon.root))
    opened.close()
    [plan] = opened.recovery.plans
    assert (plan.outcome, list(plan.failed)) == ("stuck", ["sub"])
    assert [path.name for path in outside.iterdir()] == []
    sub.unlink()
    (daemon.root / "away").rename(sub)
    monkeypatch.undo()
    opened = open_local(str(daemon.root))
    opened.close()
    assert [plan.outcome for plan in opened.recovery.plans] == ["old"]
    assert daemon.tree() == FILES
