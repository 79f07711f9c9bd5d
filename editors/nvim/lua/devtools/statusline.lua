--- One short text for a status line.

local M = {}

---@return string
function M.text()
  local client = require("devtools.client")
  local roots = client.roots()
  if #roots == 0 then
    return ""
  end
  local words = { "devtools" }
  local waiting = require("devtools.approvals").count()
  if waiting > 0 then
    words[#words + 1] = ("%d waiting"):format(waiting)
  end
  local away = {}
  for _, root in ipairs(roots) do
    if root.state ~= "connected" then
      away[root.state == "stopped" and "stopped" or "connecting"] = true
    end
  end
  for _, word in ipairs({ "connecting", "stopped" }) do
    if away[word] then
      words[#words + 1] = word
    end
  end
  if require("devtools.config").current.follow then
    words[#words + 1] = "following"
  end
  return table.concat(words, " · ")
end

return M
