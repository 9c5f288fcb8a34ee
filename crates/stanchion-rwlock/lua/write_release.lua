-- rwlock/write_release
-- One write hold less: n to n - 1. The last one frees the lock for the next process, or leaves the read holds of its owner. Or undo the
-- requests of a writer: its queue entry, or a hold that was granted in a lost reply (P3).
--
-- KEYS[1]  rwlock   hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  fence    string  the last fencing token; the rwlock's own key again: mint none
-- KEYS[3]  line     zset    entry -> arrival
-- KEYS[4]  wake     hash    notes about the queue
-- KEYS[5]  readers  zset    reader -> end of its lease, server ms
-- ARGV[1]  base     not a KEY: it would need a right on a key of that name (R14)
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  owner
-- ARGV[4]  n        the hold count the client knows
-- ARGV[5]  lease    milliseconds
-- ARGV[6]  prefix   the prefix of all readers' hold keys, which are in the slot of KEYS[1]
-- ARGV[7]  entries  1: give up its entry in the queue, too
--
-- Returns  >= 0 done, the number of subscribers reached; -1 done, but the message could not be sent; -2 the writer holds nothing;
--          { "tend", ms, that number } there are more dead processes in the queue
-- Replay   the second run finds nothing to release, or sets the same count (P6)
-- Wakes    the next in the queue, which is granted the lock. Without a queue all subscribers: payload 1, as Redisson. When read holds of
--          the writer remain, stanchion publishes, because other readers may join; Redisson does not
-- Cost     O(log n) for n processes in the queue
local call = redis.call
local field = ARGV[3] .. ':write'
if ARGV[4] ~= '1' then
  if not call('HGET', KEYS[1], field) then return -2 end
  call('PEXPIRE', KEYS[1], ARGV[5], 'GT')
  call('HSET', KEYS[1], field, ARGV[4] - 1)
  return 0
end
-- HDEL tests, decides and deletes in one, and passes at maxmemory (R8).
local had = call('HDEL', KEYS[1], field) == 1
local quits = ARGV[7] == '1'
if not had and not quits then return -2 end
local fields = call('HLEN', KEYS[1])
if had and fields == 1 then
  call('DEL', KEYS[1])
elseif had then
  call('HSET', KEYS[1], 'mode', 'read')
end
-- The common case: no process waits.
local alone
if not quits and call('EXISTS', KEYS[3], KEYS[4]) == 0 then
  alone = redis.pcall(ARGV[2], ARGV[1], '1')
  if type(alone) ~= 'number' then return -1 end
  if alone == 0 or fields > 1 then return alone end
end

local lock, fence, line, wake, readers = unpack(KEYS)
local base, publish, prefix, announces = ARGV[1], ARGV[2], ARGV[6], '1'
local mode
if fields > 1 then mode = call('HGET', lock, 'mode') end
-- @line.lua
local us = clock()
if alone then return begin_alone(us, alone) end
local stood, head = false, false
if quits then stood, head = quit(ARGV[3]) end
if not had and not stood then return -2 end
if not mode then
  local told, _, more = pass(us)
  return unless_unfinished(told, more)
end
local heard = had and redis.pcall(publish, base, '01') or 0
-- R15: errors do not undo the release.
local served, told, _, more = pcall(function()
  -- L4: the new head must poll.
  if head then tell_next(call('PTTL', lock)) end
  -- Readers may join: the writer holds them off no more.
  return serve(us)
end)
if not served then return -1 end
return unless_unfinished(told + (type(heard) == 'number' and heard or 0), more)
