-- semaphore/drain
-- Remove all free permits for good.
--
-- KEYS[1]  free       string  the number of free permits
-- KEYS[2]  once       string  the result; expires with not_after
-- KEYS[3]  total      string  see total.lua; none if it is the semaphore's own key
-- ARGV[1]  not_after  server time in microseconds; later the script refuses
--
-- Returns  { 1 done, the number of removed permits }, { -1 late, 0 }
-- Replay   the once key has the result
-- Wakes    nobody
-- Cost     O(1)
local answer = before(KEYS[2], ARGV[1])
if answer then return answer end
local free = free_in(KEYS[1])
if free <= 0 then return done(KEYS[2], ARGV[1], 0) end
redis.call('DECRBY', KEYS[1], free)
changed(KEYS[3], -free)
return done(KEYS[2], ARGV[1], free)
