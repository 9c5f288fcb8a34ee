-- barrier/look
-- Tell whether a round is over.
--
-- KEYS[1]  barrier     hash  n, gen, first
-- KEYS[2]  places      zset  owner -> server ms until which its place is good
-- ARGV[1]  generation  the round
--
-- Returns  0 it has tripped, -2 the barrier was deleted since, -3 it waits
-- Replay   harmless
-- Wakes    nobody
-- Cost     O(1)
local gen, first = unpack(redis.call('HMGET', KEYS[1], 'gen', 'first'))
if not gen or ARGV[1] + 0 < first + 0 or ARGV[1] + 0 > gen + 0 then return -2 end
if ARGV[1] + 0 < gen + 0 then return 0 end
-- Who waits for hours keeps the barrier.
redis.call('PEXPIRE', KEYS[1], '3600000', 'GT')
redis.call('PEXPIRE', KEYS[2], '3600000', 'GT')
return -3
