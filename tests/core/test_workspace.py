"""The snapshot that steps hand on: what changed since acquisition, what is not on disk yet, who moved where."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools_lsp.core.result import Change
from devtools_lsp.core.workspace import DiskFile, FileText, Workspace, sha256
from devtools_lsp.text import TextForm, decode, split_endings

SEEDED = settings(derandomize=True, deadline=None, max_examples=100)


def on_disk(text: str) -> DiskFile:
    data = text.encode()
    return DiskFile(sha256(data), len(data), FileText(*decode(data)))


def acquired(**files: str) -> Workspace:
    return Workspace.of({path: on_disk(text) for path, text in files.items()})


def shown(workspace: Workspace) -> list[str]:
    def line(change: Change) -> str:
        return f"{change.kind} {change.path}" + (f" from {change.from_}" if change.from_ else "")

    return [line(change) for change in workspace.changes()]


def with_text(workspace: Workspace, **texts: str) -> Workspace:
    return workspace.with_files({path: FileText(text) for path, text in texts.items()})


START = acquired(a="1\n", b="2\n", c="3\n")


@pytest.mark.parametrize(
    ("workspace", "changes", "unwritten"),
    [
        pytest.param(START, [], [], id="nothing"),
        pytest.param(with_text(START, a="x\n"), ["modified a"], ["a"], id="edit"),
        pytest.param(with_text(with_text(START, a="x\n"), a="1\n"), [], [], id="edit and back"),
        pytest.param(with_text(START, n="n\n"), ["added n"], ["n"], id="add"),
        pytest.param(START.without(["a"]), ["deleted a"], ["a"], id="delete"),
        pytest.param(with_text(START, n="n\n").without(["n"]), [], [], id="add and delete"),
        pytest.param(with_text(START.without(["a"]), a="1\n"), [], [], id="delete and recreate alike"),
        pytest.param(with_text(START.without(["a"]), a="x\n"), ["modified a"], ["a"], id="recreate otherwise"),
        pytest.param(START.renamed({"a": "d"}), ["renamed d from a"], ["a", "d"], id="move"),
        pytest.param(START.renamed({"a": "d"}).renamed({"d": "e"}), ["renamed e from a"], ["a", "e"], id="move on"),
        pytest.param(START.renamed({"a": "d"}).renamed({"d": "a"}), [], [], id="move back"),
        pytest.param(
            START.renamed({"a": "b", "b": "a"}), ["renamed a from b", "renamed b from a"], ["a", "b"], id="exchange"
        ),
        pytest.param(START.renamed({"a": "b", "b": "a"}).renamed({"a": "b", "b": "a"}), [], [], id="exchange twice"),
        pytest.param(
            with_text(START.renamed({"a": "d"}), a="x\n"), ["added a", "renamed d from a"], ["a", "d"], id="place taken"
        ),
        pytest.param(
            with_text(START.renamed({"a": "d"}), a="x\n").renamed({"a": "e"}),
            ["renamed d from a", "added e"],
            ["a", "d", "e"],
            id="what took the place moves on as a new file",
        ),
        pytest.param(START.renamed({"a": "d"}).without(["d"]), ["deleted a"], ["a"], id="move and delete"),
        pytest.param(
            with_text(START.renamed({"a": "d"}), a="x\n").without(["d"]), ["modified a"], ["a"], id="replaced after all"
        ),
        pytest.param(
            START.without(["b"]).renamed({"a": "b"}),
            ["deleted b", "renamed b from a"],
            ["a", "b"],
            id="a move over a deleted file hides nothing",
        ),
        pytest.param(with_text(START, n="n\n").renamed({"n": "m"}), ["added m"], ["m"], id="a new file moves"),
    ],
)
def test_changes_by_identity(workspace: Workspace, changes: list[str], unwritten: list[str]):
    assert sorted(shown(workspace), key=lambda line: line.split()[1]) == sorted(
        changes, key=lambda line: line.split()[1]
    )
    assert workspace.unwritten() == unwritten


def test_what_a_change_compares_with():
    workspace = with_text(START.renamed({"a": "d"}).without(["c"]), d="x\n", n="n\n")
    before = {change.path: workspace.before(change) for change in workspace.changes()}
    assert before == {"d": FileText("1\n"), "c": FileText("3\n"), "n": None}


def test_a_snapshot_is_not_changed_by_what_follows_from_it():
    with_text(START.renamed({"a": "d"}).without(["b"]), c="x\n")
    assert START.texts() == {"a": "1\n", "b": "2\n", "c": "3\n"}
    assert START.changes() == []


def test_snapshots_are_told_apart_by_identity():
    assert acquired(a="1\n") != acquired(a="1\n")


@SEEDED
@given(
    st.lists(
        st.tuples(st.sampled_from(["move", "delete", "add", "edit"]), st.integers(0, 5), st.integers(0, 5)), max_size=9
    )
)
def test_any_course_agrees_with_a_model_that_follows_each_file(course: list[tuple[str, int, int]]):
    """The model gives each file an identity and looks at the two ends only."""
    names = ["a", "b", "c", "d", "e", "f"]
    workspace = START
    holders: dict[str, str | None] = {"a": "a", "b": "b", "c": "c"}
    for action, first, second in course:
        name, other = names[first], names[second]
        if action == "move" and name in holders and (other not in holders or other == name):
            workspace = workspace.renamed({name: other})
            holders[other] = holders.pop(name)
        elif action == "delete" and name in holders:
            workspace = workspace.without([name])
            del holders[name]
        elif action == "add" and name not in holders:
            workspace = with_text(workspace, **{name: "new\n"})
            # A file that comes back under its own name counts as the same, unless the old one lives on elsewhere.
            known = name in START.acquired and name not in holders.values()
            holders[name] = name if known else None
        elif action == "edit" and name in holders:
            workspace = with_text(workspace, **{name: workspace.files[name].text + "x\n"})
        for path, holder in holders.items():
            # So does one whose old holder went after it had come.
            if holder is None and path in START.acquired and path not in holders.values():
                holders[path] = path
    expected: list[str] = []
    for path, holder in holders.items():
        if holder is None:
            expected.append(f"added {path}")
        elif holder != path:
            expected.append(f"renamed {path} from {holder}")
        elif workspace.files[path] != START.acquired[path]:
            expected.append(f"modified {path}")
    expected += [f"deleted {path}" for path in START.acquired if path not in holders.values()]
    assert sorted(shown(workspace)) == sorted(expected)
    assert set(workspace.unwritten()) >= {path for path in workspace.files if path not in START.disk}


def test_files_are_equal_when_their_bytes_are():
    text, mixed = split_endings("a\r\nb\n")
    assert FileText(text, mixed) == FileText(*decode(b"a\r\nb\n"))
    assert FileText(text, mixed) != FileText(text)
    assert FileText("one", TextForm(crlf=True)) == FileText("one")
    assert FileText("one", TextForm(bom=True)) != FileText("one")
    assert hash(FileText("one", TextForm(crlf=True))) == hash(FileText("one"))
    assert FileText("x") != "x"


def test_a_file_replaced_as_a_whole_keeps_the_endings_of_lines_it_shares():
    file = FileText(*split_endings("a\r\nb\nc\r\nd\n"))
    replaced = file.replaced("new\na\nb\nC\nd\n")
    assert replaced.to_bytes("preserve") == b"new\na\r\nb\nC\r\nd\n"
    assert replaced.to_bytes("normalize") == b"new\na\nb\nC\nd\n"


@pytest.mark.parametrize("data", [b"\xef\xbb\xbfa\r\nb", "\ufeffa\nb\r\n".encode("utf-16-le"), b"a\nb\r\nc"])
def test_the_two_policies(data: bytes):
    file = FileText(*decode(data))
    assert file.to_bytes("preserve") == data
    assert file.to_bytes("normalize") == file.text.encode()
