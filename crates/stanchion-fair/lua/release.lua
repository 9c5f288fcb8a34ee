-- fair/release
-- One hold less: n to n - 1. The last one frees the lock and grants it to the head of the queue.
--
-- KEYS[1]  lock      hash    owner -> hold count
-- KEYS[2]  queue     list    owners in order of arrival
-- KEYS[3]  timeouts  zset    owner -> deadline
-- KEYS[4]  waiters   zset    owner -> arrival, us: stanchion's
-- KEYS[5]  wake      zset    notes about the queue
-- KEYS[6]  fence     string  the last fencing token; the lock's own key again: mint none
-- ARGV[1]  channel   not a KEY: it would need a right on a key of that name (R14)
-- ARGV[2]  publish   PUBLISH or SPUBLISH
-- ARGV[3]  wait      milliseconds
-- ARGV[4]  owner
-- ARGV[5]  n         the hold count the client knows
-- ARGV[6]  lease     milliseconds
--
-- Returns  >= 0 done, the number of subscribers reached; -1 done, but no message could be sent; -2 the owner holds nothing;
--          or { that number, now in us, a grant to a waiter of the same client, as its message would be }
-- Replay   the second run finds nothing to release, or sets the same count (P6)
-- Wakes    the head of the queue: a stanchion waiter is granted the lock, by message or in this reply; a Redisson waiter is woken
-- Cost     O(log n) for n waiters
local call = redis.call
if ARGV[5] ~= '1' then
  if not call('HGET', KEYS[1], ARGV[4]) then return -2 end
  call('PEXPIRE', KEYS[1], ARGV[6], 'GT')
  call('HSET', KEYS[1], ARGV[4], ARGV[5] - 1)
  return 0
end
-- HDEL tests, decides and deletes in one, and passes at maxmemory (R8).
local found = call('HDEL', KEYS[1], ARGV[4]) == 1
-- The common case: no process waits.
if call('EXISTS', KEYS[2], KEYS[4], KEYS[5]) == 0 then return found and 0 or -2 end
