-- latch/delete
-- Remove a closed latch. Whoever waits for it is told, and gets an error.
--
-- KEYS[1]  latch      string  the count (Redisson's layout)
-- KEYS[2]  once       string  this operation has been done; gone when it can run no more
-- KEYS[3]  deleted    string  when, in microseconds: the mark that tells waiters; its TTL is longer than any waiter goes without asking
-- ARGV[1]  not_after  server time in microseconds; later the script refuses
-- ARGV[2]  mark       milliseconds that the mark stays
-- ARGV[3]  channel
-- ARGV[4]  publish    PUBLISH or SPUBLISH
--
-- Returns  1 deleted, 0 there was none, -1 late
-- Replay   says that it was done, and leaves a latch alone that was armed since (P6, R13)
-- Wakes    everybody of ours; payload 1, as Redisson, which wakes none of Redisson's
-- Cost     O(1) and the server's delivery to the subscribers
-- Another kind of value under this name is an error, and stays (R16).
local count = count_in(KEYS[1])
if redis.call('GET', KEYS[2]) then return 1 end
if not count then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[1] + 0 then return -1 end

-- First, because it passes at maxmemory and lets the rest pass (R8).
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[3], string.format('%.0f', now), 'PX', ARGV[2])
-- It lives through the millisecond of not_after: forgotten is never before late (R13).
redis.call('SET', KEYS[2], '1', 'PXAT', string.sub(ARGV[1], 1, -4))
redis.pcall(ARGV[4], ARGV[3], '1')
return 1
