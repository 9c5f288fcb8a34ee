-- lock/abandon
-- Undo the requests of an owner: its place in the line, or a hold that it has not learned of (P3).
--
-- KEYS[1]  lock     hash    owner -> hold count
-- KEYS[2]  fence    string  the last fencing token; the lock's own key again: mint none
-- KEYS[3]  line     zset    place -> arrival
-- KEYS[4]  wake     hash    what is known of clients outside the line
-- ARGV[1]  base
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  owner
--
-- Returns  as a release
-- Replay   the second run finds nothing
-- Wakes    as a release does, where it frees the lock or finds it free; the next in line, where this was the head
-- Cost     O(log n) for n processes in line
local call = redis.call
-- L12: a grant may have crossed this request.
local found = call('HDEL', KEYS[1], ARGV[3]) == 1
if call('EXISTS', KEYS[3], KEYS[4]) == 0 then
  if not found then return -2 end
  local told = redis.pcall(ARGV[2], ARGV[1], '0')
  return type(told) == 'number' and told or -1
end

local lock, fence, line, wake = unpack(KEYS)
local base, publish = ARGV[1], ARGV[2]
-- @line.lua
local us = clock()
local head = first() == ARGV[3]
local stood = call('ZREM', line, ARGV[3]) == 1
local ttl = call('PTTL', lock)
if ttl ~= -2 then
  if call('EXISTS', line) == 0 then call('DEL', wake) end
  -- L4: it had the duty to look.
  if head then tell_next(ttl) end
  return stood and 0 or -2
end
if not found and not stood then return -2 end
local told, _, more = pass(us)
return farewell(us, told, more)
