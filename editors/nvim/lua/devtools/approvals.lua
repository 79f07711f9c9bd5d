--- What waits for a person, and how they answer. A mirror of what the daemon tells: it decides who was first.

local client = require("devtools.client")
local config = require("devtools.config")
local float = require("devtools.float")

local M = {}

---@class devtools.Approval
---@field client_id integer
---@field payload table what the daemon sent: id, plan, step, agent, files with hunks, rememberText, ...
---@field headline string one line: who wants what
---@field details string[] what follows from it

---@type table<string, devtools.Approval>
local waiting = {}
---@type string[] ids, oldest first
local order = {}
local on_change = function() end
local asking = false
local counting = false
local FEW, COUNTING_MS, MOST_OFFERED = 3, 500, 200
---@type table<integer, boolean> clients whose person has just asked for an undo
local undoing = {}

function M.configure(changed)
  on_change = changed
end

---@return devtools.Approval[] oldest first
function M.list()
  return vim.tbl_map(function(id)
    return waiting[id]
  end, order)
end

---@param id string
---@return devtools.Approval?
function M.find(id)
  return waiting[id]
end

---@return integer
function M.count()
  return #order
end

local function owner_of(item)
  return vim.lsp.get_client_by_id(item.client_id)
end

local function remove(id)
  if not waiting[id] then
    return false
  end
  waiting[id] = nil
  order = vim.tbl_filter(function(other)
    return other ~= id
  end, order)
  return true
end

-- Answering -------------------------------------------------------------------------------------------------------

---@class devtools.Answer
---@field approve boolean
---@field note? string
---@field remember? boolean
---@field drop? string[] hunk ids to leave out
---@field edited? { path: string, content: string }[]

--- Answer, and say what came of it.
---@param item devtools.Approval
---@param answer devtools.Answer
---@param done? fun(decided: table)
function M.decide(item, answer, done)
  local owner = owner_of(item)
  if not owner then
    client.tell("the daemon that asked is not connected any more", vim.log.levels.WARN)
    return
  end
  local params = vim.tbl_extend("force", answer, { id = item.payload.id })
  client.request(owner, "devtools/decide", params, function(decided)
    if not decided.applied then
      client.tell(("too late: %s by %s already"):format(decided.status, decided.by), vim.log.levels.WARN)
    elseif answer.remember then
      client.tell(
        decided.rule
            and ("remembered until the agent's session ends; to keep it, add to %s:\n%s"):format(
              decided.ruleFile,
              decided.rule
            )
          or "remembered until the agent's session ends; no rule of the configuration can say it for good"
      )
    end
    if done then
      done(decided)
    end
  end)
end

local function deny_with_note(item)
  vim.ui.input({ prompt = "Why not? (the agent is told) " }, function(note)
    if note ~= nil then
      M.decide(item, { approve = false, note = note ~= "" and note or nil })
    end
  end)
end

--- Change the text before it is written: the proposed file in a buffer of its own, `:w` approves what it holds.
---@param item devtools.Approval
---@param path string
function M.edit(item, path)
  local owner = owner_of(item)
  if not owner then
    return
  end
  client.request(owner, "devtools/diff", { id = item.payload.id, path = path }, function(document)
    local file = document.files[1]
    if not file or type(file.after) ~= "string" then
      client.tell(path .. " cannot be edited whole here; drop hunks, or deny with a note", vim.log.levels.WARN)
      return
    end
    float.close()
    vim.cmd.new()
    local buffer = vim.api.nvim_get_current_buf()
    vim.api.nvim_buf_set_name(buffer, ("devtools://edit/%s/%s"):format(item.payload.id, path))
    vim.bo[buffer].buftype, vim.bo[buffer].bufhidden, vim.bo[buffer].swapfile = "acwrite", "wipe", false
    local lines = vim.split(file.after, "\n", { plain = true })
    local ends = lines[#lines] == "" and #lines > 1
    if ends then
      table.remove(lines)
    end
    vim.bo[buffer].undolevels = -1
    vim.api.nvim_buf_set_lines(buffer, 0, -1, false, lines)
    vim.bo[buffer].undolevels = vim.go.undolevels
    vim.bo[buffer].modified = false
    vim.bo[buffer].filetype = vim.filetype.match({ filename = path, buf = buffer }) or ""
    vim.wo.winbar = " :w approves this text in place of the agent's "
    vim.api.nvim_create_autocmd("BufWriteCmd", {
      buffer = buffer,
      callback = function()
        local content = table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, false), "\n") .. (ends and "\n" or "")
        M.decide(item, { approve = true, edited = { { path = path, content = content } } }, function()
          if vim.api.nvim_buf_is_valid(buffer) then
            vim.bo[buffer].modified = false
            vim.api.nvim_buf_delete(buffer, { force = true })
          end
        end)
      end,
    })
  end)
