-- fair/force_release
-- Free the lock by force, grant it to the head of the queue, and notify the holder.
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
-- ARGV[4]  notice    the prefix of the channels of clients
--
-- Returns  1 it was held, 0 it was free
-- Replay   would free the next holder: sent once only
-- Wakes    as a release does; the holder's process checks its hold
-- Cost     O(log n) for n waiters
local call = redis.call
-- HLEN first: another kind of value under this name is an error, and stays (R16).
local fields = call('HLEN', KEYS[1])
if fields == 0 then return 0 end
if fields > 1 then return redis.error_reply('WRONGTYPE this name is in use as another kind of synchronizer') end
local holders = call('HRANDFIELD', KEYS[1], 1)
call('DEL', KEYS[1])
call('ZREM', KEYS[4], holders[1])
