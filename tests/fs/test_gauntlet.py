"""The eight stages: their order for every mutation from every file system, the permit, and what is reported."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from devtools_lsp.errors import BadArgumentError, ConflictError, DevToolsError, PolicyError, StepFailedError
from devtools_lsp.fs.gauntlet import STAGES, WriteGauntlet
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.memory import MemoryFileSystem
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.fs.translate import OUTSIDE, RootTranslator
from devtools_lsp.ports import FileStat, Gauntlet, Mutation, Permit

FILES = {"a.txt": b"a", "move.txt": b"m", "drop.txt": b"d"}


@pytest.fixture(params=["local", "local following links", "local without journal", "memory", "atomic memory"])
def make(request, tree):
    """Makes a gauntlet over each kind of file system, all holding FILES; gives (gauntlet, contents)."""
    tree.fill(FILES)
    opened = []

    def build(policy=None, on_stage=None):
        policy = policy or PathPolicy()
        if "memory" in request.param:
            fs = MemoryFileSystem(FILES, atomic="atomic" in request.param)
            return WriteGauntlet(str(tree.root), fs, policy, RootTranslator(), on_stage=on_stage), lambda: fs.contents
        fs = LocalFileSystem(
            str(tree.root),
            policy=policy,
            journaled="without" not in request.param,
            symlinks="inside" if "links" in request.param else "reject",
        )
        opened.append(fs)
        return WriteGauntlet(str(tree.root), fs, policy, RootTranslator(), on_stage=on_stage), tree.files

    yield build
    for fs in opened:
        fs.close()


def permit(*targets, may_create=()):
    return Permit("p", 0, "write", frozenset(targets), tuple(may_create))


async def test_every_mutation_passes_the_eight_stages_in_order(make, sha):
    """I4: one mutation of each kind, and the directories that are made on the way."""
    passed: list[tuple[str, str]] = []
    gauntlet, contents = make(on_stage=lambda stage, path: passed.append((stage, path)))
    mutations = [
        Mutation("rename", "new/dir/moved.txt", source="move.txt", expect=sha(b"m")),
        Mutation("delete", "drop.txt", expect=sha(b"d")),
        Mutation("mkdir", "made"),
        Mutation("write", "a.txt", b"A", expect=sha(b"a")),
        Mutation("write", "fresh.txt", b"f", expect=None),
    ]
    approved = permit("a.txt", "drop.txt", "move.txt", "new/dir/moved.txt", may_create=["fresh.txt", "made"])
    await gauntlet.commit(approved, mutations, lambda _: None)
    paths = {mutation.path for mutation in mutations} | {"new", "new/dir"}
    assert {path for _, path in passed} == paths
    for path in paths:
        assert tuple(stage for stage, other in passed if other == path) == STAGES, path
    assert contents() == {"new/dir/moved.txt": b"m", "a.txt": b"A", "fresh.txt": b"f"}
    # No byte before everything was judged: in a list, too, no mutation begins before all have passed the links.
    if gauntlet.atomic:
        order = [stage for stage, _ in passed]
        assert order.index("mutation") > max(index for index, stage in enumerate(order) if stage == "symlinks")


@pytest.mark.parametrize(
    ("mutation", "last"),
    [
        (Mutation("write", "unapproved.txt", b"x"), None),
        (Mutation("write", "../approved.txt", b"x"), "permit"),
        (Mutation("write", ".git/approved", b"x"), "translation"),
        (Mutation("write", "denied/approved.txt", b"x"), "translation"),
        (Mutation("write", "a.txt/approved", b"x"), "policy"),
        (Mutation("write", "a.txt", b"x", expect="0" * 64), "symlinks"),
    ],
)
async def test_a_refusal_ends_the_way_at_its_stage(make, mutation, last):
    """I4: what one stage refuses reaches no later one, and changes nothing."""
    passed: list[str] = []
    gauntlet, contents = make(PathPolicy(deny_write=["denied/**"]), lambda stage, path: passed.append(stage))
    approved = permit("../approved.txt", ".git/approved", "denied/approved.txt", "a.txt/approved", "a.txt")
    with pytest.raises(DevToolsError):
        await gauntlet.commit(approved, [mutation], lambda _: None)
    assert passed == list(STAGES[: STAGES.index(last) + 1] if last else [])
    assert contents() == FILES


@pytest.mark.parametrize(
    ("approved", "mutation", "verdict"),
    [
        (permit("a.txt"), Mutation("write", "a.txt", b"x"), True),
        (permit("b.txt"), Mutation("write", "a.txt", b"x"), False),
        (permit(may_create=["a.txt"]), Mutation("write", "a.txt", b"x"), True),
        (permit(may_create=["*.txt"]), Mutation("write", "a.txt", b"x"), True),
        (permit(may_create=["docs/**"]), Mutation("write", "docs/x/y.md", b"x"), True),
        (permit(may_create=["docs/**"]), Mutation("write", "a.txt", b"x"), False),
        (permit(may_create=["**"]), Mutation("write", ".hidden", b"x"), False),
        (permit(may_create=["[a].txt"]), Mutation("write", "[a].txt", b"x"), True),
        (permit(may_create=["[a].txt"]), Mutation("write", "a.txt", b"x"), False),
        (permit("new.txt"), Mutation("rename", "new.txt", source="a.txt"), False),
        (permit("new.txt", "a.txt"), Mutation("rename", "new.txt", source="a.txt"), True),
        (permit("a.txt"), Mutation("rename", "new.txt", source="a.txt"), False),
        (permit("deep/er/x"), Mutation("mkdir", "deep/er"), None),
        (permit("deeper/x"), Mutation("mkdir", "deep"), False),
        (permit(may_create=["deep/**"]), Mutation("mkdir", "deep"), True),
        (permit(), Mutation("delete", "a.txt"), False),
        (permit("A.txt"), Mutation("delete", "a.txt"), False),
    ],
)
async def test_the_permit_covers_what_the_gate_approved(make, approved, mutation, verdict):
    """I1: a mutation that no approval covers is refused first of all."""
    gauntlet, contents = make()
    if verdict is None:
        with pytest.raises(DevToolsError):  # Permitted, but its parent is not there: a mkdir makes no parents.
            await gauntlet.commit(approved, [mutation], lambda _: None)
        return
    if verdict:
        await gauntlet.commit(approved, [mutation], lambda _: None)
        return
    with pytest.raises(PolicyError, match="not among the files that the gate approved"):
        await gauntlet.commit(approved, [mutation], lambda _: None)
    assert contents() == FILES


async def test_without_a_policy_everything_is_refused(tree):
    fs = MemoryFileSystem(FILES)
    gauntlet = WriteGauntlet(str(tree.root), fs, None, RootTranslator())
    for access in ("read", "write", "create", "delete"):
        with pytest.raises(PolicyError, match="no path policy"):
            await gauntlet.screen("a.txt", access)
    with pytest.raises(PolicyError, match="no path policy"):
        await gauntlet.commit(permit("a.txt"), [Mutation("write", "a.txt", b"x")], lambda _: None)
    assert fs.contents == FILES


async def test_conflicts_of_all_targets_are_found_before_the_first_byte(make, sha):
    """SPEC 3.8.4: every path that somebody changed is named, and none is touched."""
    gauntlet, contents = make()
    mutations = [
        Mutation("delete", "drop.txt", expect=sha(b"another")),
        Mutation("write", "a.txt", b"A", expect=sha(b"a")),
        Mutation("write", "gone.txt", b"x", expect=sha(b"it was here")),
        Mutation("write", "move.txt", b"x", expect=None),
    ]
    landed: list[Mutation] = []
    with pytest.raises(ConflictError) as conflict:
        await gauntlet.commit(permit(*(mutation.path for mutation in mutations)), mutations, landed.append)
    assert conflict.value.paths == ["drop.txt", "gone.txt", "move.txt"]
    assert contents() == FILES
    assert landed == []


async def test_landed_is_called_in_the_order_given(make, sha):
    gauntlet, _ = make()
    mutations = [
        Mutation("rename", "x/moved.txt", source="move.txt", expect=sha(b"m")),
        Mutation("delete", "drop.txt", expect=sha(b"d")),
        Mutation("write", "a.txt", b"A", expect=sha(b"a")),
    ]
    landed: list[Mutation] = []
    await gauntlet.commit(permit("a.txt", "drop.txt", "move.txt", "x/moved.txt"), mutations, landed.append)
    assert landed == mutations


async def test_a_swap_of_two_names_in_one_list(make, sha):
    """What the pipeline does for a cycle: through a third name that is gone in the end."""
    gauntlet, contents = make()
    mutations = [
        Mutation("rename", ".tmp-swap", source="a.txt", expect=sha(b"a")),
        Mutation("rename", "a.txt", source="move.txt", expect=sha(b"m")),
        Mutation("rename", "move.txt", source=".tmp-swap", expect=sha(b"a")),
    ]
    approved = permit("a.txt", "move.txt", may_create=[".tmp-swap"])
    await gauntlet.commit(approved, mutations, lambda _: None)
    assert contents() == {**FILES, "a.txt": b"m", "move.txt": b"a"}


async def test_parents_are_made_where_the_rules_name_only_files(make):
    gauntlet, contents = make(PathPolicy(allow_write=["src/**/*.py"]))
    await gauntlet.commit(permit("src/new/deep/a.py"), [Mutation("write", "src/new/deep/a.py", b"x")], lambda _: None)
    assert contents()["src/new/deep/a.py"] == b"x"
    with pytest.raises(PolicyError):
        await gauntlet.commit(permit("src/new/b.md"), [Mutation("write", "src/new/b.md", b"x")], lambda _: None)


async def test_screen_gives_the_root_relative_path(make, tree):
    gauntlet, _ = make()
    assert await gauntlet.screen(f"{tree.root}/x/../a.txt", "write") == "a.txt"
    assert await gauntlet.screen_many([("a.txt", "read"), ("./new/x", "create"), ("", "read")]) == [
        "a.txt",
        "new/x",
        "",
    ]
    with pytest.raises(PolicyError):
        await gauntlet.screen("", "write")
    with pytest.raises(PolicyError):
        await gauntlet.screen(".env", "read")


async def test_screening_changes_nothing(make):
    gauntlet, contents = make()
    for path in ("a.txt", "new/deep/x", "drop.txt"):
        for access in ("read", "write", "create", "delete"):
            await gauntlet.screen(path, access)
    assert contents() == FILES


def test_it_is_a_gauntlet(make):
    gauntlet, _ = make()
    checked: Gauntlet = gauntlet
    assert {"delete", "rename", "mkdir", "read_window"} <= checked.methods
    assert ("commit" in checked.methods) is checked.atomic


async def test_errors_of_an_adapter_are_mapped_and_redacted():
    """Stage 8: whatever an adapter raises is in the taxonomy and says nothing of the host."""
    cases = [
        (PermissionError(13, "Permission denied", "/srv/data/root/a.txt"), StepFailedError, "change the permissions"),
        (
            OSError("broken pipe to /srv/data/root/x and /etc/shadow"),
            StepFailedError,
            f"broken pipe to x and {OUTSIDE}",
        ),
        (ValueError("boom in /usr/lib/adapter.py"), StepFailedError, f"boom in {OUTSIDE}"),
        (RuntimeError(""), StepFailedError, "RuntimeError"),
        (FileExistsError(17, "File exists"), ConflictError, "something is there now"),
        (BadArgumentError("no such bucket /srv/data/root/b"), BadArgumentError, "no such bucket b"),
    ]
    for raised, kind, message in cases:

        def on_call(method, path, raised=raised):
            if method == "write":
                raise raised

        fs = MemoryFileSystem(FILES, on_call=on_call)
        gauntlet = WriteGauntlet("/srv/data/root", fs, PathPolicy(), RootTranslator("/srv/data/root"))
        with pytest.raises(kind) as failed:
            await gauntlet.commit(permit("a.txt"), [Mutation("write", "a.txt", b"x")], lambda _: None)
        assert message in failed.value.message
        assert "/srv" not in failed.value.message
        assert str(failed.value) == failed.value.message


async def test_paths_are_translated_for_the_adapter():
    """Stage 4: the adapter sees its own paths, everybody else root-relative ones."""

    class Prefixing(RootTranslator):
        def to_adapter(self, path):
            return f"bucket/{path}" if path else "bucket"

    fs = MemoryFileSystem({"bucket/a.txt": b"a", "bucket/b.txt": b"b"})
    gauntlet = WriteGauntlet("/w", fs, PathPolicy(), Prefixing())
    landed: list[Mutation] = []
    mutations = [
        Mutation("rename", "d/c.txt", source="b.txt"),
        Mutation("write", "a.txt", b"A"),
    ]
    await gauntlet.commit(permit("a.txt", "b.txt", "d/c.txt"), mutations, landed.append)
    assert fs.contents == {"bucket/a.txt": b"A", "bucket/d/c.txt": b"b"}
    assert landed == mutations


async def test_an_adapter_from_before_signals_still_works():
    class Old(MemoryFileSystem):
        async def delete(self, path):
            del self.contents[path]

    fs = Old(FILES)
    gauntlet = WriteGauntlet("/w", fs, PathPolicy(), RootTranslator())
    await gauntlet.commit(permit("drop.txt"), [Mutation("delete", "drop.txt")], lambda _: None)
    assert "drop.txt" not in fs.contents


async def test_an_adapter_whose_ancestor_is_a_link_is_refused():
    class Linked(MemoryFileSystem):
        async def stat(self, path):
            return FileStat("symlink") if path == "link" else await super().stat(path)

    fs = Linked(FILES)
    gauntlet = WriteGauntlet("/w", fs, PathPolicy(), RootTranslator())
    with pytest.raises(PolicyError) as refused:
        await gauntlet.commit(permit("link/x"), [Mutation("write", "link/x", b"x")], lambda _: None)
    assert refused.value.reason == "symlink"
    assert fs.contents == FILES


def held_back(handle, monkeypatch) -> tuple[threading.Event, threading.Event]:
    """The next commits wait in their thread: an event for when one has come there, and one that lets them go on."""
    entered, go_on = threading.Event(), threading.Event()
    commit_now = handle.file_system.commit_now

    def waits(*arguments, **options):
        entered.set()
        assert go_on.wait(20)
        commit_now(*arguments, **options)

    monkeypatch.setattr(handle.file_system, "commit_now", waits)
    return entered, go_on


async def test_a_cancelled_caller_is_told_what_landed(tree, opened, monkeypatch, sha):
    """A commit that has begun is waited for: cancelling never leaves the caller without the truth."""
    tree.fill(FILES)
    handle = opened()
    entered, go_on = held_back(handle, monkeypatch)
    landed: list[Mutation] = []
    change = Mutation("write", "a.txt", b"A", expect=sha(b"a"))
    task = asyncio.ensure_future(handle.gauntlet.commit(permit("a.txt"), [change], landed.append))
    await asyncio.to_thread(entered.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert landed == [change]
    assert tree.files()["a.txt"] == b"A"


async def test_whoever_waits_is_told_on_the_loop_while_the_disk_works(make, request, monkeypatch, sha):
    """`waiting` comes once, when the new content is written and not durable yet; other file systems do not tell."""
    gauntlet, contents = make()
    loops_thread, synced = threading.current_thread(), threading.Event()
    told: list[bool] = []
    fsync = os.fsync

    def waiting() -> None:
        assert threading.current_thread() is loops_thread
        told.append(synced.is_set())
        go_on.set()

    def slow(descriptor: int) -> None:
        assert go_on.wait(20)
        fsync(descriptor)
        synced.set()

    tells = "commit" in gauntlet.methods and "local" in request.node.callspec.params["make"]
    go_on = threading.Event()
    if tells:
        # The disk is not done before the loop had its turn, so that the commit cannot be over either.
        monkeypatch.setattr(os, "fsync", slow)
    await gauntlet.commit(
        permit("a.txt", "drop.txt", "fresh.txt"),
        [
            Mutation("write", "a.txt", b"A", expect=sha(b"a")),
            Mutation("write", "fresh.txt", b"f", expect=None),
            Mutation("delete", "drop.txt", expect=sha(b"d")),
        ],
        lambda _: None,
        waiting=waiting,
    )
    assert told == ([False] if tells else [])
    assert contents() == {"a.txt": b"A", "fresh.txt": b"f", "move.txt": b"m"}


async def test_what_brings_no_new_content_does_not_let_anybody_wait(make, sha):
    gauntlet, _ = make()
    told: list[str] = []
    for mutation in (
        Mutation("rename", "moved.txt", source="move.txt", expect=sha(b"m")),
        Mutation("delete", "drop.txt", expect=sha(b"d")),
    ):
        approved = permit(mutation.path, *([mutation.source] if mutation.source else []))
        await gauntlet.commit(approved, [mutation], lambda _: None, waiting=lambda: told.append("waiting"))
    assert told == []


async def test_a_commit_that_is_over_tells_nobody_to_wait(tree, opened, monkeypatch, sha):
    """The caller was cancelled, and the loop comes to the telling only when the commit has been reported."""
    tree.fill(FILES)
    handle = opened()
    begun, go_on = held_back(handle, monkeypatch)
    told: list[str] = []
    change = Mutation("write", "a.txt", b"A", expect=sha(b"a"))
    task = asyncio.ensure_future(
        handle.gauntlet.commit(permit("a.txt"), [change], lambda _: None, waiting=lambda: told.append("waiting"))
    )
    await asyncio.to_thread(begun.wait, 20)
    # All in one turn of the loop: the end of the task is queued by the cancellation, before the thread tells.
    task.cancel()
    go_on.set()
    handle.file_system.close()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert told == []
    assert tree.files()["a.txt"] == b"A"


async def test_a_cancelled_commit_that_fails_says_so(tree, opened, monkeypatch, sha):
    tree.fill(FILES)
    handle = opened()
    entered, go_on = held_back(handle, monkeypatch)
    landed: list[Mutation] = []
    change = Mutation("write", "a.txt", b"A", expect=sha(b"not this"))
    task = asyncio.ensure_future(handle.gauntlet.commit(permit("a.txt"), [change], landed.append))
    await asyncio.to_thread(entered.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(ConflictError):
        await task
    assert landed == []


@pytest.mark.parametrize(
    ("message", "redacted"),
    [
        ("cannot open /w/root/src/a.py: no", "cannot open src/a.py: no"),
        ("in '/w/root'", "in '.'"),
        ("/w/root-evil/x", OUTSIDE),
        ("'/etc/passwd', \"/tmp/x y\"", f"'{OUTSIDE}', \"{OUTSIDE} y\""),
        ("see https://example.org/a/b and a/b and and/or", "see https://example.org/a/b and a/b and and/or"),
        ('File "/usr/lib/x.py", line 3', f'File "{OUTSIDE}", line 3'),
        ("/w/root/a:3:1: /w/root/b", "a:3:1: b"),
        ("1 / 2 and </div>", "1 / 2 and </div>"),
        ("nothing", "nothing"),
    ],
)
def test_redaction(message, redacted):
    assert RootTranslator("/w/root").redact(message) == redacted
