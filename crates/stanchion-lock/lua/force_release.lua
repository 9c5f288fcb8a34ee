-- lock/force_release
-- Free the lock by force, and notify the holder.
--
-- KEYS[1]  lock     hash    owner -> hold count
-- KEYS[2]  fence    string  the last fencing token; the lock's own key again: mint none
-- KEYS[3]  line     zset    entry -> arrival
-- KEYS[4]  wake     hash    notes about the queue
-- ARGV[1]  base
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  notice   the prefix of the channels of clients
--
-- Returns  1 it was held, 0 it was free
-- Replay   would free the next holder: sent once only
-- Wakes    as a release does; the holder's process checks its hold
-- Cost     O(log n) for n processes in the queue
local call = redis.call
-- HLEN first: another kind of value under this name is an error, and stays (R16).
if call('HLEN', KEYS[1]) == 0 then return 0 end
if call('HEXISTS', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGTYPE this name is in use as a read-write lock')
end
local lock, fence, line, wake = unpack(KEYS)
local base, publish, notice = ARGV[1], ARGV[2], ARGV[3]
local holders = call('HRANDFIELD', lock, 1)
-- @line.lua
-- @notice.lua
call('DEL', lock)
local _, _, more = pass(clock())
tell_holders('gone', '')
return unless_unfinished(1, more)
