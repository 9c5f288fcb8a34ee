-- latch/count_down
-- Subtract from the count. At zero the latch opens, and its waiters get a message.
--
-- KEYS[1]  latch      string  the count (Redisson's layout)
-- KEYS[2]  once       string  the answer of this operation; expires when it is late
-- KEYS[3]  idle       string  see idle.lua
-- ARGV[1]  by         above 0
-- ARGV[2]  not_after  server time in microseconds; later the script refuses
-- ARGV[3]  channel
-- ARGV[4]  publish    PUBLISH or SPUBLISH
--
-- Returns  >= 0 the count that is left (0: open, now or before), -1 late
-- Replay   gives the answer of the first run, and subtracts nothing (P6, R13)
-- Wakes    every waiter, at zero only: payload 0, as Redisson
-- Cost     O(1) and the server's delivery to the subscribers
-- A value of another kind under this name is an error, and stays untouched (R16).
local count = count_in(KEYS[1])
local answered = redis.call('GET', KEYS[2])
if answered then return answered + 0 end
local time = redis.call('TIME')
local late = time[1] * 1000000 + time[2] > ARGV[2] + 0
if late then return count and -1 or 0 end

-- Removes nothing, passes at maxmemory, and lets SET and DECRBY pass (R8).
redis.call('DEL', KEYS[2])
if not count then
  -- A duplicate that arrives when the latch is armed must not count it down.
  redis.call('SET', KEYS[2], '0', 'PXAT', string.sub(ARGV[2], 1, -4))
  return 0
end
local left = 0
if count - ARGV[1] > 0 then
  left = redis.call('DECRBY', KEYS[1], ARGV[1])
  used(KEYS[1], KEYS[3], 0)
else
  redis.call('DEL', KEYS[1], KEYS[3])
end
-- The key lives through the millisecond of not_after: a resent request finds it, or is late (R13).
redis.call('SET', KEYS[2], left, 'PXAT', string.sub(ARGV[2], 1, -4))
if left == 0 then redis.pcall(ARGV[4], ARGV[3], '0') end
return left
