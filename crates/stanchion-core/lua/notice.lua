-- Messages to the processes that hold. Each listens on `notice` with its client uuid behind it. Needs the locals `call`, `publish` and
-- `notice`, and `holders`, fields of the lock's hash. R14: through pcall, last; without the right the holders learn of it later.

-- Says `<word> <numbers>` and `rest` to each: the numbers are those of its owners, with commas between them.
-- Returns how many hold, and how many processes heard it.
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

