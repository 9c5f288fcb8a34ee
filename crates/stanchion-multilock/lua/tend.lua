-- multilock/tend
-- Serve the queues of those locks that are free, for a client whose script was unfinished.
--
-- KEYS[1]  lock     hash    owner -> hold count; one key for each lock
-- KEYS[2]  line     zset    entry -> arrival, server us; one key for each lock, after all locks
-- KEYS[3]  wake     hash    notes about the queue; one key for each lock, after all queues
-- KEYS[4]  fence    string  the last fencing token of a lock; one key for each counter, after those
-- ARGV[1]  publish  PUBLISH or SPUBLISH
-- ARGV[2]  locks    how many of the keys are locks
-- ARGV[3]  base     one for each lock. Then for each lock which of the counters is its own, 0: none
--
-- Returns  -1, or { "tend", ms, -1 } when there are more dead processes
-- Replay   harmless
-- Wakes    the heads of the queues, which are granted the free locks
-- Cost     O(locks), each with O(log n) for n processes in its queue
local call = redis.call
local publish, locks = ARGV[1], ARGV[2] + 0
local lock, fence, line, wake, base
local function at(i)
  lock, line, wake, base = KEYS[i], KEYS[locks + i], KEYS[2 * locks + i], ARGV[2 + i]
  local counter = ARGV[2 + locks + i] + 0
  fence = counter > 0 and KEYS[3 * locks + counter] or lock
end

-- @line.lua

local us, more = clock(), nil
-- R8: first, a write that passes at maxmemory.
redis.pcall('ZREM', KEYS[locks + 1], '')
for i = 1, locks do
  at(i)
  -- A foreign key in the place of a lock does not stop the others.
  if call('EXISTS', lock) == 0 and call('EXISTS', line) == 1 then
    read_turn(us)
    local done, _, _, left = pcall(serve, us)
    more = done and left or more
  end
end
return unless_unfinished(-1, more)
