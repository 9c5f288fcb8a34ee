-- rwlock/read_release
-- One read hold less: n to n - 1. The last hold of the last reader frees the lock for the next process. Or undo the requests of a reader:
-- its queue entry, or a hold that was granted in a lost reply (P3).
--
-- KEYS[1]  rwlock    hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  line      zset    entry -> arrival
-- KEYS[3]  wake      hash    notes about the queue
-- KEYS[4]  readers   zset    reader -> end of its lease, server ms
-- KEYS[5]  hold key  string  of this reader
-- KEYS[6]  fence     string  the last fencing token; the rwlock's own key again: mint none
-- ARGV[1]  base      not a KEY: it would need a right on a key of that name (R14)
-- ARGV[2]  publish   PUBLISH or SPUBLISH
-- ARGV[3]  owner
-- ARGV[4]  n         the hold count the client knows
-- ARGV[5]  lease     milliseconds
-- ARGV[6]  prefix    the prefix of all readers' hold keys, which are in the slot of KEYS[1]
-- ARGV[7]  entries   1: give up its entry in the queue, too
--
-- Returns  >= 0 done, the number of subscribers reached; -1 done, but the message could not be sent; -2 the owner holds nothing;
--          { "tend", ms, that number } there are more dead processes in the queue
-- Replay   the second run finds nothing to release, or sets the same count (P6)
-- Wakes    after the last reader the next in the queue, which is granted the lock. Without a queue all subscribers: payload 0, as Redisson
-- Cost     O(log n) for n readers and processes in the queue, and at most 64 dead readers; each Redisson reader is checked once, at most 64
--          in one run (P11)
local call = redis.call
local lock, line, wake, readers, hold, fence = unpack(KEYS)
local base, publish, owner, prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[6]
if ARGV[4] ~= '1' then
  if not call('HGET', lock, owner) then return -2 end
  call('PEXPIRE', lock, ARGV[5], 'GT')
  if call('PEXPIRE', hold, ARGV[5], 'GT') == 0 and call('EXISTS', hold) == 0 then call('SET', hold, '1', 'PX', ARGV[5]) end
  local time = call('TIME')
  call('ZADD', readers, 'XX', 'GT', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[5], owner)
  call('PEXPIRE', readers, ARGV[5], 'GT')
  call('HSET', lock, owner, ARGV[4] - 1)
  return 0
end

-- HDEL tests, decides and deletes in one, and passes at maxmemory (R8).
local had = call('HDEL', lock, owner) == 1
call('DEL', hold)
local quits = ARGV[7] == '1'
if not had and not quits then return -2 end
-- One field is the mode. In mode `write` the lock is not free, and the TTL is the writer's.
local fields = call('HLEN', lock)
if had and fields > 1 then
  call('ZREM', readers, owner)
  if call('HGET', lock, 'mode') ~= 'write' then
    -- @dead.lua
    local time = call('TIME')
    local done, left, longest, all = pcall(bury, time[1] * 1000 + math.floor(time[2] / 1000), fields)
    -- R15: errors do not undo the release. In a migrating slot some hold keys may be on the other node.
    fields = done and left or call('HLEN', lock)
    -- As in Redisson, the lock lasts as long as its longest hold. Only here may a TTL shrink, because all holds are known.
    if done and fields > 1 and all then call('PEXPIRE', lock, longest) end
  end
end
local free = fields <= 1
if had and free then call('DEL', lock, readers) end
if not free and not quits then return 0 end
-- The common case: no process waits.
local alone
if not quits and call('EXISTS', line, wake) == 0 then
  alone = redis.pcall(publish, base, '0')
  if type(alone) ~= 'number' then return -1 end
  if alone == 0 then return alone end
end

local mode, announces = nil, '0'
-- @line.lua
local us = clock()
if alone then return begin_alone(us, alone) end
local stood, head = false, false
if quits then
  stood, head = quit(owner .. 'r')
  if not stood then stood, head = quit(owner .. 'R') end
end
if free and (had or stood) then
  local told, _, more = pass(us)
  return unless_unfinished(told, more)
end
pcall(function()
  -- L4: the new head must poll.
  if head then tell_next(call('PTTL', lock)) end
  if stood and not first() then forget() end
end)
return (had or stood) and 0 or -2
