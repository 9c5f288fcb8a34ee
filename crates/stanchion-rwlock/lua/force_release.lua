-- rwlock/force_release
-- Free the lock, no matter who holds it, and tell the holders, 1024 of them at most. Readers' hold keys expire.
-- Or only if one side holds it: a writer that also reads is a writer.
--
-- KEYS[1]  rwlock   hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  fence    string  the last fencing token; the rwlock's own key again: mint none
-- KEYS[3]  line     zset    place -> arrival
-- KEYS[4]  wake     hash    what is known of clients outside the line
-- KEYS[5]  crowd    zset    place -> arrival, of readers
-- KEYS[6]  mark     string  a waiting writer's mark, whatever the caller prefers
-- KEYS[7]  turn     string  see rwlock/write_acquire
-- KEYS[8]  readers  zset    reader -> end of its lease
-- ARGV[1]  base
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  notice   what the channel of a client begins with
-- ARGV[4]  side     read or write: only if that side holds it; or ''
--
-- Returns  1 it was held, 0 it was free, or held by the other side
-- Replay   would free the next holder: sent once only
-- Wakes    as the release of a writer does; the holders' processes look
-- Cost     O(log n) for n processes in line; the server frees a hash of many readers in time linear in them
local call = redis.call
local lock, fence, line, wake, crowd, mark, turn, readers = unpack(KEYS)
-- HLEN first: another kind of value under this name is an error, and stays (R16).
if call('HLEN', lock) == 0 then return 0 end
local mode = call('HGET', lock, 'mode')
if not mode then
  return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode')
end
if ARGV[4] ~= '' and ARGV[4] ~= mode then return 0 end
local base, publish, released, notice = ARGV[1], ARGV[2], '1', ARGV[3]
local holders = call('HRANDFIELD', lock, 1024)
-- @line.lua
-- @notice.lua
call('UNLINK', lock, readers)
local _, _, more = pass(clock())
tell_holders('gone', '')
return unless_unfinished(1, more)
