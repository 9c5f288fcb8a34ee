-- semaphore/delete
-- Delete the semaphore and every hold of it.
--
-- KEYS[1]  free   string  the number of free permits
-- KEYS[2]  held   hash    or sorted set: the ledger, or the leases
-- KEYS[3]  granted  sorted set  see line_of_permits.lua; none for leased permits: the semaphore's own key
-- KEYS[4]  total  string  see total.lua; none if it is the semaphore's own key
-- KEYS[5]  idle   string  see idle.lua
-- ARGV[1]  channel
-- ARGV[2]  publish  PUBLISH or SPUBLISH
--
-- Returns  1 it existed, 0 it did not
-- Replay   would delete a semaphore created in the meantime: sent once only
-- Wakes    no waiter, as Redisson: there is no permit to acquire; the processes that hold leased permits check them
-- Cost     O(holders)
free_in(KEYS[1])
local deleted = redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
redis.call('DEL', KEYS[4], KEYS[5])
redis.pcall(ARGV[2], ARGV[1] .. ':held', 'gone')
return deleted > 0 and 1 or 0
