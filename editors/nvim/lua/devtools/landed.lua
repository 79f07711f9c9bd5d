--- What agents wrote: buffers that show it at once, lines that are highlighted for a while, and follow mode.
---
--- A buffer with unsaved changes is never touched.

local client = require("devtools.client")
local config = require("devtools.config")

local M = {}

local space = vim.api.nvim_create_namespace("devtools.landed")

---@class devtools.Landing
---@field agent string
---@field plan string
---@field ranges { start: integer, end: integer }[]
---@field serial integer

---@type table<string, devtools.Landing>
local recent = {}
local serial = 0

function M.define_highlights()
  vim.api.nvim_set_hl(0, "DevtoolsLanded", { default = true, link = "DiffAdd" })
  vim.api.nvim_set_hl(0, "DevtoolsLandedFading", { default = true, link = "CursorLine" })
  vim.api.nvim_set_hl(0, "DevtoolsAgent", { default = true, link = "DiagnosticHint" })
end

local function buffer_of(path)
  local buffer = vim.fn.bufnr("^" .. vim.fn.escape(path, "\\*?[]{},") .. "$")
  return buffer > 0 and vim.api.nvim_buf_is_loaded(buffer) and buffer or nil
end

local function place(buffer, landing, group)
  local last = vim.api.nvim_buf_line_count(buffer)
  vim.api.nvim_buf_clear_namespace(buffer, space, 0, -1)
  for _, range in ipairs(landing.ranges) do
    local first = math.min(range.start, last)
    local mark = { line_hl_group = group, priority = 90, end_row = math.min(range["end"], last) - 1, strict = false }
    if config.current.highlight.label and group == "DevtoolsLanded" then
      mark.virt_text = { { landing.agent, "DevtoolsAgent" } }
    end
    vim.api.nvim_buf_set_extmark(buffer, space, first - 1, 0, mark)
  end
end

local function dim(path, landing)
  local buffer = recent[path] == landing and buffer_of(path)
  if not buffer then
    return
  end
  -- The marks have moved with the text since: their places are taken from the buffer, not from the announcement.
  for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(buffer, space, 0, -1, { details = true })) do
    vim.api.nvim_buf_set_extmark(buffer, space, mark[2], 0, {
      id = mark[1],
      end_row = math.max(mark[2], mark[4].end_row or mark[2]),
      line_hl_group = "DevtoolsLandedFading",
      priority = 90,
      strict = false,
    })
  end
end

local function forget(path, landing)
  if recent[path] ~= landing then
    return
  end
  recent[path] = nil
  local buffer = buffer_of(path)
  if buffer then
    vim.api.nvim_buf_clear_namespace(buffer, space, 0, -1)
  end
end

local function show(path, landing)
  local wanted = config.current.highlight
  if not wanted then
    return
  end
  recent[path] = landing
  local buffer = buffer_of(path)
  if buffer then
    place(buffer, landing, "DevtoolsLanded")
  end
  vim.defer_fn(function()
    dim(path, landing)
  end, wanted.bright_ms)
  vim.defer_fn(function()
    forget(path, landing)
  end, wanted.bright_ms + wanted.fading_ms)
end

--- Read a file again whose buffer is clean.
local function reload(buffer)
  if vim.bo[buffer].modified then
    local name = vim.fn.fnamemodify(vim.api.nvim_buf_get_name(buffer), ":~:.")
    client.tell(name .. " changed on disk, and this buffer has unsaved changes: it is left alone", vim.log.levels.WARN)
    return
  end
  if config.current.autoread then
    vim.bo[buffer].autoread = true
  end
  vim.cmd.checktime({ args = { tostring(buffer) }, mods = { emsg_silent = true } })
end

--- A clean buffer goes with the file that it shows.
local function move(from, to)
  local buffer = buffer_of(from)
  if not buffer or vim.bo[buffer].modified or buffer_of(to) then
    return
  end
  vim.api.nvim_buf_call(buffer, function()
    vim.cmd.file({ args = { vim.fn.fnameescape(to) }, mods = { silent = true, keepalt = true } })
    vim.cmd.edit({ bang = true, mods = { silent = true } })
  end)
  local left = vim.fn.bufnr("^" .. vim.fn.escape(from, "\\*?[]{},") .. "$")
  if left > 0 and left ~= buffer then
    vim.api.nvim_buf_delete(left, { force = true })
  end
end

local function may_jump()
  local window = vim.api.nvim_get_current_win()
  return vim.fn.mode() == "n"
    and vim.fn.getcmdwintype() == ""
    and vim.api.nvim_win_get_config(window).relative == ""
    and vim.bo.buftype == ""
end

local function follow(path, ranges)
  if not may_jump() then
    return
  end
  local buffer = vim.fn.bufadd(path)
  vim.bo[buffer].buflisted = true
  local window = vim.fn.bufwinid(buffer)
  vim.cmd("normal! m'")
  if window ~= -1 then
    vim.api.nvim_set_current_win(window)
  else
    vim.cmd.buffer({ args = { tostring(buffer) }, mods = { hide = true } })
  end
  local line = ranges[1] and ranges[1].start or 1
  vim.api.nvim_win_set_cursor(0, { math.max(1, math.min(line, vim.api.nvim_buf_line_count(buffer))), 0 })
  vim.cmd("normal! zvzz")
end

--- `devtools/landed`: {plan, agent, files: [{path, kind, from?, ranges}]}; lines are 1-based, as they are now.
function M.handle(_, params, context)
  local owner = vim.lsp.get_client_by_id(context.client_id)
  if not owner or not owner.root_dir then
    return
  end
  local target
  for _, file in ipairs(params.files) do
    local path = vim.fs.joinpath(owner.root_dir, file.path)
    serial = serial + 1
    local landing = { agent = params.agent, plan = params.plan, ranges = file.ranges, serial = serial }
    if file.kind == "renamed" and file.from then
      move(vim.fs.joinpath(owner.root_dir, file.from), path)
    end
    if file.kind ~= "deleted" then
      local buffer = buffer_of(path)
      if buffer then
        reload(buffer)
      end
      show(path, landing)
      target = target or { path, file.ranges }
    end
  end
  if config.current.follow and target then
    follow(target[1], target[2])
  end
  vim.api.nvim_exec_autocmds("User", { pattern = "DevtoolsLanded", modeline = false, data = params })
end

--- A buffer was read, for the first time or again: what landed in it just before is still shown.
---@param buffer integer
function M.restore(buffer)
  local landing = recent[vim.api.nvim_buf_get_name(buffer)]
  if landing then
    place(buffer, landing, "DevtoolsLanded")
  end
end

--- The highlighted ranges of a buffer: {first, last, group}, 1-based.
---@param buffer integer
function M.marks(buffer)
  return vim.tbl_map(function(mark)
    return { mark[2] + 1, (mark[4].end_row or mark[2]) + 1, mark[4].line_hl_group }
  end, vim.api.nvim_buf_get_extmarks(buffer, space, 0, -1, { details = true }))
end

return M
