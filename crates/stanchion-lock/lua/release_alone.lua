-- lock/release_alone
-- End the last hold with one key only: in a migrating slot, a script with more keys is refused. The lock is granted to no waiter.
--
-- KEYS[1]  lock     hash  owner -> hold count
-- ARGV[1]  base     not a KEY: it would need a right on a key of that name (R14)
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  owner
--
-- Returns  >= 0 done, the number of receivers; -1 done, but the message could not be sent; -2 the owner holds nothing
-- Replay   the second run finds nothing to release (P6)
-- Wakes    Redisson's clients: payload 0. The queue is served later
-- Cost     O(1)
if redis.call('HDEL', KEYS[1], ARGV[3]) == 0 then return -2 end
local told = redis.pcall(ARGV[2], ARGV[1], '0')
return type(told) == 'number' and told or -1
