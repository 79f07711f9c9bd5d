"""What a start meets while it takes back what a killed daemon left, moved by hand at a chosen moment."""

from __future__ import annotations

import re
import subprocess

import pytest

from devtools_lsp.fs import recovery
from devtools_lsp.fs.opening import open_local
from tests.attack.daemon import ALLOW, PROGRAM, Daemon
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


@pytest.mark.parametrize("obstacle", ["link", "rule"])
def test_what_a_start_may_not_put_back_is_named_kept_and_undone_later(new_daemon, obstacle):
    """Every start says where the old contents are, `doctor` too; an undo says why it cannot yet, and can then."""
    daemon: Daemon = new_daemon()
    daemon.put(FILES)
    daemon.start(fault="journal:commit:kill")
    patch = envelope("*** Delete File: sub/g.txt", "*** Delete File: plain.txt", "*** Add File: sub/n.txt", "+n")
    with pytest.raises(Gone):
        daemon.agent().call("apply_patch", {"patch": patch})
    assert daemon.ended() == -9
    plan = daemon.activity(event="gate")[-1]["plan"]
    sub, outside = daemon.root / "sub", daemon.base / "outside"
    configuration = daemon.root / "devtools.toml"
    outside.mkdir()
    if obstacle == "link":
        sub.rename(daemon.base / "away")
        sub.symlink_to(outside)
    else:
        configuration.write_text(f'{ALLOW}[policy]\ndeny_write = ["sub/**"]\n')
    for _ in range(2):
        daemon.start()
        said = "\n".join(daemon.agent().ask("devtools/status")["skipped"])
        [place] = re.findall(r"sub/g\.txt: what it held before is kept in (\S+)", said)
        assert (daemon.root / place).read_bytes() == b"g\n"
        assert f"devtools-lsp undo {plan}" in said
        assert place in doctor(daemon)
        [*_, refused] = daemon.agent().wire.ask("devtools/undo", {"plan": plan}).values()
        assert refused["data"]["code"] == ("E_DEV_CONFLICT" if obstacle == "link" else "E_DEV_POLICY")
        assert ("symbolic link" if obstacle == "link" else "deny_write") in refused["message"]
        daemon.stop()
        assert place in daemon.log
    assert daemon.tree().get("plain.txt") == b"plain\n"
    if obstacle == "link":
        sub.unlink()
        (daemon.base / "away").rename(sub)
    else:
        configuration.write_text(ALLOW)
    daemon.start()
    daemon.agent().ask("devtools/undo", {"plan": plan})
    assert daemon.tree() == FILES
    daemon.stop()
    daemon.start()
    assert daemon.agent().ask("devtools/status")["skipped"] == []
    assert "journal" not in doctor(daemon)
    assert list(outside.iterdir()) == []


def doctor(daemon: Daemon) -> str:
    done = subprocess.run(
        [PROGRAM, "doctor", "--root", daemon.root, "--json"], env=daemon.env, capture_output=True, text=True
    )
    return done.stdout
