-- latch/wait
-- Return whether the latch is open.
--
-- KEYS[1]  latch    string  the count; open when missing or not above 0 (Redisson's layout)
-- KEYS[2]  deleted  string  time of the delete, server time in microseconds; kept for a while, so that waiters do not take the
--                           missing key for zero
-- KEYS[3]  idle     string  see idle.lua
-- ARGV[1]  since    server time in microseconds when the wait began, or a little earlier
-- ARGV[2]  least    ms for which an ephemeral latch is kept for this waiter, which sends its next request before
--
-- Returns  0 open, -2 deleted or ended while the caller waited, -3 closed
-- Replay   harmless
-- Wakes    no waiter
-- Cost     O(1)
local count = count_in(KEYS[1])
if not count then
  -- A wait that began after the delete was for another latch: Redisson may have armed and opened one since, and leaves the mark.
  local deleted = redis.call('GET', KEYS[2])
  if deleted and ARGV[1] + 0 <= deleted + 0 then return -2 end
  local ends = ended(KEYS[3])
  return ends and ARGV[1] / 1000 <= ends and -2 or 0
end
if count + 0 <= 0 then return 0 end
-- Redisson arms without this key: the first waiter that finds the latch armed again removes the old mark.
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('DEL', KEYS[2]) end
used(KEYS[1], KEYS[3], ARGV[2] + 0)
return -3