end

-- Asking ----------------------------------------------------------------------------------------------------------

--- The diff in a float whose keys answer.
---@param item devtools.Approval
---@param text string
local function open_float(item, text)
  local payload = item.payload
  local remember = type(payload.rememberText) == "string" and payload.rememberText or nil
  float.open({
    id = payload.id,
    text = text,
    files = payload.files,
    remember = remember,
    approve = function(dropped)
      M.decide(item, { approve = true, drop = #dropped > 0 and dropped or nil })
    end,
    approve_and_remember = remember and function()
      M.decide(item, { approve = true, remember = true })
    end,
    deny = function()
      M.decide(item, { approve = false })
    end,
    deny_with_note = function()
      deny_with_note(item)
    end,
    edit = function(path)
      M.edit(item, path)
    end,
  })
end

--- Show the diff; with `then_ask` put the question as well.
---@param item devtools.Approval
---@param then_ask? boolean
function M.show(item, then_ask)
  local owner = owner_of(item)
  if not owner then
    return
  end
  client.request(owner, "devtools/diff", { id = item.payload.id, part = "text" }, function(document)
    if not waiting[item.payload.id] then
      return
    end
    open_float(item, document.text)
    if then_ask then
      vim.cmd.redraw()
      M.ask(item)
    end
  end)
end

--- Put the question through `vim.ui.select`.
---@param item devtools.Approval
function M.ask(item)
  local id = item.payload.id
  local choices = { { "Approve", { approve = true } }, { "Deny", { approve = false } }, { "Deny, with a note", "note" } }
  if type(item.payload.rememberText) == "string" then
    table.insert(choices, { "Remember and approve: " .. item.payload.rememberText, { approve = true, remember = true } })
  end
  table.insert(choices, { "Look at the diff, answer later", "later" })
  vim.ui.select(choices, {
    prompt = item.headline,
    kind = "devtools_approval",
    format_item = function(choice)
      return choice[1]
    end,
  }, function(choice)
    if not choice or choice[2] == "later" then
      return
    end
    float.close(id)
    if choice[2] == "note" then
      deny_with_note(item)
    else
      M.decide(item, choice[2])
    end
  end)
end

--- Let the person choose one of several; with one there is nothing to choose.
---@param prompt string
---@param chosen fun(item: devtools.Approval)
function M.choose(prompt, chosen)
  local items = M.list()
  if #items == 0 then
    client.tell("nothing waits for a decision")
  elseif #items == 1 then
    chosen(items[1])
  else
    -- The list that comes with Neovim prints all of it: of very many the oldest are offered, and the rest is said.
    local shown = vim.list_slice(items, 1, MOST_OFFERED)
    local rest = #items - #shown
    vim.ui.select(shown, {
      prompt = rest == 0 and prompt or ("%s (the oldest %d; %d more wait)"):format(prompt, #shown, rest),
      kind = "devtools_approvals",
      format_item = function(item)
        return item.headline
      end,
    }, function(item)
      if item and waiting[item.payload.id] then
        chosen(item)
      end
    end)
  end
end

local function may_interrupt()
  return vim.fn.mode() == "n" and vim.fn.getcmdwintype() == "" and not asking
end

--- Ask without having been asked to, when the person is not in the middle of typing.
local function interrupt(item)
  if not waiting[item.payload.id] then
    return
  end
  if may_interrupt() then
    asking = true
    local ok, problem = pcall(M.show, item, true)
    asking = false
    if not ok then
      error(problem, 0)
    end
    return
  end
  vim.api.nvim_create_autocmd({ "CursorHold", "ModeChanged" }, {
    once = true,
    callback = function()
      vim.schedule(function()
        interrupt(item)
      end)
    end,
  })
end

--- One message for each, as long as they are few; then one for many.
local function notify(item)
  if #order <= FEW then
    client.tell(item.headline .. "  (:Devtools approvals)", vim.log.levels.WARN)
  elseif not counting then
    counting = true
    vim.defer_fn(function()
      counting = false
      if #order > FEW then
        client.tell(("%d steps wait for you  (:Devtools approvals)"):format(#order), vim.log.levels.WARN)
      end
    end, COUNTING_MS)
  end
end

local function announce(item)
  local own_undo = undoing[item.client_id] and item.payload.step == "undo"
  if own_undo or config.current.ask == "select" then
    undoing[item.client_id] = nil
    interrupt(item)
  elseif config.current.ask == "notify" then
    notify(item)
  end
end

--- The next undo that this client is asked about is the person's own: it is shown to them at once.
function M.expect_undo(client_id)
  undoing[client_id] = true
end

function M.expect_no_undo(client_id)
  undoing[client_id] = nil
end

-- What the daemon tells -------------------------------------------------------------------------------------------

local function fetch_words(item, done)
  local owner = owner_of(item)
  if not owner then
    return
  end
  client.request(owner, "devtools/diff", { id = item.payload.id, part = "words" }, function(words)
    item.headline, item.details = words.headline, words.details
    if waiting[item.payload.id] == item then
      on_change()
      if done then
        done()
      end
    end
  end, function()
    -- It has ended meanwhile; the notification about that is on its way.
  end)
end

function M.requested(_, payload, context)
  local known = waiting[payload.id]
  local item = { client_id = context.client_id, payload = payload, details = {} }
  item.headline = ("%s: %s"):format(vim.fn.strtrans(payload.agent), vim.fn.strtrans(payload.step))
  waiting[payload.id] = item
  if not known then
    order[#order + 1] = payload.id
  end
  on_change()
  fetch_words(item, not known and function()
    announce(item)
  end or nil)
end

function M.updated(_, payload, context)
  local item = waiting[payload.id]
  if item and item.client_id == context.client_id then
    item.payload = payload
    fetch_words(item, function()
      if float.shows(payload.id) then
        M.show(item)
      end
    end)
  end
end

function M.resolved(_, resolution)
  local item = waiting[resolution.id]
  if item and remove(resolution.id) then
    float.close(resolution.id)
    if resolution.by ~= "editor" then
      client.tell(("%s by %s: %s"):format(resolution.status, resolution.by, item.headline))
    end
    on_change()
  end
end

--- `devtools/showDiff`: somebody chose "Show diff" here.
function M.show_diff(_, params)
  local item = waiting[params.id]
  if item then
    open_float(item, params.text)
  end
end

--- A client is gone; what waits is told again when it is back.
function M.forget_client(client_id)
  for _, item in ipairs(M.list()) do
    if item.client_id == client_id then
      remove(item.payload.id)
      float.close(item.payload.id)
    end
  end
  undoing[client_id] = nil
end

--- The approval that marks the cursor's line, or nil.
---@return devtools.Approval?
function M.at_cursor()
  local line = vim.api.nvim_win_get_cursor(0)[1] - 1
  for _, diagnostic in ipairs(vim.diagnostic.get(0)) do
    local data = vim.tbl_get(diagnostic, "user_data", "lsp", "data")
    local item = type(data) == "table" and data.approvalId and waiting[data.approvalId]
    if item and diagnostic.lnum <= line and line <= (diagnostic.end_lnum or diagnostic.lnum) then
      return item
    end
  end
end

return M
