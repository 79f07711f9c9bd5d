-- Attaches to a daemon's socket as any LSP client would, and does what a person does; prints one JSON line a fact.
-- usage: nvim --headless -u NONE -i NONE -n -l attach.lua SOCKET FILE GO, where the files GO1 and GO2 let it go on
local socket, file, go = arg[1], arg[2], arg[3]
local function say(fact) io.stdout:write(vim.json.encode(fact) .. "\n"); io.stdout:flush() end
local function wait(what, condition)
  if not vim.wait(15000, condition, 10) then say({ timeout = what }); os.exit(1) end
end

local asked = {}
vim.ui.select = function(items, options, choose)
  asked[#asked + 1] = { kind = options.kind, prompt = options.prompt }
  for index, item in ipairs(items) do
    local title = options.format_item and options.format_item(item) or item.title or item
    if vim.startswith(title, "Approve") then return choose(item, index) end
  end
  choose(nil, nil)
end

vim.cmd("filetype on")
vim.cmd.edit(file)
local id = vim.lsp.start({ name = "devtools", cmd = vim.lsp.rpc.connect(socket), root_dir = vim.fs.dirname(file) })
local client = vim.lsp.get_client_by_id(id)
wait("attached", function() return client.initialized end)
say({ encoding = client.offset_encoding })

wait("mark", function() return #vim.diagnostic.get(0) > 0 end)
local mark = vim.diagnostic.get(0)[1]
say({ mark = { lnum = mark.lnum, col = mark.col, end_lnum = mark.end_lnum, end_col = mark.end_col, code = mark.code,
  source = mark.source, data = mark.user_data.lsp.data, message = mark.message } })

vim.api.nvim_win_set_cursor(0, { mark.lnum + 1, 0 })
vim.lsp.buf.code_action({ apply = true, filter = function(action) return action.title:find("^Approve") ~= nil end })
wait("gone", function() return #vim.diagnostic.get(0) == 0 end)
say({ approved = true })

wait("question", function() return #asked > 0 end)
say({ asked = asked[1] })

vim.api.nvim_buf_set_lines(0, 0, 0, false, { "typed 😀" })
say({ typed = true })
wait("go 1", function() return vim.uv.fs_stat(go .. "1") end)
vim.cmd("silent write")
say({ saved = true })
wait("go 2", function() return vim.uv.fs_stat(go .. "2") end)
client:stop()
wait("stopped", function() return client:is_stopped() end)
say({ stopped = true })
