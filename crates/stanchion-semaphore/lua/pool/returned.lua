-- semaphore/returned, for the scripts that give permits back, behind line.lua.

-- Serves the queue after `owner` has given its permits back. With `quits`, removes its entry, which wanted `count` permits. Returns the
-- reply of a release. `all`: all permits were held; `some`: at least one.
local function returned(us, owner, count, all, quits, some)
  local entry = owner .. '=' .. count
  local stood = false
  -- Errors do not undo a release (R15).
  if quits then
    local done, was = pcall(function()
      local was, head = quit(entry)
      if not was then return false end
      leaves_queue(owner)
      -- L4, L9: the new head must poll.
      if head or relay_left then tell_next(-1) end
      return true
    end)
    stood = done and was
  end
  if not all and not some and not stood then return -2 end
  if free <= 0 then
    pcall(function() return first() or forget() end)
    return (all or stood and not some) and 0 or -2
  end
  before = free - (all and count or 0)
  local told, _, more = pass(us)
  return unless_unfinished((all or stood and not some) and told or -2, more)
end
