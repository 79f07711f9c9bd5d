--- `:Devtools`: a person's words as calls of the other parts.

local approvals = require("devtools.approvals")
local client = require("devtools.client")
local config = require("devtools.config")

local M = {}

local function connected()
  local found = client.current()
  if not found then
    client.tell("not connected here; open a file under a root, or :Devtools start", vim.log.levels.WARN)
  end
  return found
end

local function scratch(name, lines, filetype)
  vim.cmd.new()
  local buffer = vim.api.nvim_get_current_buf()
  vim.bo[buffer].buftype, vim.bo[buffer].bufhidden, vim.bo[buffer].swapfile = "nofile", "wipe", false
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, lines)
  vim.bo[buffer].modifiable = false
  vim.bo[buffer].filetype = filetype or ""
  -- A name that is taken by an older window of the same kind is no reason to show nothing.
  pcall(vim.api.nvim_buf_set_name, buffer, "devtools://" .. name)
  vim.keymap.set("n", "q", vim.cmd.close, { buffer = buffer, nowait = true })
end

--- The approval that a command names, marks the cursor's line, or is chosen.
local function with_approval(id, prompt, run)
  if not id then
    local here = approvals.at_cursor()
    if here then
      return run(here)
    end
    return approvals.choose(prompt, run)
  end
  -- The whole id, or the number behind its dash: the beginning of an id may be another's whole id.
  local found = vim.tbl_filter(function(item)
    return item.payload.id == id or item.payload.id:match("%-(%d+)$") == id
  end, approvals.list())
  if #found == 1 then
    return run(found[1])
  end
  client.tell(("%d approvals are called %q"):format(#found, id), vim.log.levels.WARN)
end

local function rest_of(arguments, from)
  local words = table.concat(vim.list_slice(arguments, from), " ")
  return words ~= "" and words or nil
end

--- One line of the activity log, or nil for one that is not JSON.
local function log_line(line)
  local ok, entry = pcall(vim.json.decode, line, { luanil = { object = true } })
  if not ok then
    return nil
  end
  local paths = table.concat(entry.paths or {}, ", ")
  return (
    ("%s  %-8s %-12s %-9s %-14s %s"):format(
      entry.time,
      entry.event,
      entry.step or "",
      entry.verdict or "",
      entry.agent or entry.by or "",
      vim.fn.strtrans(paths)
    ):gsub("%s+$", "")
  )
end

local function show_log(owner, count)
  client.request(owner, "devtools/status", nil, function(status)
    local path = vim.fs.joinpath(status.stateDir, "activity.jsonl")
    local file = io.open(path, "r")
    if not file then
      return client.tell("no activity yet")
    end
    local lines = {}
    for line in file:lines() do
      lines[#lines + 1] = log_line(line)
    end
    file:close()
    scratch("log", vim.list_slice(lines, math.max(1, #lines - count + 1)), "devtoolslog")
    vim.cmd.normal({ "G", bang = true })
  end)
end

local function show_status(owner)
  client.request(owner, "devtools/status", nil, function(status)
    local lines = {
      ("devtools-lsp %s  pid %d  up %.0f s"):format(status.version, status.pid, status.uptime_s),
      "root: " .. status.root,
      ("gate: %s, %d rules   waiting: %d"):format(status.gate.mode, #status.gate.rules, status.pendingApprovals),
      ("editors: %d   agents: %d"):format(#status.editors, #status.agents),
      "",
    }
    for _, engine in ipairs(status.engines) do
      local version = type(engine.version) == "string" and engine.version or ""
      lines[#lines + 1] = ("engine %-16s %-10s %s"):format(engine.id, engine.state, version)
    end
    for _, agent in ipairs(status.agents) do
      lines[#lines + 1] = ("agent  %s %s"):format(vim.fn.strtrans(agent.name), vim.fn.strtrans(agent.version or ""))
    end
    for _, words in ipairs(status.skipped) do
      lines[#lines + 1] = "note   " .. (type(words) == "string" and words or vim.inspect(words))
    end
    scratch("status", lines)
  end)
end

local function undo(owner, plan)
  approvals.expect_undo(owner.id)
  -- An empty Lua table would go out as a list.
  client.request(owner, "devtools/undo", plan and { plan = plan } or vim.empty_dict(), function(result)
    approvals.expect_no_undo(owner.id)
    client.tell("undo: " .. (result.summary or "done"))
  end, function(problem)
    approvals.expect_no_undo(owner.id)
    client.tell("undo: " .. client.words_of(problem), vim.log.levels.ERROR)
  end)
end

local function stop(owner)
  -- That it stops is told by the daemon itself, as when somebody else has stopped it.
  client.request(owner, "devtools/stop", nil, function() end)
end

---@type table<string, fun(arguments: string[])>
local subcommands = {
  approvals = function()
    approvals.choose("What waits for you", function(item)
      approvals.show(item, true)
    end)
  end,
  approve = function(arguments)
    with_approval(arguments[1], "Approve", function(item)
      approvals.decide(item, { approve = true, note = rest_of(arguments, 2) })
    end)
  end,
  deny = function(arguments)
    with_approval(arguments[1], "Deny", function(item)
      approvals.decide(item, { approve = false, note = rest_of(arguments, 2) })
    end)
  end,
  diff = function(arguments)
    with_approval(arguments[1], "Show the diff of", approvals.show)
  end,
  edit = function(arguments)
    with_approval(arguments[1], "Edit", function(item)
      local file = item.payload.files[1]
      local path = arguments[2] or (file and file.path)
      if path then
        approvals.edit(item, path)
      end
    end)
  end,
  log = function(arguments)
    local owner = connected()
    if owner then
      show_log(owner, tonumber(arguments[1]) or 200)
    end
  end,
  status = function()
    local owner = connected()
    if owner then
      show_status(owner)
    end
  end,
  undo = function(arguments)
    local owner = connected()
    if owner then
      undo(owner, arguments[1])
    end
  end,
  follow = function(arguments)
    local wanted = arguments[1]
    if wanted == "on" or wanted == "off" then
      config.current.follow = wanted == "on"
    else
      config.current.follow = not config.current.follow
    end
    client.tell(config.current.follow and "following what lands" or "following no more")
    vim.cmd.redrawstatus()
  end,
  start = client.start,
  stop = function()
    local owner = connected()
    if owner then
      stop(owner)
    end
  end,
}

local takes_id = { approve = true, deny = true, diff = true, edit = true }

local function complete(lead, line)
  local words = vim.split(line, "%s+", { trimempty = true })
  local position = #words + (lead == "" and 1 or 0)
  local offered = {}
  if position <= 2 then
    offered = vim.tbl_keys(subcommands)
  elseif position == 3 and takes_id[words[2]] then
    offered = vim.tbl_map(function(item)
      return item.payload.id
    end, approvals.list())
  elseif position == 3 and words[2] == "follow" then
    offered = { "on", "off" }
  end
  table.sort(offered)
  return vim.tbl_filter(function(word)
    return vim.startswith(word, lead)
  end, offered)
end

--- The subcommands that a key of the person's own may run, as `<Plug>(devtools-NAME)`.
local mappable = { "approvals", "approve", "deny", "diff", "edit", "follow", "undo" }

function M.define()
  for _, name in ipairs(mappable) do
    local words = "Devtools " .. name
    vim.keymap.set("n", ("<Plug>(devtools-%s)"):format(name), ("<Cmd>%s<CR>"):format(words), { desc = words })
  end
  vim.api.nvim_create_user_command("Devtools", function(given)
    local name = table.remove(given.fargs, 1) or "approvals"
    local run = subcommands[name]
    if not run then
      local known = vim.tbl_keys(subcommands)
      table.sort(known)
      return client.tell(("no %q; there are %s"):format(name, table.concat(known, ", ")), vim.log.levels.ERROR)
    end
    run(given.fargs)
  end, { nargs = "*", complete = complete, desc = "devtools-lsp: approvals, log, undo, follow mode" })
end

return M
