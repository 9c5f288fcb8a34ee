-- election/resign_alone
-- End a term with one key only: while a slot migrates, Redis refuses a script with more keys.
--
-- KEYS[1]  lead     hash  owner -> 1, the leader
-- ARGV[1]  owner
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  wake     the channel of the lock
-- ARGV[4]  news     the channel for observers
--
-- Returns  >= 0 done, the number of subscribers notified; -1 done, but the message could not be sent; -2 the owner leads nothing
-- Replay   the second run finds nothing to end (P6)
-- Wakes    all candidates
-- Cost     O(1)
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return -2 end
redis.pcall(ARGV[2], ARGV[4], 'vacant')
local told = redis.pcall(ARGV[2], ARGV[3], '0')
return type(told) == 'number' and told or -1
