-- baton/release
-- Releases the baton and wakes a waiter.
--
-- KEYS[1]  baton    hash  owner -> 1
-- ARGV[1]  owner
-- ARGV[2]  channel
-- ARGV[3]  publish  PUBLISH or SPUBLISH
--
-- Returns  >= 0 released: the number of subscribers that got the message; -2 the owner holds nothing
-- Replay   the second run finds nothing to release (P6)
-- Wakes    one waiter in each process that waits
-- Cost     O(1) and the server's delivery to the subscribers
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return -2 end
return redis.call(ARGV[3], ARGV[2], '0')
