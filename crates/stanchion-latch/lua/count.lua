-- latch/count
-- Read the count. Writes nothing.
--
-- KEYS[1]  latch  string  the count
--
-- Returns  >= 0 the count, 0 when there is none
-- Replay   harmless
-- Wakes    no waiter
-- Cost     O(1)
local count = count_in(KEYS[1])
if not count then return 0 end
return math.max(count + 0, 0)
