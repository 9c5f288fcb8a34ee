-- semaphore/reclaim
-- Give back the permits of an owner that will not release them. For operators.
--
-- Free and held permits together never exceed the total, if it is known (see total.lua). Permits beyond it were held of an earlier
-- semaphore, which Redisson has deleted and created again. No other record distinguishes the two.
--
-- KEYS[1]  free       string      the number of free permits
-- KEYS[2]  ledger     hash        owner -> permits
-- KEYS[3]  once       string      the result; expires with not_after
-- KEYS[4]  total      string      see total.lua
-- KEYS[5]  line       sorted set  entry -> arrival; see line.lua
-- KEYS[6]  idle       string      see idle.lua
-- ARGV[1]  owner
-- ARGV[2]  not_after  server time in microseconds; later the script refuses
-- ARGV[3]  channel
-- ARGV[4]  publish    PUBLISH or SPUBLISH
--
-- Returns  { 1 done, permits given back }, { -1 late, 0 }
-- Replay   the once key has the result
-- Wakes    the queue, by semaphore/tend; Redisson's clients
-- Cost     O(holders)
local answer = before(KEYS[3], ARGV[2])
if answer then return answer end
local free, exists = free_in(KEYS[1])
if not exists then
  redis.call('DEL', KEYS[2])
  return done(KEYS[3], ARGV[2], 0)
end
local held = redis.call('HGET', KEYS[2], ARGV[1])
if not held then return done(KEYS[3], ARGV[2], 0) end
local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[6], plain = true }
local idle = idle_of(it)
local total, sum = idle and idle.total or redis.call('GET', KEYS[4]), free
-- First, because it passes at maxmemory and lets the rest pass (R8).
redis.call('HDEL', KEYS[2], ARGV[1])
local given = held + 0
if total then
  for _, permits in ipairs(redis.call('HVALS', KEYS[2])) do sum = sum + permits end
  given = math.max(0, math.min(given, total - sum))
end
if given > 0 then
  free = redis.pcall('INCRBY', KEYS[1], given)
  if type(free) ~= 'number' then
    -- R15: no permit is lost.
    redis.pcall('HSET', KEYS[2], ARGV[1], held)
    return free
  end
end
if idle then used(it, idle, free, 0) end
answer = done(KEYS[3], ARGV[2], given)
if given <= 0 then return answer end
return announced(answer, free, KEYS[5], ARGV[3], ARGV[4])
