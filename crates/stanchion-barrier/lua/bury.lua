-- Places below zero are none: of parties whose lease ended before they were told of their round. The number is the negative ms of when that was
-- noticed. Who comes back after it learns here that it was not counted, whatever has become of the round (P5). For an hour, as a barrier.
local function bury(ms)
  -- Passes at maxmemory, and lets the rest pass (R8).
  call('ZREMRANGEBYSCORE', places, '(' .. string.format('%.0f', 3600000 - ms), '(0')
  for _, dead in ipairs(call('ZRANGE', places, 0, ms - 1, 'BYSCORE')) do
    call('ZADD', places, string.format('%.0f', -ms), dead)
  end
end
