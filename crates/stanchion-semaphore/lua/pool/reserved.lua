-- semaphore/reserved, for the scripts that hand permits over.

-- Returns whether a permit that is given up belongs to others: a request for several permits has its turn (see line_of_permits.lua), or the
-- total was lowered.
local function kept_for_others(free, us, line, wake)
  local waits, ends = unpack(redis.call('HMGET', wake, 'waits', 'ends'))
  return free < 0 or waits and waits ~= '' and us < ends + 0 and redis.call('ZSCORE', line, waits)
end

