-- barrier/break_all
-- Break the present round for all of its waiters. Works at maxmemory.
--
-- KEYS[1]  barrier  hash  see barrier/arrive
-- KEYS[2]  places   zset  owner -> server ms at which its lease ends
-- ARGV[1]  publish  PUBLISH or SPUBLISH
-- ARGV[2]  channel
--
-- Returns  the number of places; 0: the round has no waiter, and nothing has changed
-- Replay   breaks the next round: it is sent once only
-- Wakes    all waiters of the round
-- Cost     O(n): the deletion of n places
local call = redis.call
local barrier, places, publish, channel = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
-- @round.lua
local standing = call('ZCOUNT', places, 0, '+inf')
if gen and standing > 0 then over('f') end
return gen and standing or 0
