-- semaphore/tend
-- Announce the free permits, for a client that heard a release of Redisson's, or whose script met more dead processes than it removes.
--
-- KEYS[1]  free     string      the number of free permits
-- KEYS[2]  line     list        see line.lua
-- KEYS[3]  crowd    sorted set  see crowd.lua
-- KEYS[4]  wake     hash        see crowd.lua
-- KEYS[5]  ledger   hash        of plain permits
-- KEYS[6]  idle     string      see idle.lua; none for leased permits: the semaphore's own key
-- ARGV[1]  base
-- ARGV[2]  publish  PUBLISH or SPUBLISH
--
-- Returns  -1; { "tend", 0, -1 } there are more dead processes
-- Replay   harmless
-- Wakes    as a release does
-- Cost     O(log n) for n processes that wait
local free = free_in(KEYS[1])
-- Redisson does not know that the semaphore ends, and a release in a slot in migration did not see it.
if KEYS[6] ~= KEYS[1] then pcall(touch, { free = KEYS[1], held = KEYS[5], idle = KEYS[6], plain = true }, free) end
local to = { line = KEYS[2], crowd = KEYS[3], wake = KEYS[4], base = ARGV[1], publish = ARGV[2] }
if free > 0 and redis.call('EXISTS', KEYS[3]) == 1 then
  -- Not `announce`: where the crowd cannot be told, that tells all, and this client would tend again, for ever.
  tell_crowd(to, free)
end
return unless_unfinished(to, -1)
