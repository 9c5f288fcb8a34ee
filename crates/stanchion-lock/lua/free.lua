-- lock/free
-- Return whether the lock is free. Reads only.
--
-- KEYS[1]  lock  hash  owner -> hold count
--
-- Returns  0 free, -4 - ttl held (-3: the holder has no TTL)
-- Replay   harmless
-- Wakes    no waiter
-- Cost     O(1)
local ttl = redis.call('PTTL', KEYS[1])
return ttl == -2 and 0 or -4 - ttl
