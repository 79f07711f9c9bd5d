--- A floating window with a diff, and keys in it that answer. Knows nothing of the daemon: it calls what it was given.

local M = {}

local space = vim.api.nvim_create_namespace("devtools.float")

---@class devtools.FloatParts
---@field id string
---@field text string
---@field files table[] {path, from?, kind, hunks: [{id}]}, in the order of the diff
---@field remember? string
---@field approve fun(dropped: string[])
---@field approve_and_remember? fun()
---@field deny fun()
---@field deny_with_note fun()
---@field edit fun(path: string)

---@type { window: integer, buffer: integer, parts: devtools.FloatParts, dropped: table<string, boolean> }?
local open = nil

local function size_of(lines)
  local width = math.min(vim.o.columns - 4, 140)
  local height = math.max(3, math.min(#lines + 1, math.floor(vim.o.lines * 0.7)))
  return width, height
end

--- For each line of the buffer the hunk and the file that it belongs to.
local function place_hunks(lines, files)
  local hunks = {}
  for _, file in ipairs(files) do
    for _, hunk in ipairs(file.hunks or {}) do
      hunks[#hunks + 1] = { id = hunk.id, path = file.path }
    end
  end
  local places, index = {}, 0
  for number, line in ipairs(lines) do
    if vim.startswith(line, "@@ ") then
      index = index + 1
    elseif vim.startswith(line, "--- ") or vim.startswith(line, "diff --git ") then
      -- The head of the next file shows its first hunk's file.
      places[number] = hunks[index + 1]
      goto continue
    end
    places[number] = hunks[index]
    ::continue::
  end
  return places
end

local function keys_of(parts)
  local keys = { "a approve", "d deny", "n deny with a note", "x drop hunk", "e edit file" }
  if parts.approve_and_remember then
    keys[#keys + 1] = "r remember and approve"
  end
  keys[#keys + 1] = "q close"
  return " " .. table.concat(keys, "   ") .. " "
end

local function mark_dropped(state, places)
  vim.api.nvim_buf_clear_namespace(state.buffer, space, 0, -1)
  for number, hunk in pairs(places) do
    if hunk and state.dropped[hunk.id] then
      vim.api.nvim_buf_set_extmark(state.buffer, space, number - 1, 0, { line_hl_group = "Comment", priority = 200 })
    end
  end
end

local function map_keys(state, places)
  local parts = state.parts
  local function map(key, words, run)
    vim.keymap.set("n", key, run, { buffer = state.buffer, nowait = true, silent = true, desc = "devtools: " .. words })
  end
  local function ending(run)
    return function()
      M.close()
      run()
    end
  end
  local function here()
    return places[vim.api.nvim_win_get_cursor(0)[1]]
  end
  local function jump(step)
    return function()
      local line = vim.api.nvim_win_get_cursor(0)[1]
      local last = vim.api.nvim_buf_line_count(state.buffer)
      for number = line + step, step > 0 and last or 1, step do
        if vim.startswith(vim.api.nvim_buf_get_lines(state.buffer, number - 1, number, false)[1], "@@ ") then
          vim.cmd("normal! m'")
          return vim.api.nvim_win_set_cursor(0, { number, 0 })
        end
      end
    end
  end
  map("]c", "next hunk", jump(1))
  map("[c", "previous hunk", jump(-1))
  map("q", "close", M.close)
  map("<Esc>", "close", M.close)
  map("a", "approve", function()
    local dropped = vim.tbl_keys(state.dropped)
    table.sort(dropped)
    M.close()
    parts.approve(dropped)
  end)
  map("d", "deny", ending(parts.deny))
  map("n", "deny with a note", ending(parts.deny_with_note))
  if parts.approve_and_remember then
    map("r", "remember and approve: " .. parts.remember, ending(parts.approve_and_remember))
  end
  map("x", "drop this hunk, or take it again", function()
    local hunk = here()
    if hunk then
      state.dropped[hunk.id] = not state.dropped[hunk.id] or nil
      mark_dropped(state, places)
    end
  end)
  map("e", "edit this file before it is written", function()
    local hunk = here()
    if hunk then
      parts.edit(hunk.path)
    end
  end)
end

--- Open it, in place of one that is open. What was dropped in one that shows the same approval stays dropped.
---@param parts devtools.FloatParts
function M.open(parts)
  local dropped, below = {}, nil
  if open and open.parts.id == parts.id then
    dropped = open.dropped
    -- What follows from it stands above the diff and may grow: the reader's place is counted from the end.
    below = vim.api.nvim_buf_line_count(open.buffer) - vim.api.nvim_win_get_cursor(open.window)[1]
  end
  M.close()
  local lines = vim.split(parts.text, "\n", { plain = true })
  if lines[#lines] == "" then
    table.remove(lines)
  end
  local buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, lines)
  vim.bo[buffer].modifiable, vim.bo[buffer].bufhidden, vim.bo[buffer].filetype = false, "wipe", "diff"
  local width, height = size_of(lines)
  local window = vim.api.nvim_open_win(buffer, true, {
    relative = "editor",
    width = width,
    height = height,
    row = math.max(0, math.floor((vim.o.lines - height) / 2) - 1),
    col = math.max(0, math.floor((vim.o.columns - width) / 2)),
    border = "rounded",
    title = (" %s "):format(parts.id),
    footer = keys_of(parts),
    style = "minimal",
  })
  -- What is shown is what is written: nothing of it may be cut off at the edge or concealed.
  vim.wo[window].wrap, vim.wo[window].list, vim.wo[window].conceallevel = true, true, 0
  vim.wo[window].linebreak = true
  -- A trailing blank must show, and must not look like a removed line.
  vim.wo[window].listchars = "tab:» ,trail:·,nbsp:␣"
  if below then
    vim.api.nvim_win_set_cursor(window, { math.max(1, #lines - below), 0 })
  end
  open = { window = window, buffer = buffer, parts = parts, dropped = dropped }
  local places = place_hunks(lines, parts.files)
  map_keys(open, places)
  mark_dropped(open, places)
  vim.api.nvim_create_autocmd("BufWipeout", {
    buffer = buffer,
    once = true,
    callback = function()
      if open and open.buffer == buffer then
        open = nil
      end
    end,
  })
end

--- Close it; with an id only when it shows that approval.
---@param id? string
function M.close(id)
  if not open or (type(id) == "string" and open.parts.id ~= id) then
    return
  end
  local window = open.window
  open = nil
  if vim.api.nvim_win_is_valid(window) then
    vim.api.nvim_win_close(window, true)
  end
end

---@param id string
function M.shows(id)
  return open ~= nil and open.parts.id == id
end

return M
