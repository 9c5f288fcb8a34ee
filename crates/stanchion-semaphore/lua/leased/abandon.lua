-- leased/abandon
-- Undo a request: give back its permits and its place in line.
--
-- KEYS[1]  free     string      the number of free permits
-- KEYS[2]  leases   sorted set  permit id -> end of its lease
-- KEYS[3]  line     list        see line.lua
-- KEYS[4]  crowd    sorted set  see crowd.lua
-- KEYS[5]  wake     hash        see crowd.lua
-- ARGV[1]  owner
-- ARGV[2]  ids      of 16 bytes each, concatenated
-- ARGV[3]  channel
-- ARGV[4]  publish  PUBLISH or SPUBLISH
--
-- Returns  >= 0 done: the number of subscribers that got the message; -1 done, but no message could be sent; -2 there was nothing to undo
-- Replay   finds nothing
-- Wakes    as a release does; also when permits were only kept back for the owner
-- Cost     O(permits, log n), O(places in line), at most 16
local ids = {}
for at = 1, #ARGV[2], 16 do ids[#ids + 1] = string.sub(ARGV[2], at, at + 15) end
-- Checked before anything is removed: permits that cannot be given back would be lost (R16).
local free = free_in(KEYS[1])
local removed = redis.call('ZREM', KEYS[2], unpack(ids))
if removed > 0 then free = redis.call('INCRBY', KEYS[1], removed) end
local left = leave(KEYS[3], ARGV[1] .. ' ' .. #ids, first_in(KEYS[3]))
if removed + left == 0 then return -2 end
local to = { line = KEYS[3], crowd = KEYS[4], wake = KEYS[5], base = ARGV[3], publish = ARGV[4] }
return unless_unfinished(to, announce(to, free))
