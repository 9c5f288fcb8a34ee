-- semaphore/delete
-- Forget the semaphore with all that is held of it.
--
-- KEYS[1]  free  string  the permits that nobody holds
-- KEYS[2]  held  hash or sorted set: the ledger, or the leases
-- KEYS[3]  line  list    see line.lua
--
-- Returns  1 it existed, 0 it did not
-- Replay   deletes what was made meanwhile: sent once only
-- Wakes    nobody, as Redisson: there is nothing to acquire
-- Cost     O(holders)
free_in(KEYS[1])
return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3]) > 0 and 1 or 0
