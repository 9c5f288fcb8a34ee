-- baton/acquire
-- Acquires the baton if it is free, or if this owner holds it already.
--
-- KEYS[1]  baton      hash  owner -> 1; its TTL is the lease
-- ARGV[1]  owner      used for one hold only
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; after it the script refuses
--
-- Returns  0 acquired, -1 late, -4 - ttl busy
-- Replay   finds its own field: acquired (P6)
-- Wakes    no waiter
-- Cost     O(1)
local ttl = redis.call('PTTL', KEYS[1])
if ttl ~= -2 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -4 - ttl end
local now = redis.call('TIME')
-- P3: a request that outlived its caller takes nothing.
if now[1] * 1000000 + now[2] > ARGV[3] + 0 then return -1 end
redis.call('HSET', KEYS[1], ARGV[1], '1')
if ttl < ARGV[2] + 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
