-- fair/tend
-- Settle the queue again, for a client whose script has found more dead waiters than it removes in one run.
--
-- KEYS[1]  lock      hash    owner -> hold count
-- KEYS[2]  queue     list    owners in order of arrival
-- KEYS[3]  timeouts  zset    owner -> deadline
-- KEYS[4]  waiters   zset    owner -> arrival, us: stanchion's
-- KEYS[5]  wake      zset    notes about the queue
-- KEYS[6]  fence     string  the last fencing token; the lock's own key again: mint none
-- ARGV[1]  channel
-- ARGV[2]  publish   PUBLISH or SPUBLISH
-- ARGV[3]  wait      milliseconds
--
-- Returns  -1
-- Replay   harmless
-- Wakes    as a release does, when it finds the lock free
-- Cost     O(log n) for n waiters
local call = redis.call
-- R8: first, a write that passes at maxmemory.
call('ZREM', KEYS[5], '')
