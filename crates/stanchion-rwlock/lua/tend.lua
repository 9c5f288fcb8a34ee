-- rwlock/tend
-- Look after a lock that is free or is read, for a client that heard a release of Redisson's, or whose release found only dead processes.
--
-- KEYS[1]  rwlock   hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  fence    string  the last fencing token; the rwlock's own key again: mint none
-- KEYS[3]  line     zset    place -> arrival
-- KEYS[4]  wake     hash    what is known of clients outside the line
-- KEYS[5]  crowd    zset    place -> arrival, of readers
-- KEYS[6]  mark     string  a waiting writer's mark; the rwlock's own key again: writers have no preference
-- KEYS[7]  turn     string  see rwlock/write_acquire
-- ARGV[1]  base
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  sentry   the uuid of a client that hears Redisson's releases, or ''
--
-- Returns  -1, or { "tend", ms, -1 } there are more dead processes in line
-- Replay   harmless
-- Wakes    the next in line, where the lock is found free; the readers that wait, where others read
-- Cost     O(log n) for n processes in line
local call = redis.call
local lock, fence, line, wake, crowd, mark, turn = unpack(KEYS)
local base, publish, released = ARGV[1], ARGV[2], '0'
-- @line.lua
local us = clock()
-- L9: it proves that it hears; and that the turns of those outside the line are taken.
if ARGV[3] ~= '' and call('HGET', wake, 'sentry') == ARGV[3] then
  call('HDEL', wake, 'unused')
  redis.pcall('HSET', wake, 'heard', string.format('%.0f', us))
end
if not first() then return -1 end
local mode = call('HGET', lock, 'mode')
local _, more
if mode == 'read' then _, _, more = join(call('PTTL', lock)) end
if not mode then _, _, more = serve(us) end
return unless_unfinished(-1, more)
