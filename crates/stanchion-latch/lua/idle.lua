-- latch/idle, behind counted.lua, for the scripts that use a latch.
--
-- The string `idle` stands beside a latch that ends when nobody uses it: "<ms> <end>", its idle time and the end of its TTL by the server's
-- clock, in ms. It outlives the count, so that who waited can tell that end from zero: Redisson removes the count alone, and before the end.

-- The time in ms for which `idle` outlives the count, as the mark of a delete.
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

-- Notes that a latch is used: it lives for its idle time from now, and for `least` ms, if it is one that ends. Nothing shortens its TTL (R3).
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

-- Returns when a latch that is not there has ended because nobody used it, in ms; nil if it has not.
local function ended(idle)
  local ends = string.match(redis.call('GET', idle) or '', '^%d+ (%d+)$')
  if not ends then return nil end
  local time = redis.call('TIME')
  -- Before its end it was counted down, or deleted, by Redisson. TIME may be some ms ahead of the clock by which keys expire in a script.
  if (time[1] * 1000000 + time[2]) / 1000 < ends - 5 then return nil end
  return ends + 0
end

