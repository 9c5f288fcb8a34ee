-- semaphore/idle, for the scripts that use a semaphore.
--
-- The string `idle` belongs to a semaphore that ends when it is not used. Leased: "<ms>", its idle time. Plain: "<ms> <total> <till>", also
-- the number of free and held permits, and the server ms until which a waiter keeps the semaphore. The semaphore has a TTL, and so have
-- this key and the leases. Without a TTL the semaphore does not end: Redisson has created it again, or changed its number.
--
-- `it`: the keys free, held and idle, and whether the permits are plain. `idle`: the content of the string, and the TTL.

-- The TTL while a plain permit is held, because plain permits are not renewed; also the longest TTL. A TTL must exist: see above.
local HELD = 315360000000

-- Returns nil if the semaphore does not end.
local function idle_of(it)
  local ms, total, till = string.match(redis.call('GET', it.idle) or '', '^(%d+) ?(%-?%d*) ?(%d*)$')
  -- A semaphore of the other kind is left to the scripts of that kind.
  if not ms or it.plain ~= (till ~= '') then return nil end
  local left = redis.call('PTTL', it.free)
  if left < 0 then
    redis.call('DEL', it.idle)
    return nil
  end
  return { ms = ms + 0, total = tonumber(total), till = tonumber(till), left = left }
end

-- Makes the semaphore that `made` describes, "<ms> <permits>". Returns the number of its permits.
local function make(it, made)
  local ms, permits = string.match(made, '^(%d+) (%d+)$')
  -- First, because it is refused at maxmemory, and then the script has written nothing.
  redis.call('SET', it.free, permits, 'PX', ms)
  redis.call('SET', it.idle, it.plain and made .. ' 0' or ms, 'PX', ms)
  -- Holders of a former semaphore of this name hold no permits of this one.
  redis.call('DEL', it.held)
  return permits + 0
end

-- Lets the semaphore live for `ttl` ms from now.
local function lives(it, idle, ttl)
  idle.left = ttl
  ttl = string.format('%.0f', ttl)
  -- First, because the others may not outlive it, and because it passes at maxmemory and lets the rest pass (R8).
  redis.call('PEXPIRE', it.free, ttl)
  if it.plain then
    redis.call('SET', it.idle, string.format('%.0f %.0f %.0f', idle.ms, idle.total, idle.till), 'PX', ttl)
  else
    redis.call('PEXPIRE', it.idle, ttl)
    redis.call('PEXPIRE', it.held, ttl)
  end
end

-- Lets the semaphore live while the plain permit is held that the script takes next.
local function holds(it, idle)
  if idle.left < HELD / 2 then lives(it, idle, HELD) end
end

-- Records a use that leaves `free` permits. The semaphore lives for its idle time from now, for `least` ms, and while a plain permit is
-- held. The TTL of leased permits is never shortened (R3): it covers every lease since its grant or renewal.
local function used(it, idle, free, least)
  local time = redis.call('TIME')
  local ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
  if it.plain then
    if least > 0 then idle.till = math.max(idle.till, ms + least) end
    -- Redisson's holders are in no ledger.
    local held = free < idle.total or redis.call('EXISTS', it.held) == 1
    lives(it, idle, held and HELD or math.max(idle.ms, idle.till - ms))
  else
    -- Redisson's leases are not renewed with the semaphore, and some never end.
    local last = redis.call('ZRANGE', it.held, -1, -1, 'WITHSCORES')[2] or 0
    local ttl = math.min(HELD, math.max(least, idle.ms + math.max(0, last - ms)))
    if ttl > idle.left then lives(it, idle, ttl) end
  end
end

-- Records a use, if the semaphore ends.
local function touch(it, free)
  local idle = idle_of(it)
  if idle then used(it, idle, free, 0) end
end

