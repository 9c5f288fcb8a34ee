-- multilock/hand_off
-- Pass all of several locks from one owner to another of the same process, in one step.
--
-- KEYS[1]  lock       hash    owner -> hold count; one key for each lock, in name order
-- KEYS[2]  line       zset    entry -> arrival, server us; one key for each lock, after all locks
-- KEYS[3]  wake       hash    notes about the queue; one key for each lock, after all queues
-- KEYS[4]  fence      string  the last fencing token of a lock; one key for each counter, after those
-- ARGV[1]  to         the owner that gets them
-- ARGV[2]  lease      milliseconds, of the new owner
-- ARGV[3]  not_after  server time in microseconds; later this is a plain release
-- ARGV[4]  locks      how many of the keys are locks
-- ARGV[5]  publish    PUBLISH or SPUBLISH
-- ARGV[6]  from       the owner that gives up its hold
-- ARGV[7]  base       Redisson's channel, one for each lock; then for each lock which of the counters is its own, 0: none
--
-- Returns  > 0 the new owner's token of all, 0 passed on without a token, -1 late: released as by a release, -2 the former owner did not
--          hold one of them, and those it held are free
-- Replay   grants only if this run removed the old owner from all, or the new one has all (R7)
-- Wakes    no waiter; a late or failed run, or one that found a lock missing: as a release does
-- Cost     O(locks)
-- @joint.lua
local time = call('TIME')
us = time[1] * 1000000 + time[2]
local late = us > ARGV[3] + 0
local found, moved, held = {}, 0, 0
for i = 1, locks do
  -- HDEL tests and deletes in one step, and passes at maxmemory (R8). A foreign key among them does not stop the others.
  found[i] = redis.pcall('HDEL', KEYS[i], ARGV[6]) == 1
  if found[i] then
    moved = moved + 1
  elseif redis.pcall('HEXISTS', KEYS[i], ARGV[1]) == 1 then
    held = held + 1
    ttls[i] = call('PTTL', KEYS[i])
  end
end

local problem
if not late and (moved == locks or held == locks) then
  -- The old owner has been removed: from here on an error must leave free locks and wake their waiters (R15).
  local done, result = pcall(take, held == locks)
  if done then return result end
  problem = type(result) == 'table' and result or redis.error_reply(tostring(result))
  if held == locks then return problem end
  for i = 1, taken do redis.pcall('HDEL', KEYS[i], ARGV[1]) end
end

-- @line.lua

local more
for i = 1, locks do
  at(i)
  if found[i] then
    local _, _, left = pass(us)
    more = left or more
  end
end
-- An error is returned as it is: in a queue with more dead processes, the head polls at its own time.
if problem then return problem end
return unless_unfinished(moved == locks and -1 or -2, more)
