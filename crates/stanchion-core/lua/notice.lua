-- Messages to the holders' processes. Each is subscribed to `notice` followed by its client uuid. The function needs the locals `publish`,
-- `notice` and `holders` (fields of the lock's hash). R14: sent last and through pcall, because the user may have no right to publish.

-- Sends `<word> <numbers>` and `rest` to each process: the numbers of its owners, separated by commas.
-- Returns the number of holders, and the number of receivers.
local function tell_holders(word, rest)
  local held, heard, clients, numbers = 0, 0, {}, {}
  for _, field in ipairs(holders) do
    local client, number = string.match(field, '^([%x%-]+):(%d+)')
    if client then
      held = held + 1
      if numbers[client] then
        numbers[client] = numbers[client] .. ',' .. number
      else
        numbers[client] = number
        clients[#clients + 1] = client
      end
    end
  end
  for _, client in ipairs(clients) do
    local told = redis.pcall(publish, notice .. client, word .. ' ' .. numbers[client] .. rest)
    if type(told) == 'number' then heard = heard + told end
  end
  return held, heard
end

