--- `:checkhealth devtools`: what is installed, what is connected, what the daemon says about itself.

local M = {}

local ANSWER_MS = 5000

local function check_program(config)
  local cmd = config.current.cmd
  if config.current.socket then
    return vim.health.info("a running daemon's socket is used: `cmd` is not")
  end
  if type(cmd) == "function" then
    return vim.health.info("`cmd` is a function of yours")
  end
  if vim.fn.executable(cmd[1]) == 0 then
    return vim.health.error(("%s is not executable"):format(cmd[1]), {
      "Install it with `pip install devtools-lsp`, or `pipx install devtools-lsp`.",
      "Or name it: require('devtools').setup({ cmd = { '/path/to/devtools-lsp', 'stdio' } })",
    })
  end
  local ok, result = pcall(function()
    return vim.system({ cmd[1], "--version" }, { text = true, timeout = ANSWER_MS }):wait()
  end)
  if ok and result.code == 0 then
    vim.health.ok(("%s: %s"):format(vim.fn.exepath(cmd[1]), vim.trim(result.stdout)))
  else
    vim.health.error(("%s --version failed"):format(cmd[1]), { ok and vim.trim(result.stderr) or tostring(result) })
  end
end

local function check_engine(engine)
  local words = ("engine %s: %s"):format(engine.id, engine.state)
  if type(engine.version) == "string" then
    words = words .. " (" .. engine.version .. ")"
  end
  if type(engine.reason) == "string" then
    vim.health.warn(words .. ": " .. engine.reason, { "`devtools-lsp doctor` says what to mend." })
  else
    vim.health.ok(words)
  end
end

local function check_client(client)
  local answer, problem = client:request_sync("devtools/status", vim.empty_dict(), ANSWER_MS)
  if not answer or answer.err then
    local why = problem or require("devtools.client").words_of(answer.err)
    return vim.health.error(("the daemon of %s does not answer: %s"):format(client.root_dir, why))
  end
  local status = answer.result
  vim.health.ok(("%s: devtools-lsp %s, pid %d"):format(status.root, status.version, status.pid))
  vim.health.info(
    ("gate: %s; %d waiting; editors: %d; agents: %d"):format(
      status.gate.mode,
      status.pendingApprovals,
      #status.editors,
      #status.agents
    )
  )
  vim.health.info("log: " .. vim.fs.joinpath(status.stateDir, "activity.jsonl"))
  if #status.engines == 0 then
    vim.health.warn("no engines are configured", { "`devtools-lsp init` finds what is installed." })
  end
  for _, engine in ipairs(status.engines) do
    check_engine(engine)
  end
  for _, words in ipairs(status.skipped) do
    vim.health.warn(type(words) == "string" and words or vim.inspect(words))
  end
end

function M.check()
  local client, config = require("devtools.client"), require("devtools.config")
  vim.health.start("devtools: this Neovim")
  if vim.fn.has("nvim-0.11") == 1 then
    vim.health.ok("Neovim " .. tostring(vim.version()))
  else
    vim.health.error("Neovim 0.11 or newer is needed", { "This one is " .. tostring(vim.version()) })
  end
  if vim.fn.exists(":Devtools") == 0 then
    vim.health.warn("setup() has not been called", { "Put require('devtools').setup() into your init.lua." })
  end
  check_program(config)
  if not config.current.autoread and not vim.go.autoread then
    vim.health.warn("files that agents write are not read again by themselves", { "Set autoread, here or in Neovim." })
  end

  vim.health.start("devtools: roots")
  local roots = client.roots()
  if #roots == 0 then
    vim.health.info("no file under a root is open (" .. table.concat(config.current.root_markers, ", ") .. ")")
  end
  for _, root in ipairs(roots) do
    if root.state ~= "connected" then
      vim.health.warn(
        ("%s: %s, %d failures in a row"):format(root.root, root.state, root.failures),
        { "Run `devtools-lsp doctor` there; :Devtools start tries again.", "What it said: " .. vim.lsp.get_log_path() }
      )
    end
  end
  for _, found in ipairs(client.all()) do
    check_client(found)
  end
end

return M
