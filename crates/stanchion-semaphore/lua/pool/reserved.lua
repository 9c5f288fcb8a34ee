-- semaphore/reserved, for the scripts that hand permits over.

-- Returns whether a permit that is given up belongs to others: a request for several permits has its turn (see line_of_permits.lua), or the
-- total was lowered, or clients of Redisson's wait. With an empty `base` these are not counted.
local function kept_for_others(free, us, line, wake, base, publish)
  if base ~= '' then
    local counted = redis.pcall('PUBSUB', publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', base, base .. ':stanchion')
    if counted.err or counted[2] > counted[4] then return true end
  end
  local waits, ends = unpack(redis.call('HMGET', wake, 'waits', 'ends'))
  return free < 0 or waits and waits ~= '' and us < ends + 0 and redis.call('ZSCORE', line, waits)
end

