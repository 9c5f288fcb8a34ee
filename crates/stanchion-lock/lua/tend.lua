-- lock/tend
-- Look after a free lock, for a client that heard a release of Redisson's, or whose release found only dead processes.
--
-- KEYS[1]  lock     hash    owner -> hold count
-- KEYS[2]  fence    string  the last fencing token; the lock's own key again: mint none
-- KEYS[3]  line     zset    place -> arrival
-- KEYS[4]  wake     hash    what is known of clients outside the line
-- ARGV[1]  base
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  sentry   the uuid of a client that hears Redisson's releases, or ''
--
-- Returns  -1, or { "tend", ms, -1 } there are more dead processes in line
-- Replay   harmless
-- Wakes    the head of the line, which is granted a lock that is found free
-- Cost     O(log n) for n processes in line
local call = redis.call
local lock, fence, line, wake = unpack(KEYS)
local base, publish = ARGV[1], ARGV[2]
-- @line.lua
local us = clock()
-- L9: it proves that it hears; and that the turns of those outside the line are taken.
if ARGV[3] ~= '' and call('HGET', wake, 'sentry') == ARGV[3] then
  call('HDEL', wake, 'unused')
  redis.pcall('HSET', wake, 'heard', string.format('%.0f', us))
end
if call('EXISTS', lock) == 1 or call('EXISTS', line) == 0 then return -1 end
local _, _, more = serve(us)
return unless_unfinished(-1, more)
