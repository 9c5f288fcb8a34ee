-- latch/look
-- Read the count, and the time of the last delete or expiry. Writes nothing.
--
-- KEYS[1]  latch    string  the count
-- KEYS[2]  deleted  string  time of the delete, server time in microseconds
-- KEYS[3]  idle     string  see idle.lua
--
-- Returns  { the count, 0 when there is none, the time of the delete or the expiry, or '' }
-- Replay   harmless
-- Wakes    no waiter
-- Cost     O(1)
local count = count_in(KEYS[1])
local gone = redis.call('GET', KEYS[2])
if not gone and not count then
  local ends = ended(KEYS[3])
  gone = ends and string.format('%.0f', ends * 1000)
end
return { math.max(count or 0, 0), gone or '' }
