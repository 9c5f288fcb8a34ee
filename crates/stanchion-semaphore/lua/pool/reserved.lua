-- semaphore/reserved, for the scripts that give permits up.

-- Returns whether clients of Redisson's wait: see `others` in line.lua.
local function redisson_waits(base, publish)
  local counted = redis.pcall('PUBSUB', publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', base, base .. ':stanchion')
  return counted.err or counted[2] > counted[4]
end

-- Returns whether other processes wait, after the turn of the process `client`: with an entry, in the queue of the other kind of permits,
-- which has a relay, or outside the queue. `hears`: this process is subscribed to `base`.
local function others_wait(line, client, base, publish, hears)
  local counted = redis.pcall('PUBSUB', publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', base)
  if counted.err or counted[2] > hears + 0 then return true end
  -- P11: a process has an entry for each number of permits that its waiters want.
  local entries = redis.call('ZRANGE', line, 0, 8)
  for _, entry in ipairs(entries) do
    if string.sub(entry, 1, 36) ~= client then return true end
  end
  return #entries > 8
end

-- Returns whether a permit that is given up belongs to others: they wait, or a request for several permits has its turn (see
-- line_of_permits.lua), or the total was lowered. `yields`: '' only these two count; 'outside' clients of Redisson's, too; otherwise the
-- uuid of this process, whose turn is over.
local function kept_for_others(free, us, line, wake, base, publish, yields, hears)
  if yields == 'outside' then
    if redisson_waits(base, publish) then return true end
  elseif yields ~= '' and others_wait(line, yields, base, publish, hears) then
    return true
  end
  local waits, ends = unpack(redis.call('HMGET', wake, 'waits', 'ends'))
  return free < 0 or waits and waits ~= '' and us < ends + 0 and redis.call('ZSCORE', line, waits)
end

