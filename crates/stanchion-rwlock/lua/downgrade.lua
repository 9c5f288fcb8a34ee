-- rwlock/downgrade
-- Turn a write hold of any count into one read hold in one step: no writer comes in between, but readers may join.
--
-- KEYS[1]  rwlock     hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  hold key   string  of the new reader
-- KEYS[3]  readers    zset    reader -> end of its lease, server ms: the time from which it may be dead
-- ARGV[1]  writer     "<owner>:write", which gives up its hold
-- ARGV[2]  owner      the reader to be, used for one outermost hold only (R1)
-- ARGV[3]  lease      milliseconds, of the new reader
-- ARGV[4]  not_after  server time in microseconds; later the script refuses and the write hold stays
-- ARGV[5]  channel
-- ARGV[6]  publish    PUBLISH or SPUBLISH
--
-- Returns  0 done, -1 late, -2 the writer holds nothing
-- Replay   finds the read hold and no write hold: renews the lease, which counts from the last request (P5)
-- Wakes    all waiters of Redisson processes, and in stanchion processes those that can hold together: payload 1.
--          Redisson publishes nothing
-- Cost     O(1) and the server's delivery to the subscribers
local call = redis.call
local found = call('HMGET', KEYS[1], ARGV[1], ARGV[2])
if not found[1] and not found[2] then return -2 end
-- P3: a request that outlived its caller changes nothing.
local time = call('TIME')
if time[1] * 1000000 + time[2] > ARGV[4] + 0 then return -1 end
-- First, because it passes at maxmemory and lets the rest pass (R8). Never shorten (R3).
call('PEXPIRE', KEYS[1], ARGV[3], 'GT')
call('ZADD', KEYS[3], 'GT', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3], ARGV[2])
call('PEXPIRE', KEYS[3], math.max(call('PTTL', KEYS[1]), 1))
-- The hold key before the field (R10), and the writer removed before the mode changes: an error in between grants to nobody.
if call('PTTL', KEYS[2]) < ARGV[3] + 0 then call('SET', KEYS[2], '1', 'PX', ARGV[3]) end
if found[1] then
  call('HDEL', KEYS[1], ARGV[1])
  call('HSET', KEYS[1], 'mode', 'read', ARGV[2], '1')
  redis.pcall(ARGV[6], ARGV[5], '1')
end
return 0
