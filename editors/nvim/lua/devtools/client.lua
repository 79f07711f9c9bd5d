--- One LSP client for each root: which buffers it gets, and how it comes back after the daemon was lost.
---
--- Hands notifications on to whoever `configure` named. Knows nothing of approvals or of what lands.

local config = require("devtools.config")

local M = { NAME = "devtools" }

local STABLE_MS = 5000 -- A connection that lived this long ends the count of failures.
local WATCH_MS = 1000 -- How often it is looked whether somebody has started a stopped daemon.

---@class devtools.Root
---@field wanted boolean whether it should be connected
---@field failures integer how many connections in a row did not live long
---@field client_id? integer
---@field since integer when the present connection began, in milliseconds
---@field timer? uv.uv_timer_t the next try, or the next look whether a stopped daemon is back

---@type table<string, devtools.Root>
local roots = {}
local leaving = false
local handlers = {}
local on_change = function() end
local on_gone = function(_client_id) end

---@param parts { handlers: table<string, function>, changed: function, gone: fun(client_id: integer) }
function M.configure(parts)
  handlers, on_change, on_gone = parts.handlers, parts.changed, parts.gone
end

local function tell(message, level)
  vim.notify("devtools: " .. message, level or vim.log.levels.INFO)
end

M.tell = tell

local function as_list(value)
  return type(value) == "table" and value or { value }
end

local function real(path)
  return path and (vim.uv.fs_realpath(path) or vim.fs.normalize(path))
end

--- The root that a directory belongs to, or nil. `/` and the home directory are none: the daemon refuses them.
---@param directory string
---@return string?
function M.root_above(directory)
  local found = vim.fs.find(config.current.root_markers, { path = directory, upward = true, limit = 1 })[1]
  local root = found and vim.fs.dirname(found)
  if not root or real(root) == "/" or real(root) == real(vim.uv.os_homedir()) then
    return nil
  end
  return root
end

--- The root of a buffer that shows a file, or nil.
---@param buffer integer
---@return string?
function M.root_of(buffer)
  local name = vim.api.nvim_buf_get_name(buffer)
  if name == "" or vim.bo[buffer].buftype ~= "" or name:match("^%a[%w+.-]*://") then
    return nil
  end
  return M.root_above(vim.fs.dirname(vim.fn.fnamemodify(name, ":p")))
end

local function buffers_of(root)
  return vim.tbl_filter(function(buffer)
    return vim.api.nvim_buf_is_loaded(buffer) and M.root_of(buffer) == root
  end, vim.api.nvim_list_bufs())
end

local function cancel_timer(state)
  if state.timer then
    state.timer:stop()
    state.timer:close()
    state.timer = nil
  end
end

local begin

local function retry_later(root, state)
  if leaving or not state.wanted or state.timer then
    return
  end
  local limits = config.current.reconnect
  if state.failures >= limits.give_up_after then
    state.wanted = false
    tell(
      ("%s could not be reached %d times in a row; :checkhealth devtools says more, :Devtools start tries again"):format(
        root,
        state.failures
      ),
      vim.log.levels.WARN
    )
    on_change()
    return
  end
  local wait_ms = math.min(limits.longest_ms, limits.first_ms * 2 ^ state.failures)
  state.timer = assert(vim.uv.new_timer())
  state.timer:start(
    wait_ms,
    0,
    vim.schedule_wrap(function()
      cancel_timer(state)
      for _, buffer in ipairs(buffers_of(root)) do
        begin(root, state, buffer)
      end
      on_change()
    end)
  )
end

local function lost(root, state, client_id)
  if state.client_id ~= client_id then
    return
  end
  local lived_ms = vim.uv.now() - state.since
  state.client_id = nil
  state.failures = lived_ms >= STABLE_MS and 0 or state.failures + 1
  on_gone(client_id)
  on_change()
  retry_later(root, state)
end

