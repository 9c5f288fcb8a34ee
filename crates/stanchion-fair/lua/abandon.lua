-- fair/abandon
-- Undo the requests of an owner: its place in the queue, or a grant in a lost reply or message (P3).
--
-- KEYS[1]  lock      hash    owner -> hold count
-- KEYS[2]  queue     list    owners in order of arrival
-- KEYS[3]  timeouts  zset    owner -> deadline
-- KEYS[4]  waiters   zset    owner -> arrival, us: stanchion's
-- KEYS[5]  wake      zset    notes about the queue
-- KEYS[6]  fence     string  the last fencing token; the lock's own key again: mint none
-- ARGV[1]  channel
-- ARGV[2]  publish   PUBLISH or SPUBLISH
-- ARGV[3]  wait      milliseconds
-- ARGV[4]  owner
--
-- Returns  as a release
-- Replay   the second run finds nothing
-- Wakes    as a release does: the owner may have been the head of the queue, or the holder
-- Cost     O(log n) for n waiters; for a place in the queue one LREM from the nearer end (P11)
local call = redis.call
local found = call('HDEL', KEYS[1], ARGV[4]) == 1
local freed = found
-- The holder may be the first of the waiters.
local rank = call('ZRANK', KEYS[4], ARGV[4])
local was_first = rank and rank < 2
local deadline = call('ZSCORE', KEYS[3], ARGV[4])
if deadline then
  found = true
  call('ZREM', KEYS[3], ARGV[4])
  -- Deadlines grow along the queue, so they show the nearer end, where LREM starts. If Redisson has set a wrong deadline, LREM only
  -- walks longer. An owner is in the list once.
  local behind = call('ZCOUNT', KEYS[3], deadline, '+inf')
  call('LREM', KEYS[2], behind * 2 < call('ZCARD', KEYS[3]) and -1 or 1, ARGV[4])
end
if call('EXISTS', KEYS[2], KEYS[4], KEYS[5]) == 0 then return found and 0 or -2 end
