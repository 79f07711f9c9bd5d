"""What a person does in Neovim: choosing, the diff float and its keys, commands, dirty buffers, follow mode."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from devtools_lsp.errors import ConflictError, GateDeclinedError

TEN = "".join(f"line {number}\n" for number in range(1, 31))
THREE_EDITS = [
    {"find": "line 2\n", "replace": "line two\n"},
    {"find": "line 15\n", "replace": "line fifteen\n"},
    {"find": "line 29\n", "replace": "line twenty-nine\n"},
]


@pytest.fixture
def scene(new_project: Any, neovim: Any):
    """A project of two files, an attached Neovim, an agent."""

    class Scene:
        def __init__(self, options: str = "{}", **project: Any) -> None:
            self.project = new_project({"app.py": TEN, "other.py": "x = 1\n"}, **project)
            self.editor = neovim(self.project, options)
            self.editor.attached(self.project.path("app.py"))
            self.agents = self.project.agents()
            self.agent = self.agents.connect()

        def edit(self, path: str = "app.py", find: str = "line 2\n", replace: str = "line two\n") -> Any:
            return self.agents.edit(self.agent, path, find, replace)

        def pending(self, count: int = 1) -> list[dict[str, Any]]:
            self.editor.until(
                f"local all = require('devtools.approvals').list() return #all == {count} and vim.iter(all):all("
                "function(item) return vim.tbl_count(item.details) > 0 end)",
                what=f"{count} approvals",
            )
            return self.editor.pending()

        def float(self) -> list[str]:
            self.editor.until("return vim.api.nvim_win_get_config(0).relative ~= ''", what="the float")
            return self.editor.lines()

        def keys(self, keys: str) -> None:
            self.editor.lua("vim.api.nvim_feedkeys(vim.keycode(...), 'xt', false)", keys)

    return Scene


def test_choosing_through_ui_select_with_the_diff_in_view(scene: Any):
    it = scene()
    call = it.edit()
    it.pending()
    it.editor.choose("Approve")
    it.editor.lua("vim.cmd.Devtools('approvals')")
    assert call.result(30)["written"] == [{"path": "app.py", "kind": "modified"}]
    (asked,) = it.editor.lua("return told.selects")
    assert asked["prompt"] == "claude wants to edit app.py (+1 -1)"
    assert asked["kind"] == "devtools_approval"
    assert asked["items"][:3] == ["Approve", "Deny", "Deny, with a note"]
    assert asked["items"][3].startswith("Remember and approve: ")
    it.editor.until("return vim.api.nvim_win_get_config(0).relative == ''", what="the float is gone")


def test_the_first_of_two_is_chosen_by_its_headline(scene: Any):
    it = scene()
    first, second = it.edit(), it.edit("other.py", "x = 1", "x = 2")
    it.pending(2)
    # Not on the lines of the other one, which would be meant then.
    it.editor.lua("vim.api.nvim_win_set_cursor(0, { 20, 0 })")
    it.editor.choose("claude wants to edit other.py")
    it.editor.lua("vim.cmd.Devtools('deny')")
    with pytest.raises(GateDeclinedError):
        second.result(30)
    assert not first.done()
    assert [item["headline"] for item in it.pending()] == ["claude wants to edit app.py (+1 -1)"]


def test_a_hunk_is_dropped_in_the_float_and_the_rest_is_written(scene: Any):
    """I5: what is written is what was shown, less what the person took out."""
    it = scene()
    call = it.agents.call(it.agent, "edit", {"path": "app.py", "edits": THREE_EDITS})
    it.pending()
    it.editor.lua("vim.cmd.Devtools('diff')")
    shown = it.float()
    assert shown[0] == "# claude wants to edit app.py (+3 -3)"
    it.keys("gg]c]c")
    assert it.editor.lua("return vim.fn.getline('.')").startswith("@@ -12,7 +12,7 @@")
    it.keys("]c[c")
    it.editor.lua("vim.fn.search('+line fifteen')")
    it.keys("x")
    dimmed = "vim.api.nvim_buf_get_extmarks(0, vim.api.nvim_get_namespaces()['devtools.float'], 0, -1, {})"
    assert it.editor.lua(f"return #{dimmed}") == 9  # its header, three lines around it on each side, both lines
    it.keys("a")
    result = call.result(30)
    assert len(result["decision"]["dropped"]) == 1
    assert it.project.text("app.py") == TEN.replace("line 2\n", "line two\n").replace("line 29", "line twenty-nine")


def test_a_person_rewrites_the_proposal_and_that_is_what_is_written(scene: Any):
    it = scene()
    call = it.edit()
    it.pending()
    it.editor.lua("vim.cmd.Devtools('edit')")
    it.editor.until("return vim.bo.buftype == 'acwrite'", what="the editing buffer")
    assert it.editor.lines()[1] == "line two"
    assert it.editor.lua("return vim.bo.filetype") == "python"
    it.editor.lua("vim.api.nvim_buf_set_lines(0, 1, 2, false, { 'line zwei' }) vim.cmd.write()")
    assert call.result(30)["decision"]["edited"] == ["app.py"] or call.result()["decision"]["edited"]
    assert it.project.text("app.py") == TEN.replace("line 2\n", "line zwei\n")
    it.editor.until("return vim.bo.buftype == ''", what="the editing buffer is gone")


def test_denying_with_a_note_tells_the_agent(scene: Any):
    it = scene()
    call = it.edit()
    (item,) = it.pending()
    it.editor.lua("vim.cmd('Devtools deny ' .. ... .. ' use a constant')", item["id"])
    with pytest.raises(GateDeclinedError, match="use a constant"):
        call.result(30)


def test_remembering_lets_the_next_edit_through(scene: Any):
    it = scene()
    call = it.edit()
    it.pending()
    it.editor.choose("Remember and approve")
    it.editor.lua("vim.cmd.Devtools('approvals')")
    call.result(30)
    it.editor.until("return vim.iter(told.notes):any(function(note) return note:find('[[gate.rules]]', 1, true) end)")
    assert it.edit(find="line 3\n", replace="line three\n").result(30)["ok"]
    assert len(it.editor.lua("return told.selects")) == 1


def test_an_answer_from_elsewhere_closes_the_float_and_is_told(scene: Any):
    it = scene()
    call = it.edit()
    (item,) = it.pending()
    it.editor.lua("vim.cmd.Devtools('diff')")
    it.float()
    terminal = it.agents.connect("terminal", "terminal")
    assert it.agents.do(terminal.decide(item["id"], True))["applied"]
    call.result(30)
    it.editor.until("return vim.api.nvim_win_get_config(0).relative == ''", what="the float is gone")
    assert "devtools: approved by terminal: claude wants to edit app.py (+1 -1)" in it.editor.notes()


def test_a_question_without_a_file_is_told_and_answered(scene: Any):
    it = scene()
    call = it.agents.call(
        it.agent, "apply_patch", {"patch": "*** Begin Patch\n*** Add File: new.py\n+x = 1\n*** End Patch\n"}
    )
    it.pending()
    it.editor.until("return told.notes[1] and vim.startswith(told.notes[1], 'devtools: claude wants to')")
    it.editor.lua("vim.cmd.Devtools('approve')")
    call.result(30)
    assert it.project.text("new.py") == "x = 1\n"


def test_asking_at_once_waits_until_nobody_types(scene: Any):
    it = scene("{ ask = 'select' }")
    it.editor.choose("Deny")
    it.editor.lua("vim.api.nvim_feedkeys('i', 'n', false)")
    it.editor.until("return vim.fn.mode() == 'i'")
    call = it.edit()
    it.pending()
    assert it.editor.lua("return told.selects") == []
    it.editor.lua("vim.cmd.stopinsert()")
    with pytest.raises(GateDeclinedError):
        call.result(30)


def test_a_dirty_buffer_is_neither_written_over_nor_reloaded(scene: Any):
    it = scene()
    it.editor.lua("vim.api.nvim_buf_set_lines(0, 0, 1, false, { 'mine' })")
    # Neovim tells of changes after a moment, and before any request.
    it.editor.lua("vim.lsp.get_clients({ name = 'devtools' })[1]:request_sync('devtools/status', vim.empty_dict())")
    call = it.edit()
    with pytest.raises(ConflictError) as refused:
        call.result(30)
    assert refused.value.reason == "dirtyInEditor"
    assert it.project.text("app.py") == TEN
    assert it.editor.lines()[0] == "mine"
    # A write that comes past the daemon leaves the buffer alone as well.
    it.editor.lua(
        "vim.o.confirm = false "
        "vim.api.nvim_create_autocmd('FileChangedShell', { callback = function() "
        "_G.why = vim.v.fcs_reason vim.v.fcs_choice = '' end })"
    )
    Path(it.project.path("app.py")).write_text("somebody else\n")
    it.editor.lua("vim.cmd.checktime()")
    assert it.editor.until("return _G.why") == "conflict"
    assert it.editor.lines()[0] == "mine"


def test_highlights_fade_and_go(scene: Any):
    it = scene("{ highlight = { bright_ms = 400, fading_ms = 400 } }")
    call = it.edit()
    it.pending()
    it.editor.lua("vim.cmd.Devtools('approve')")
    call.result(30)
    seen = []

    def gone() -> bool:
        groups = [mark[2] for mark in it.editor.marks()]
        if groups and (not seen or seen[-1] != groups[0]):
            seen.append(groups[0])
        return bool(seen) and not groups

    it.editor._wait_until(gone, "the highlights go")
    assert seen == ["DevtoolsLanded", "DevtoolsLandedFading"]


def test_following_goes_to_what_lands_and_stops(scene: Any):
    it = scene("{ follow = true }")
    it.editor.lua("vim.cmd.Devtools('follow', 'on')")
    for path, find, replace in (("other.py", "x = 1", "x = 2"), ("app.py", "line 29\n", "line 29!\n")):
        call = it.edit(path, find, replace)
        it.pending()
        it.editor.lua("vim.cmd.Devtools('approve')")
        call.result(30)
        it.editor.until("return vim.fs.basename(vim.api.nvim_buf_get_name(0)) == ...", path)
    assert it.editor.lua("return vim.api.nvim_win_get_cursor(0)[1]") == 29
    it.editor.lua("vim.cmd('Devtools follow off')")
    call = it.edit("other.py", "x = 2", "x = 3")
    it.pending()
    it.editor.lua("vim.cmd.Devtools('approve')")
    call.result(30)
    it.editor.until("return #told.landed == 3")
    assert it.editor.lua("return vim.fs.basename(vim.api.nvim_buf_get_name(0))") == "app.py"


def test_a_clean_buffer_goes_with_its_file(scene: Any):
    it = scene()
    patch = "*** Begin Patch\n*** Update File: app.py\n*** Move to: moved.py\n@@\n-line 2\n+line two\n*** End Patch\n"
    call = it.agents.call(it.agent, "apply_patch", {"patch": patch})
    it.pending()
    it.editor.lua("vim.cmd.Devtools('approve')")
    call.result(30)
    it.editor.until("return vim.fs.basename(vim.api.nvim_buf_get_name(0)) == 'moved.py'")
    assert it.editor.lines()[1] == "line two"
    assert it.editor.lua("return vim.fn.bufnr('app.py$')") == -1


def test_undo_is_shown_to_the_person_who_asks_for_it(scene: Any):
    it = scene()
    call = it.edit()
    it.pending()
    it.editor.lua("vim.cmd.Devtools('approve')")
    call.result(30)
    it.editor.choose("Approve")
    it.editor.lua("vim.cmd.Devtools('undo')")
    it.editor._wait_until(lambda: it.project.text("app.py") == TEN, "the undo")
    it.editor.until(
        "return vim.iter(told.notes):any(function(note) return vim.startswith(note, 'devtools: undo:') end)"
    )


def test_status_log_help_and_health(scene: Any):
    it = scene()
    call = it.edit()
    it.pending()
    assert it.editor.lua("return require('devtools').statusline()") == "devtools · 1 waiting"
    it.editor.lua("vim.cmd.Devtools('approve')")
    call.result(30)
    it.editor.until("return require('devtools').statusline() == 'devtools'")

    it.editor.lua("vim.cmd.Devtools('status')")
    it.editor.until("return vim.bo.buftype == 'nofile'")
    assert any(line.startswith("root: ") for line in it.editor.lines())
    it.editor.lua("vim.cmd.close() vim.cmd.Devtools('log')")
    it.editor.until("return vim.bo.filetype == 'devtoolslog'")
    log = it.editor.lines()
    assert [line.split()[1] for line in log if "edit" in line] >= ["approval", "approval", "gate"]
    assert any(" landed " in line and "app.py" in line for line in log)
    it.editor.lua("vim.cmd.close()")

    it.editor.lua("vim.cmd.helptags(...)", str(Path(__file__).parents[3] / "editors" / "nvim" / "doc"))
    it.editor.lua("vim.cmd.help('devtools-approvals')")
    assert it.editor.lua("return vim.bo.filetype") == "help"
    it.editor.lua("vim.cmd.close() vim.cmd.checkhealth('devtools')")
    report = it.editor.until(
        "local lines = vim.api.nvim_buf_get_lines(0, 0, -1, false) return vim.bo.filetype == 'checkhealth' and lines"
    )
    text = "\n".join(report)
    assert "ERROR" not in text
    assert f"OK {it.project.root}: devtools-lsp" in text


def test_keys_of_the_persons_own_and_none_of_ours(scene: Any):
    it = scene()
    assert it.editor.lua(
        "return vim.iter(vim.api.nvim_get_keymap('n')):filter(function(map) "
        "return (map.rhs or ''):find('Devtools') and not vim.startswith(map.lhs, '<Plug>') end):totable()"
    ) == []  # fmt: skip
    it.editor.lua("vim.keymap.set('n', '<F2>', '<Plug>(devtools-approve)')")
    call = it.edit()
    it.pending()
    it.editor.lua("vim.api.nvim_feedkeys(vim.keycode('<F2>'), 'mxt', false)")
    assert call.result(30)["ok"]


def test_of_very_many_the_oldest_are_offered_and_the_rest_is_said(scene: Any):
    it = scene("{ ask = false }")
    it.editor.lua(
        "local client = vim.lsp.get_clients({ name = 'devtools' })[1] "
        "for number = 1, 1000 do require('devtools.approvals').requested(nil, "
        "{ id = 'id-' .. number, agent = 'claude', step = 'edit', files = {} }, { client_id = client.id }) end"
    )
    it.editor.choose("nobody")
    it.editor.lua("vim.api.nvim_win_set_cursor(0, { 20, 0 }) vim.cmd.Devtools('approve')")
    (asked,) = it.editor.lua("return told.selects")
    assert asked["prompt"] == "Approve (the oldest 200; 800 more wait)"
    assert len(asked["items"]) == 200


def test_a_diff_of_five_megabytes_is_shown_dropped_from_and_answered(scene: Any):
    content = "".join(f'value_{number} = "{"x" * 40}{number}"\n' for number in range(100_000))
    large = '[workspace]\nmax_bytes_per_file = 16777216\nmax_total_bytes = 67108864\n[gate]\nmode = "editor"\n'
    it = scene("{ ask = false }", configuration=large)
    writer = it.agents.connect("writer", surface="workspace")
    call = it.agents.call(writer, "write_file", {"path": "big.py", "content": content})
    it.pending()
    began = time.monotonic()
    it.editor.lua("vim.cmd.Devtools('diff')")
    shown = it.float()
    it.editor.lua("vim.cmd.redraw() vim.cmd('normal! G') vim.cmd.redraw()")
    took = time.monotonic() - began
    print(f"{len(shown)} lines in {took:.1f} s")
    assert took < 10
    assert len(shown) > 90_000
    assert any(line.startswith("# NOT ALL IS SHOWN: ") and line.endswith("of 100005 lines") for line in shown[:8])
    began = time.monotonic()
    it.keys("x")
    it.editor.lua("vim.cmd.redraw()")
    print(f"a hunk of all of them dropped in {time.monotonic() - began:.1f} s")
    assert time.monotonic() - began < 3
    it.keys("x")
    # The editor's own gesture sends it in a message, which must hold it.
    it.keys("q")
    it.editor.lua(
        "vim.lsp.get_clients({ name = 'devtools' })[1]:exec_cmd("
        "{ command = 'devtools.showDiff', arguments = { { id = ... } } })",
        it.pending()[0]["id"],
    )
    assert len(it.float()) == len(shown)
    it.keys("d")
    with pytest.raises(GateDeclinedError):
        call.result(30)


def test_an_unknown_option_and_command_are_named(scene: Any):
    it = scene()
    problem = it.editor.lua(
        "local ok, why = pcall(require('devtools').setup, { colour = true }) return { ok, tostring(why) }"
    )
    assert problem == [
        False,
        'devtools: setup has no option "colour"; it has ask, autoread, cmd, follow, highlight, reconnect, root_markers',
    ]
    it.editor.lua("vim.cmd.Devtools('aprove')")
    assert 'no "aprove"; there are approvals, approve' in it.editor.notes()[-1]
    assert it.editor.lua("return vim.fn.getcompletion('Devtools ap', 'cmdline')") == ["approvals", "approve"]