local function command(root)
  local cmd = config.current.cmd
  if type(cmd) == "function" then
    return cmd(root)
  end
  return cmd[#cmd] == "stdio" and vim.list_extend(vim.list_slice(cmd), { "--root", root }) or cmd
end

---@return vim.lsp.ClientConfig
local function client_config(root, state, cmd)
  local given = vim.deepcopy(vim.lsp.config[M.NAME] or {})
  local init_options = { devtools = { showDiff = true, approvals = true } }
  local extra_init, extra_exit = given.on_init, given.on_exit
  given.name = M.NAME
  given.cmd = given.cmd or cmd
  given.root_dir = root
  given.init_options = vim.tbl_deep_extend("force", init_options, given.init_options or {})
  given.handlers = vim.tbl_extend("keep", given.handlers or {}, handlers)
  given.on_init = vim.list_extend({ on_change }, as_list(extra_init))
  given.on_exit = vim.list_extend({
    function(_, _, client_id)
      vim.schedule(function()
        lost(root, state, client_id)
      end)
    end,
  }, as_list(extra_exit))
  return given
end

local function start(root, state, buffer)
  local fresh = state.client_id == nil
  local socket = config.current.socket
  local path = type(socket) == "function" and socket(root) or socket --[[@as string?]]
  local cmd = path and vim.lsp.rpc.connect(path) or command(root)
  state.since = fresh and vim.uv.now() or state.since
  local id = vim.lsp.start(client_config(root, state, cmd), {
    bufnr = buffer,
    reuse_client = function(client)
      return client.id == state.client_id
    end,
  })
  if not id then
    state.failures = state.failures + 1
    retry_later(root, state)
    return
  end
  state.client_id = id
  if fresh then
    on_change()
  end
end

--- Connect to a Unix socket, or say why that fails: Neovim's own `rpc.connect` keeps a dead client in that case.
local function reachable(path, answer)
  local pipe = assert(vim.uv.new_pipe(false))
  pipe:connect(path, function(problem)
    pipe:close()
    vim.schedule(function()
      answer(problem)
    end)
  end)
end

function begin(root, state, buffer)
  local socket = config.current.socket
  if not socket or state.client_id then
    return start(root, state, buffer)
  end
  local path = type(socket) == "function" and socket(root) or socket --[[@as string]]
  reachable(path, function(problem)
    if problem then
      state.failures = state.failures + 1
      retry_later(root, state)
    elseif state.wanted and vim.api.nvim_buf_is_loaded(buffer) then
      start(root, state, buffer)
    end
  end)
end

--- Attach a buffer, when it shows a file under a root; starts the client, and with it the daemon, when none runs.
---@param buffer integer
function M.attach(buffer)
  if leaving or not vim.api.nvim_buf_is_loaded(buffer) then
    return
  end
  local root = M.root_of(buffer)
  if not root then
    return
  end
  local state = roots[root] or { wanted = true, failures = 0, since = 0 }
  roots[root] = state
  if state.wanted and not state.timer then
    begin(root, state, buffer)
  end
end

--- Attach everything that is open, also where somebody had stopped it or trying was given up.
function M.start()
  for _, state in pairs(roots) do
    cancel_timer(state)
    state.wanted, state.failures = true, 0
  end
  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    M.attach(buffer)
  end
end

--- Attach again when somebody else has started the daemon.
local function watch_for(socket, root, state)
  cancel_timer(state)
  state.timer = assert(vim.uv.new_timer())
  state.timer:start(
    WATCH_MS,
    WATCH_MS,
    vim.schedule_wrap(function()
      if state.timer and not state.client_id and vim.uv.fs_stat(socket) then
        cancel_timer(state)
        state.wanted, state.failures = true, 0
        for _, buffer in ipairs(buffers_of(root)) do
          M.attach(buffer)
        end
      end
    end)
  )
end

--- `devtools/stopping` {reason, socket}: somebody ends the daemon on purpose. We do not start it again by ourselves.
function M.stopping(_, params, context)
  for root, state in pairs(roots) do
    if state.client_id == context.client_id then
      state.wanted = false
      watch_for(params.socket, root, state)
      tell(("%s (%s); :Devtools start brings it back"):format(params.reason, root))
      on_change()
    end
  end
end

--- Neovim ends: nothing is started again.
function M.leave()
  leaving = true
  for _, state in pairs(roots) do
    cancel_timer(state)
  end
end

--- Every initialized client of ours.
---@return vim.lsp.Client[]
function M.all()
  return vim.lsp.get_clients({ name = M.NAME })
end

--- The client that a command means: the current buffer's, that of the current directory's root, or the only one.
---@return vim.lsp.Client?
function M.current()
  local own = vim.lsp.get_clients({ name = M.NAME, bufnr = 0 })[1]
  if own then
    return own
  end
  local all, root = M.all(), M.root_above(vim.uv.cwd() or ".")
  for _, client in ipairs(all) do
    if client.root_dir == root then
      return client
    end
  end
  return #all == 1 and all[1] or nil
end

--- What is known of each root, for the status line and the health check.
---@return { root: string, state: "connected"|"connecting"|"waiting"|"stopped", failures: integer }[]
function M.roots()
  local shown = {}
  for root, state in vim.spairs(roots) do
    local client = state.client_id and vim.lsp.get_client_by_id(state.client_id)
    local word = "connecting"
    if client and client.initialized then
      word = "connected"
    elseif not state.wanted then
      word = "stopped"
    elseif state.timer then
      word = "waiting"
    end
    shown[#shown + 1] = { root = root, state = word, failures = state.failures }
  end
  return shown
end

--- What an error of the daemon says to a person.
function M.words_of(problem)
  local data = type(problem.data) == "table" and problem.data or {}
  return data.message or problem.message or vim.inspect(problem)
end

--- One request. An error is shown, unless `on_error` takes it.
---@param client vim.lsp.Client
---@param on_result fun(result: any)
---@param on_error? fun(problem: table)
---@return integer? request_id
function M.request(client, method, params, on_result, on_error)
  -- An empty Lua table would go out as an array.
  local given = params and next(params) and params or vim.empty_dict()
  local sent, request_id = client:request(method, given, function(problem, result)
    if not problem then
      on_result(result)
    elseif on_error then
      on_error(problem)
    else
      tell(M.words_of(problem), vim.log.levels.ERROR)
    end
  end)
  if not sent then
    tell("the daemon is not connected; it is tried again by itself, or with :Devtools start", vim.log.levels.WARN)
    return nil
  end
  return request_id
end

return M
