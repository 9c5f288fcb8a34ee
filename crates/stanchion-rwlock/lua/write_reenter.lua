-- rwlock/write_reenter
-- One more write hold by the writer: n to n + 1.
--
-- KEYS[1]  rwlock     hash  mode, reader -> hold count, writer -> hold count
-- ARGV[1]  writer     "<owner>:write"
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds
-- ARGV[4]  n          the hold count the client knows
--
-- Returns  0 done, -1 late, -2 the writer holds nothing
-- Replay   the count is set, so twice is once (P6, R4); never lowered
-- Wakes    no waiter
-- Cost     O(1)
local time = redis.call('TIME')
if time[1] * 1000000 + time[2] > ARGV[3] + 0 then return -1 end
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held then return -2 end
-- First, because it passes at maxmemory and lets the rest pass (R8).
redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
-- Never lower: a late run of an earlier request may find a higher count.
if held + 0 < ARGV[4] + 1 then redis.call('HSET', KEYS[1], ARGV[1], ARGV[4] + 1) end
return 0
