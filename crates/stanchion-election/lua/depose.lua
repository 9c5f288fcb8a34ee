-- election/depose
-- End the term of the present leader, and notify it.
--
-- KEYS[1]  lead     hash  owner -> 1, the leader
-- KEYS[2]  term     hash  owner, priority, since, token, seq and value of the leader
-- ARGV[1]  publish  PUBLISH or SPUBLISH
-- ARGV[2]  wake     the channel of the lock
-- ARGV[3]  news     the channel for observers
-- ARGV[4]  notice   prefix of the channel of a client
--
-- Returns  1 a term was ended, 0 there was no leader
-- Replay   would depose the next leader: sent once only
-- Wakes    all candidates; the leader's process, which checks its term
-- Cost     O(1)
local call, publish, notice = redis.call, ARGV[1], ARGV[4]
-- HLEN first, so that a foreign type under this name causes an error and stays unchanged (R16).
if call('HLEN', KEYS[1]) == 0 then return 0 end
if call('HEXISTS', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGTYPE this name is in use as a read-write lock')
end
local holders = call('HRANDFIELD', KEYS[1], 1)
-- @notice.lua
call('DEL', KEYS[1])
redis.pcall('DEL', KEYS[2])
redis.pcall(publish, ARGV[3], 'vacant')
redis.pcall(publish, ARGV[2], '0')
tell_holders('gone', '')
return 1
