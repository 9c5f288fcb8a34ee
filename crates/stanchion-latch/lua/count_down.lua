-- latch/count_down
-- Take from the count. At zero the latch is open, and whoever waits hears of it.
--
-- KEYS[1]  latch      string  the count (Redisson's layout)
-- KEYS[2]  once       string  what this operation answered; gone when it can run no more
-- ARGV[1]  by         how many, above 0
-- ARGV[2]  not_after  server time in microseconds; later the script refuses
-- ARGV[3]  channel
-- ARGV[4]  publish    PUBLISH or SPUBLISH
--
-- Returns  >= 0 what is left (0: open, now or before), -1 late
-- Replay   answers what the first run answered, and takes nothing (P6, R13)
-- Wakes    everybody, at zero only: payload 0, as Redisson
-- Cost     O(1) and the server's delivery to the subscribers
-- Another kind of value under this name is an error, and stays (R16).
local count = count_in(KEYS[1])
local answered = redis.call('GET', KEYS[2])
if answered then return answered + 0 end
if not count then return 0 end
local time = redis.call('TIME')
if time[1] * 1000000 + time[2] > ARGV[2] + 0 then return -1 end

-- Nothing to remove: passes at maxmemory, and lets DECRBY pass (R8).
redis.call('DEL', KEYS[2])
local left = 0
if count - ARGV[1] > 0 then
  left = redis.call('DECRBY', KEYS[1], ARGV[1])
else
  redis.call('DEL', KEYS[1])
end
-- It lives through the millisecond of not_after: forgotten is never before late (R13).
redis.call('SET', KEYS[2], left, 'PXAT', string.sub(ARGV[2], 1, -4))
if left == 0 then redis.pcall(ARGV[4], ARGV[3], '0') end
return left
