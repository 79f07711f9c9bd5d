--- What can be set, and what is set. Knows nothing of the daemon.

local M = {}

---@class devtools.Config
---@field cmd string[]|fun(root: string): string[] what speaks LSP on its stdin and stdout; a list that ends with "stdio" gets `--root ROOT` after it
---@field socket? string|fun(root: string): string a running daemon's socket, instead of `cmd`
---@field root_markers string[] what marks a root: the nearest directory up that has one of these
---@field ask "notify"|"select"|false how a step that waits for you makes itself known
---@field autoread boolean a file that an agent wrote is read again when its buffer has no unsaved changes
---@field follow boolean jump to what lands
---@field highlight devtools.Highlight|false how landed lines are shown
---@field reconnect devtools.Reconnect

---@class devtools.Highlight
---@field bright_ms integer how long they are bright
---@field fading_ms integer how long they are dimmer after that
---@field label boolean the agent's name at the end of the first line of each range

---@class devtools.Reconnect
---@field first_ms integer the wait before the first try; each further one takes twice as long
---@field longest_ms integer
---@field give_up_after integer how many tries in a row may fail before somebody has to ask with `:Devtools start`

---@type devtools.Config
local defaults = {
  cmd = { "devtools-lsp", "stdio" },
  socket = nil,
  root_markers = { "devtools.toml", "pyproject.toml", ".git" },
  ask = "notify",
  autoread = true,
  follow = false,
  highlight = { bright_ms = 8000, fading_ms = 4000, label = true },
  reconnect = { first_ms = 300, longest_ms = 15000, give_up_after = 6 },
}

local function names_of(value)
  local names = vim.tbl_keys(value)
  table.sort(names)
  return table.concat(names, ", ")
end

local function refuse_unknown(given, known, where)
  for key in pairs(given) do
    if known[key] == nil and not (where == "setup" and key == "socket") then
      error(("devtools: %s has no option %q; it has %s"):format(where, tostring(key), names_of(known)), 0)
    end
  end
end

---@param given? table
---@return devtools.Config
function M.checked(given)
  given = given or {}
  vim.validate("options", given, "table")
  refuse_unknown(given, defaults, "setup")
  for _, part in ipairs({ "highlight", "reconnect" }) do
    if type(given[part]) == "table" then
      refuse_unknown(given[part], defaults[part], part)
    end
  end
  local config = vim.tbl_deep_extend("force", vim.deepcopy(defaults), given)
  vim.validate("cmd", config.cmd, { "table", "function" })
  vim.validate("socket", config.socket, { "string", "function" }, true)
  vim.validate("root_markers", config.root_markers, "table")
  vim.validate("ask", config.ask, function(value)
    return value == "notify" or value == "select" or value == false
  end, '"notify", "select" or false')
  vim.validate("autoread", config.autoread, "boolean")
  vim.validate("follow", config.follow, "boolean")
  vim.validate("highlight", config.highlight, function(value)
    return value == false
      or (type(value) == "table" and type(value.bright_ms) == "number" and type(value.fading_ms) == "number")
  end, "false, or a table with bright_ms and fading_ms")
  for name, value in pairs(config.reconnect) do
    vim.validate("reconnect." .. name, value, "number")
  end
  return config
end

--- In force. `setup` replaces it.
---@type devtools.Config
M.current = vim.deepcopy(defaults)

return M
