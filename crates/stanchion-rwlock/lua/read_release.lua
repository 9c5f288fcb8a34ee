-- rwlock/read_release
-- One read hold less: n to n - 1. The last hold of the last reader frees the lock, for whoever is next. Or undo the requests of a reader:
-- its place in the line and its mark, or a hold that it has not learned of (P3).
--
-- KEYS[1]  rwlock    hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  line      zset    place -> arrival
-- KEYS[3]  wake      hash    what is known of clients outside the line
-- KEYS[4]  crowd     zset    place -> arrival, of readers
-- KEYS[5]  mark      string  a waiting writer's mark; the rwlock's own key again: writers have no preference
-- KEYS[6]  turn      string  see rwlock/read_acquire
-- KEYS[7]  readers   zset    reader -> end of its lease, server ms
-- KEYS[8]  hold key  string  of this reader
-- KEYS[9]  fence     string  the last fencing token; the rwlock's own key again: mint none
-- ARGV[1]  base      not a KEY: it would need a right on a key of that name (R14)
-- ARGV[2]  publish   PUBLISH or SPUBLISH
-- ARGV[3]  owner
-- ARGV[4]  n         the hold count the client knows
-- ARGV[5]  lease     milliseconds
-- ARGV[6]  prefix    the prefix of all readers' hold keys, which are in the slot of KEYS[1]
-- ARGV[7]  places    1: give up its place in line and its mark, too
--
-- Returns  >= 0 done, the number of subscribers reached; -1 done, but the message could not be sent; -2 the owner holds nothing;
--          { "tend", ms, that number } there are more dead processes in line
-- Replay   the second run finds nothing to release, or sets the same count (P6)
-- Wakes    when nobody reads any more the next in line: a writer is granted the lock, readers are told to try. Without a line
--          everybody: payload 0, as Redisson
-- Cost     O(log n) for n readers and processes in line, and at most 64 dead readers; each Redisson reader is checked once, at most 64
--          in one run (P11)
local call = redis.call
local lock, line, wake, crowd, mark, turn, readers, hold, fence = unpack(KEYS)
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
-- One field is the mode. Beside a write hold the lock is not free, and the TTL is the writer's.
local fields = call('HLEN', lock)
if had and fields > 1 then
  call('ZREM', readers, owner)
  if call('HGET', lock, 'mode') ~= 'write' then
    -- @dead.lua
    local time, longest, all = call('TIME')
    fields, longest, all = bury(time[1] * 1000 + math.floor(time[2] / 1000), fields)
    -- As in Redisson, the lock lasts as long as its longest hold. Only here may a TTL shrink, because all holds are known.
    if fields > 1 and all then call('PEXPIRE', lock, longest) end
  end
end
local free = fields <= 1
if had and free then call('DEL', lock, readers) end
if not free and not quits then return 0 end
-- The common case: nobody stands in line, or did a while ago.
if not quits and call('EXISTS', line, wake, crowd) == 0 then
  local told = redis.pcall(publish, base, '0')
  return type(told) == 'number' and told or -1
end

local released = '0'
-- @line.lua
local us = clock()
local stood = false
if quits then
  local head = is_first(owner)
  stood = call('ZREM', crowd, owner) == 1
  if stood and call('EXISTS', crowd) == 0 then call('ZREM', line, group) end
  -- Its mark has held writers off.
  if turn ~= lock and string.sub(call('GET', turn) or '', 2) == owner then stood = call('DEL', turn) == 1 end
  -- L4: it had the duty to look.
  if head and not free then tell_next(call('PTTL', lock)) end
  if not free and not first() then call('DEL', wake) end
end
if not free or not had and not stood then return (had or stood) and 0 or -2 end
local told, _, more = pass(us)
return unless_unfinished(told, more)
