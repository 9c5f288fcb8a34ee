-- latch/delete
-- Remove a closed latch. Its waiters get a message, and return an error.
--
-- KEYS[1]  latch      string  the count (Redisson's layout)
-- KEYS[2]  once       string  the answer of this operation; expires when it is late
-- KEYS[3]  deleted    string  time of the delete in microseconds: a mark for waiters; its TTL is longer than a waiter's longest pause
-- KEYS[4]  idle       string  see idle.lua
-- ARGV[1]  not_after  server time in microseconds; later the script refuses
-- ARGV[2]  mark       milliseconds that the mark stays
-- ARGV[3]  channel
-- ARGV[4]  publish    PUBLISH or SPUBLISH
--
-- Returns  1 deleted, 0 there was none, -1 late
-- Replay   gives the answer of the first run, and does not touch a latch that was armed since (P6, R13)
-- Wakes    every stanchion waiter: payload 1, as Redisson; it wakes none of Redisson's waiters
-- Cost     O(1) and the server's delivery to the subscribers
-- A value of another kind under this name is an error, and stays untouched (R16).
local count = count_in(KEYS[1])
local answered = redis.call('GET', KEYS[2])
if answered then return answered + 0 end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[1] + 0 then return count and -1 or 0 end
if not count then
  -- A duplicate that arrives when the latch is armed must not delete it. The DEL passes at maxmemory, and then the SET passes, too (R8).
  redis.call('DEL', KEYS[2])
  redis.call('SET', KEYS[2], '0', 'PXAT', string.sub(ARGV[1], 1, -4))
  return 0
end

-- First, because it passes at maxmemory and lets the rest pass (R8).
redis.call('DEL', KEYS[1], KEYS[4])
redis.call('SET', KEYS[3], string.format('%.0f', now), 'PX', ARGV[2])
-- The key lives through the millisecond of not_after: a resent request finds it, or is late (R13).
redis.call('SET', KEYS[2], '1', 'PXAT', string.sub(ARGV[1], 1, -4))
redis.pcall(ARGV[4], ARGV[3], '1')
return 1
