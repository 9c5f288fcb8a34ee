-- multilock/hand_off
-- Pass all of several locks from one owner to another of the same process, in one step.
--
-- KEYS[1]  lock       hash    owner -> hold count; one key for each lock, in name order
-- KEYS[2]  line       zset    entry -> arrival, server us; one key for each lock, after all locks
-- KEYS[3]  wake       hash    notes about the queue; one key for each lock, after all queues
-- KEYS[4]  fence      string  the last fencing token of a lock; one key for each counter, after those
-- ARGV[1]  to         the owner that gets them
-- ARGV[2]  lease      milliseconds, of the new owner
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  locks      how many of the keys are locks
-- ARGV[5]  publish    PUBLISH or SPUBLISH
-- ARGV[6]  from       the owner that gives up its hold
-- ARGV[7]  base       Redisson's channel, one for each lock; then for each lock which of the counters is its own, 0: none
--
-- Returns  > 0 the new owner's token of all, 0 passed on without a token; -1 late, -3 the former owner does not hold one of them: nothing done
-- Replay   grants only if the old owner has all, or the new one has all (R7)
-- Wakes    no waiter
-- Cost     O(locks)
-- @joint.lua
local time = call('TIME')
us = time[1] * 1000000 + time[2]
-- P3: a late run changes nothing. The client releases.
if us > ARGV[3] + 0 then return -1 end
local found, held = 0, 0
for i = 1, locks do
  if call('HEXISTS', KEYS[i], ARGV[6]) == 1 then
    found = found + 1
  elseif call('HEXISTS', KEYS[i], ARGV[1]) == 1 then
    held = held + 1
  end
end
if found < locks and held < locks then return -3 end
-- R8: first, because PEXPIRE passes at maxmemory and lets the rest pass. R3: a new owner has no lease yet, which this may shorten.
for i = 1, locks do
  if held == locks then call('PEXPIRE', KEYS[i], ARGV[2], 'GT') else call('PEXPIRE', KEYS[i], ARGV[2]) end
  ttls[i] = ARGV[2] + 0
end
-- R15: until the new owner is written, an error leaves the locks with the old owner, which the client then releases.
local token = take(held == locks)
for i = 1, locks do call('HDEL', KEYS[i], ARGV[6]) end
return token
