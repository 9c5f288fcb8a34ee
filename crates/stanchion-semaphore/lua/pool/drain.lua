-- semaphore/drain
-- Remove all free permits for good.
--
-- KEYS[1]  free       string  the number of free permits
-- KEYS[2]  once       string  the result; expires with not_after
-- KEYS[3]  total      string  see total.lua; none if it is the semaphore's own key
-- KEYS[4]  held       hash    or sorted set: the ledger, or the leases
-- KEYS[5]  idle       string  see idle.lua
-- ARGV[1]  not_after  server time in microseconds; later the script refuses
-- ARGV[2]  made       "<ms> <permits>": make a missing semaphore first, which ends; otherwise empty
--
-- Returns  { 1 done, the number of removed permits }, { -1 late, 0 }
-- Replay   the once key has the result
-- Wakes    no waiter
-- Cost     O(1)
local answer = before(KEYS[2], ARGV[1])
if answer then return answer end
local it = { free = KEYS[1], held = KEYS[4], idle = KEYS[5], plain = KEYS[3] ~= KEYS[1] }
local free, exists = free_in(KEYS[1])
if not exists and ARGV[2] ~= '' then free = make(it, ARGV[2]) end
if free <= 0 then
  touch(it, free)
  return done(KEYS[2], ARGV[1], 0)
end
redis.call('DECRBY', KEYS[1], free)
changed(it, KEYS[3], -free, 0)
return done(KEYS[2], ARGV[1], free)
