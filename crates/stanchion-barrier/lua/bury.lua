-- A score below zero marks a dead place, which does not count: the lease ended before the party learned of its round. The score is minus the
-- server ms at which this was noticed. For an hour, a party that comes back learns here that it was not counted, whatever became of the round (P5).
local function bury(ms)
  -- Allowed at maxmemory, and makes Redis allow the writes after it (R8).
  call('ZREMRANGEBYSCORE', places, '(' .. string.format('%.0f', 3600000 - ms), '(0')
  for _, dead in ipairs(call('ZRANGE', places, 0, ms - 1, 'BYSCORE')) do
    call('ZADD', places, string.format('%.0f', -ms), dead)
  end
end
