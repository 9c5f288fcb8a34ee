-- barrier/set_parties
-- Set the number of parties: at once where nobody waits, otherwise from the next round on.
--
-- KEYS[1]  barrier  hash  see barrier/arrive
-- KEYS[2]  places   zset  owner -> server ms until which its place is good
-- ARGV[1]  n        the number of parties
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  channel
--
-- Returns  1 at once, 0 from the next round on
-- Replay   sets the same
-- Wakes    nobody; all who wait in the round, if it breaks because one of them is dead
-- Cost     O(log n)
local call = redis.call
local barrier, places, publish, channel = KEYS[1], KEYS[2], ARGV[2], ARGV[3]
-- @round.lua
local standing = call('ZCOUNT', places, 0, '+inf')
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if not gen then
  gen = string.format('%.0f', now)
  call('HSET', barrier, 'n', ARGV[1], 'gen', gen, 'first', gen)
  call('PEXPIRE', barrier, 3600000)
  call('DEL', places)
  return 1
end
local dead = call('ZCOUNT', places, 0, math.floor(now / 1000) - 1)
if dead > 0 and policy == 'b' then
  over('d')
  standing, dead = 0, 0
end
if standing > dead and n ~= ARGV[1] then
  call('HSET', barrier, 'next', ARGV[1])
  return 0
end
call('HSET', barrier, 'n', ARGV[1])
call('HDEL', barrier, 'next')
return 1
