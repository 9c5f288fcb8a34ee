-- latch/wait
-- Is the latch open?
--
-- KEYS[1]  latch    string  the count; open when missing or not above 0 (Redisson's layout)
-- KEYS[2]  deleted  string  there for a while after a delete, so that waiters do not take the missing key for zero
--
-- Returns  0 open, -2 deleted while closed, -3 closed
-- Replay   asks again
-- Wakes    nobody
-- Cost     O(1)
local count = count_in(KEYS[1])
if not count then return redis.call('EXISTS', KEYS[2]) == 1 and -2 or 0 end
if count + 0 <= 0 then return 0 end
-- Redisson arms without knowing of this key: who finds the latch armed again takes the old mark away.
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('DEL', KEYS[2]) end
return -3
