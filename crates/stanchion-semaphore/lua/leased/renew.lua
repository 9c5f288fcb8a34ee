-- leased/renew
-- Lengthen the leases of many permits, and the lives of semaphores that end with them. Items are independent.
--
-- KEYS[3i-2]   the leases with permit i
-- KEYS[3i-1]   the number of free permits, and
-- KEYS[3i]     idle, see idle.lua; both the leases again in a slot in migration, where they may be on another node
-- ARGV[1]      not_after, server time in microseconds: a run after it does nothing
-- ARGV[2i]     id of permit i
-- ARGV[2i+1]   its lease in milliseconds
--
-- Returns  array: for each permit 1 renewed, 0 no longer held, -1 the server refused this key; or the number -1: late
-- Replay   harmless: a lease is only ever lengthened
-- Wakes    no waiter
-- Cost     O(log n) for each permit
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
if now > ARGV[1] + 0 then return -1 end
local ms = math.floor(now / 1000)
-- This ZREM removes no member, but passes at maxmemory, and then ZADD passes, too (R8).
redis.pcall('ZREM', KEYS[1], '')

-- Lets a semaphore outlive a lease of `lease` ms from now, or raises the server's error. Returns whether the semaphore does.
local function outlives(leases, free, idle, lease)
  if idle == leases then
    local left = redis.call('PTTL', leases)
    return left < 0 or left >= lease
  end
  local it = { free = free, held = leases, idle = idle, plain = false }
  local ends = idle_of(it)
  if ends then used(it, ends, 0, ends.ms + lease) end
  return true
end

-- leases key -> the ms that its semaphore outlives.
local outlived = {}
local result = {}
for i = 1, #KEYS / 3 do
  local leases, id, lease = KEYS[3 * i - 2], ARGV[2 * i], ARGV[2 * i + 1] + 0
  local ends = redis.pcall('ZSCORE', leases, id)
  if not ends then
    result[i] = 0
  elseif type(ends) ~= 'string' then
    result[i] = -1
  else
    -- P1: no lease outlasts the semaphore, which would be created again with all its permits.
    if lease > (outlived[leases] or 0) then
      local done, lives = pcall(outlives, leases, KEYS[3 * i - 1], KEYS[3 * i], lease)
      if done and lives then outlived[leases] = lease end
    end
    -- P10, rule R3: GT, so that a late duplicate never shortens.
    local set = lease <= (outlived[leases] or 0) and redis.pcall('ZADD', leases, 'XX', 'GT', string.format('%.0f', ms + lease), id)
    result[i] = type(set) == 'number' and 1 or -1
  end
end
return result
