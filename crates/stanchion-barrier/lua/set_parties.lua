-- barrier/set_parties
-- Set the number of parties: at once if the round has no waiter, otherwise from the next round on.
--
-- KEYS[1]  barrier  hash  see barrier/arrive
-- KEYS[2]  places   zset  owner -> server ms at which its lease ends
-- KEYS[3]  once     string  the answer of this operation; expires at not_after
-- ARGV[1]  n        the number of parties
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  channel
-- ARGV[4]  not_after  server time in microseconds; later the script refuses
--
-- Returns  1 at once, 0 from the next round on, -1 late
-- Replay   gives the answer of the first run: a number that was set later stays (P6)
-- Wakes    none; but all waiters of the round, if it breaks because a party is dead
-- Cost     O(log n)
local call = redis.call
local barrier, places, publish, channel = KEYS[1], KEYS[2], ARGV[2], ARGV[3]
-- @round.lua
local standing = call('ZCOUNT', places, 0, '+inf')
local answer = call('GET', KEYS[3])
if answer then return answer + 0 end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[4] + 0 then return -1 end
-- The key lives through the millisecond of not_after, so a resent request finds the key, or is late (R13).
local function done(at_once)
  call('SET', KEYS[3], at_once, 'PXAT', string.sub(ARGV[4], 1, -4))
  return at_once
end
if not gen then
  gen = string.format('%.0f', now)
  call('HSET', barrier, 'n', ARGV[1], 'gen', gen, 'first', gen)
  call('PEXPIRE', barrier, 3600000)
  call('DEL', places)
  return done(1)
end
local dead = call('ZCOUNT', places, 0, math.floor(now / 1000) - 1)
if dead > 0 and policy == 'b' then
  over('d')
  standing, dead = 0, 0
end
if standing > dead and n ~= ARGV[1] then
  call('HSET', barrier, 'next', ARGV[1])
  return done(0)
end
call('HSET', barrier, 'n', ARGV[1])
call('HDEL', barrier, 'next')
return done(1)
