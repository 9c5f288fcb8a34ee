-- core/ask
-- Send the holders a request to release. Each holder decides.
--
-- KEYS[1]  lock     hash   owner -> hold count; of a read-write lock also `mode`
-- ARGV[1]  notice   the prefix of the channels of clients
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  mode     1 of a read-write lock, otherwise 0
-- ARGV[4]  reason
--
-- Returns  { holders, processes that received the message }
-- Replay   sends the messages again
-- Wakes    no waiter
-- Cost     O(holders), 1024 at most
local call, notice, publish = redis.call, ARGV[1], ARGV[2]
-- HLEN first: another kind of value under this name is an error (R16).
if call('HLEN', KEYS[1]) == 0 then return { 0, 0 } end
if call('HEXISTS', KEYS[1], 'mode') ~= ARGV[3] + 0 then
  return redis.error_reply('WRONGTYPE this name is in use as another kind of synchronizer')
end
local holders = call('HRANDFIELD', KEYS[1], 1024)
-- @notice.lua
return { tell_holders('ask', ' ' .. ARGV[4]) }
