-- rwlock/force_release
-- Free the lock by force, and notify the holders, 1024 of them at most. Readers' hold keys expire.
-- With `side`, free the lock only if that side holds it: a writer that also reads is a writer.
--
-- KEYS[1]  rwlock   hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  fence    string  the last fencing token; the rwlock's own key again: mint none
-- KEYS[3]  line     zset    entry -> arrival
-- KEYS[4]  wake     hash    notes about the queue
-- KEYS[5]  readers  zset    reader -> end of its lease
-- ARGV[1]  base
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  notice   the prefix of the channels of clients
-- ARGV[4]  side     read or write: only if that side holds it; or ''
-- ARGV[5]  prefix   the prefix of all readers' hold keys, which are in the slot of KEYS[1]
--
-- Returns  1 it was held, 0 it was free, or held by the other side
-- Replay   would free the next holder: sent once only
-- Wakes    as the release of a writer does; the holders' processes check their holds
-- Cost     O(log n) for n processes in the queue; the server frees a hash of many readers in time linear in them
local call = redis.call
local lock, fence, line, wake, readers = unpack(KEYS)
-- HLEN first: another kind of value under this name is an error, and stays (R16).
if call('HLEN', lock) == 0 then return 0 end
local mode = call('HGET', lock, 'mode')
if not mode then
  return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode')
end
if ARGV[4] ~= '' and ARGV[4] ~= mode then return 0 end
local base, publish, announces, notice, prefix = ARGV[1], ARGV[2], '1', ARGV[3], ARGV[5]
local holders = call('HRANDFIELD', lock, 1024)
-- @line.lua
-- @notice.lua
call('UNLINK', lock, readers)
mode = nil
local _, _, more = pass(clock())
tell_holders('gone', '')
return unless_unfinished(1, more)
