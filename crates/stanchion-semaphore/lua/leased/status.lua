-- leased/status
-- Read the numbers of free and held permits, and the leases. Writes nothing, and reaps nothing.
--
-- KEYS[1]  free    string      the number of free permits
-- KEYS[2]  leases  sorted set  permit id -> end of its lease
-- ARGV[1]  list    the number of leases to list, those that end first
--
-- Returns  { server time in ms, free permits or '' when the semaphore does not exist, held, held with an ended lease, id, end, ... }
-- Replay   harmless
-- Wakes    no waiter
-- Cost     O(log n + list)
local time = redis.call('TIME')
local ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local _, text = free_in(KEYS[1])
local result = { ms, text or '', redis.call('ZCARD', KEYS[2]), redis.call('ZCOUNT', KEYS[2], '-inf', ms) }
if ARGV[1] == '0' then return result end
for i, text in ipairs(redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1, 'WITHSCORES')) do result[i + 4] = text end
return result
