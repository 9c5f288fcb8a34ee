-- latch/idle, behind counted.lua, for the scripts that use a latch.
--
-- The string `idle` of an ephemeral latch is "<ms> <end>": the idle time, and the end of the latch's TTL by the server's clock, in ms.
-- The string outlives the count, so that a waiter can distinguish expiry from zero: Redisson removes only the count, and before the end.

-- The time in ms for which `idle` outlives the count: as long as the mark of a delete.
local MARK = 60000

-- Lets a latch live for `ttl` ms from now.
local function lives(latch, idle, ms, ttl)
  local time = redis.call('TIME')
  local ends = math.floor((time[1] * 1000000 + time[2]) / 1000) + ttl
  -- First, because it passes at maxmemory and lets the rest pass (R8).
  redis.call('PEXPIRE', latch, string.format('%.0f', ttl))
  local text = string.format('%.0f %.0f', ms, ends)
  redis.call('SET', idle, text, 'PX', string.format('%.0f', ttl + MARK))
end

-- Records a use of a latch: an ephemeral latch lives for its idle time from now, and for at least `least` ms. Nothing shortens its TTL (R3).
local function used(latch, idle, least)
  local ms = string.match(redis.call('GET', idle) or '', '^(%d+) %d+$')
  if not ms then return end
  local left = redis.call('PTTL', latch)
  -- Without a TTL it is another latch, which Redisson has armed since.
  if left < 0 then
    redis.call('DEL', idle)
    return
  end
  local ttl = math.max(ms + 0, least)
  if ttl > left then lives(latch, idle, ms, ttl) end
end

-- Returns the time in ms at which a missing latch expired; nil if the latch did not expire.
local function ended(idle)
  local ends = string.match(redis.call('GET', idle) or '', '^%d+ (%d+)$')
  if not ends then return nil end
  local time = redis.call('TIME')
  -- If its end is still to come, Redisson counted it down or deleted it. TIME may be some ms ahead of the clock that expires keys in a script.
  if (time[1] * 1000000 + time[2]) / 1000 < ends - 5 then return nil end
  return ends + 0
end

