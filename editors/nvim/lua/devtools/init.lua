--- devtools-lsp in Neovim: `require("devtools").setup()`. Puts the parts together; each is described in its own file.

local M = {}

local telling = false

--- Say that something changed; many changes at once are said once.
local function changed()
  if telling then
    return
  end
  telling = true
  vim.schedule(function()
    telling = false
    vim.api.nvim_exec_autocmds("User", { pattern = "DevtoolsChanged", modeline = false })
    vim.cmd.redrawstatus({ bang = true })
  end)
end

--- Attach to every file under a root, show what lands, ask what is to be asked. See `:help devtools-options`.
---@param options? devtools.Config
function M.setup(options)
  if vim.fn.has("nvim-0.11") == 0 then
    error("devtools: Neovim 0.11 or newer is needed", 0)
  end
  local config = require("devtools.config")
  config.current = config.checked(options)

  local approvals = require("devtools.approvals")
  local client = require("devtools.client")
  local landed = require("devtools.landed")

  landed.define_highlights()
  approvals.configure(changed)
  client.configure({
    handlers = {
      ["devtools/approvalRequested"] = approvals.requested,
      ["devtools/approvalUpdated"] = approvals.updated,
      ["devtools/approvalResolved"] = approvals.resolved,
      ["devtools/landed"] = landed.handle,
      ["devtools/showDiff"] = approvals.show_diff,
      ["devtools/stopping"] = client.stopping,
    },
    changed = changed,
    gone = approvals.forget_client,
  })

  local group = vim.api.nvim_create_augroup("devtools", { clear = true })
  vim.api.nvim_create_autocmd({ "BufReadPost", "BufNewFile", "BufFilePost", "BufWritePost" }, {
    group = group,
    desc = "devtools: attach files under a root, whatever their type",
    callback = function(event)
      -- Later than what others do at this event, so that the file's type is known when the client tells of it.
      vim.schedule(function()
        client.attach(event.buf)
      end)
    end,
  })
  vim.api.nvim_create_autocmd({ "BufReadPost", "FileChangedShellPost" }, {
    group = group,
    callback = function(event)
      landed.restore(event.buf)
    end,
  })
  vim.api.nvim_create_autocmd("ColorScheme", { group = group, callback = landed.define_highlights })
  vim.api.nvim_create_autocmd("VimLeavePre", { group = group, callback = client.leave })
  require("devtools.commands").define()

  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    client.attach(buffer)
  end
end

--- For a status line: "" where nothing is attached, else "devtools", what waits, and whether the daemon is away.
---@return string
function M.statusline()
  return require("devtools.statusline").text()
end

return M
