-- latch/arm
-- Set the count of a latch that is open.
--
-- KEYS[1]  latch      string  the count (Redisson's layout). Without `idle` no TTL: it stays until it is counted down or deleted
-- KEYS[2]  once       string  the answer of this operation; expires when it is late
-- KEYS[3]  deleted    string  the mark of a delete
-- KEYS[4]  idle       string  see idle.lua
-- ARGV[1]  count      above 0
-- ARGV[2]  not_after  server time in microseconds; later the script refuses
-- ARGV[3]  channel
-- ARGV[4]  publish    PUBLISH or SPUBLISH
-- ARGV[5]  idle       ms without use after which the latch ends; 0: never. No effect on a latch that is armed already
--
-- Returns  1 armed, 0 it was armed before, -1 late
-- Replay   gives the answer of the first run, also when the latch has been counted down since (P6, R13)
-- Wakes    no waiter: payload 1 closes the gates of Redisson's waiters
-- Cost     O(1)
-- A value of another kind under this name is an error, and stays untouched (R16).
local count = count_in(KEYS[1])
local answered = redis.call('GET', KEYS[2])
if answered then return answered + 0 end
local time = redis.call('TIME')
local late = time[1] * 1000000 + time[2] > ARGV[2] + 0
if count then
  used(KEYS[1], KEYS[4], 0)
  -- A duplicate that arrives when the latch is open must not arm it. The DEL passes at maxmemory, and then the SET passes, too (R8).
  redis.call('DEL', KEYS[2])
  if not late then redis.call('SET', KEYS[2], '0', 'PXAT', string.sub(ARGV[2], 1, -4)) end
  return 0
end
if late then return -1 end

-- First, because it is refused at maxmemory, and then the script has written nothing.
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[3], KEYS[4])
if ARGV[5] ~= '0' then lives(KEYS[1], KEYS[4], ARGV[5] + 0, ARGV[5] + 0) end
-- The key lives through the millisecond of not_after: a resent request finds it, or is late (R13).
redis.call('SET', KEYS[2], '1', 'PXAT', string.sub(ARGV[2], 1, -4))
redis.pcall(ARGV[4], ARGV[3], '1')
return 1
