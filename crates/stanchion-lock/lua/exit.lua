-- lock/exit
-- One hold less of several: n to n - 1.
--
-- KEYS[1]  lock   hash  owner -> hold count
-- ARGV[1]  owner
-- ARGV[2]  n      the hold count the client knows
-- ARGV[3]  lease  milliseconds
--
-- Returns  0 done, -2 the owner holds nothing
-- Replay   sets the same count (P6)
-- Wakes    no waiter
-- Cost     O(1)
if not redis.call('HGET', KEYS[1], ARGV[1]) then return -2 end
-- First, because it passes at maxmemory and lets the rest pass (R8).
redis.call('PEXPIRE', KEYS[1], ARGV[3], 'GT')
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] - 1)
return 0
