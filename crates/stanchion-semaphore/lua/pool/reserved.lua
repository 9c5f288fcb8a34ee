-- semaphore/reserved, for the scripts that give permits up.

-- Returns whether clients of Redisson's wait: see `others` in line.lua.
local function redisson_waits(base, publish)
  local counted = redis.pcall('PUBSUB', publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', base, base .. ':stanchion')
  return counted.err or counted[2] > counted[4]
end

-- Returns whether a permit that is given up belongs to others: a request for several permits has its turn (see line_of_permits.lua), or the
-- total was lowered, or clients of Redisson's wait. With an empty `base` these are not counted.
local function kept_for_others(free, us, line, wake, base, publish)
  if base ~= '' and redisson_waits(base, publish) then return true end
  local waits, ends = unpack(redis.call('HMGET', wake, 'waits', 'ends'))
  return free < 0 or waits and waits ~= '' and us < ends + 0 and redis.call('ZSCORE', line, waits)
end

