-- rwlock/read_reenter
-- One more read hold by the owner that reads: n to n + 1.
--
-- KEYS[1]  rwlock     hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  hold key   string  one for each reader, for any count
-- KEYS[3]  readers    zset    reader -> end of its lease, server ms: the time from which it may be dead
-- ARGV[1]  owner
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds
-- ARGV[4]  n          the hold count the client knows
--
-- Returns  0 done, -1 late, -2 the owner holds nothing
-- Replay   the count is set, so twice is once (P6, R4); never lowered
-- Wakes    no waiter
-- Cost     O(1)
local call = redis.call
local time = call('TIME')
if time[1] * 1000000 + time[2] > ARGV[3] + 0 then return -1 end
local held = call('HGET', KEYS[1], ARGV[1])
if not held then return -2 end
-- First, because it passes at maxmemory and lets the rest pass (R8).
call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
if call('PEXPIRE', KEYS[2], ARGV[2], 'GT') == 0 and call('EXISTS', KEYS[2]) == 0 then call('SET', KEYS[2], '1', 'PX', ARGV[2]) end
call('ZADD', KEYS[3], 'XX', 'GT', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2], ARGV[1])
call('PEXPIRE', KEYS[3], ARGV[2], 'GT')
-- Never lower: a late run of an earlier request may find a higher count.
if held + 0 < ARGV[4] + 1 then call('HSET', KEYS[1], ARGV[1], ARGV[4] + 1) end
return 0
