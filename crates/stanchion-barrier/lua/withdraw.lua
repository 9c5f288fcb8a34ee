-- barrier/withdraw
-- Give a place back: its waiter has left. Passes at maxmemory.
--
-- KEYS[1]  barrier     hash  n, gen, first
-- KEYS[2]  places      zset  owner -> server ms until which its place is good
-- ARGV[1]  owner
-- ARGV[2]  generation  the round of the place; 0 where it is not known
--
-- Returns  1 given back, 0 its round has tripped meanwhile, -2 there is no such place
-- Replay   finds no place (P6)
-- Wakes    nobody: a place less trips no round
-- Cost     O(log n)
if redis.call('ZREM', KEYS[2], ARGV[1]) == 1 then return 1 end
local gen, first = unpack(redis.call('HMGET', KEYS[1], 'gen', 'first'))
if gen and ARGV[2] + 0 >= first + 0 and ARGV[2] + 0 < gen + 0 then return 0 end
return -2
