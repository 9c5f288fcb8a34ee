-- rwlock/write_release
-- One write hold less: n to n - 1. After the last one the lock is free for whoever is next, or its owner's read holds remain. Or undo the
-- requests of a writer: its place in the line and its mark, or a hold that it has not learned of (P3).
--
-- KEYS[1]  rwlock   hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  fence    string  the last fencing token; the rwlock's own key again: mint none
-- KEYS[3]  line     zset    place -> arrival
-- KEYS[4]  wake     hash    what is known of clients outside the line
-- KEYS[5]  crowd    zset    place -> arrival, of readers
-- KEYS[6]  mark     string  a waiting writer's mark; the rwlock's own key again: writers have no preference
-- KEYS[7]  turn     string  see rwlock/write_acquire
-- ARGV[1]  base     not a KEY: it would need a right on a key of that name (R14)
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  owner
-- ARGV[4]  n        the hold count the client knows
-- ARGV[5]  lease    milliseconds
-- ARGV[6]  places   1: give up its place in line and its mark, too
--
-- Returns  >= 0 done, the number of subscribers reached; -1 done, but the message could not be sent; -2 the writer holds nothing;
--          { "tend", ms, that number } there are more dead processes in line
-- Replay   the second run finds nothing to release, or sets the same count (P6)
-- Wakes    the next in line: a writer is granted the lock, readers are told to try. Without a line everybody: payload 1, as Redisson,
--          because readers can hold together. Redisson publishes nothing when read holds of the writer remain; stanchion does,
--          because other readers may join
-- Cost     O(log n) for n processes in line
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
local quits = ARGV[6] == '1'
if not had and not quits then return -2 end
local fields = call('HLEN', KEYS[1])
if had and fields == 1 then
  call('DEL', KEYS[1])
elseif had then
  call('HSET', KEYS[1], 'mode', 'read')
end
-- The common case: nobody stands in line, or did a while ago.
if not quits and call('EXISTS', KEYS[3], KEYS[4], KEYS[5]) == 0 then
  local told = redis.pcall(ARGV[2], ARGV[1], '1')
  return type(told) == 'number' and told or -1
end

local lock, fence, line, wake, crowd, mark, turn = unpack(KEYS)
local base, publish, released = ARGV[1], ARGV[2], '1'
-- @line.lua
local us = clock()
local free, stood, marked = fields <= 1, false, false
if quits then
  local head = first() == ARGV[3]
  stood = call('ZREM', line, ARGV[3]) == 1
  if mark ~= lock and call('GET', mark) == field then marked = call('DEL', mark) == 1 end
  if not free and not had then
    -- L4: it had the duty to look.
    if head then tell_next(call('PTTL', lock)) end
    -- Its mark has held readers off.
    local _, more
    if marked and call('HGET', lock, 'mode') == 'read' then _, _, more = join(call('PTTL', lock)) end
    if not first() then call('DEL', wake) end
    return unless_unfinished((stood or marked) and 0 or -2, more)
  end
end
if not had and not stood and not marked then return -2 end
if free then
  local told, _, more = pass(us)
  return unless_unfinished(told, more)
end
local heard = redis.pcall(publish, base, '01')
local told, _, more = join(call('PTTL', lock))
return unless_unfinished(told + (type(heard) == 'number' and heard or 0), more)
