-- double/leave
-- Give a place back. The last party to leave ends the round. Works at maxmemory.
--
-- KEYS[1]  barrier  hash  see double/enter
-- KEYS[2]  places   zset  owner -> server ms at which its lease ends
-- ARGV[1]  owner
-- ARGV[2]  until    the last half round in which the place is given back
-- ARGV[3]  publish  PUBLISH or SPUBLISH
-- ARGV[4]  channel
--
-- Returns  { 1 given back, 0 kept because a later half round began with it, -2 no such place; now in us, fact ('' without a barrier) }
-- Replay   finds no place (P6)
-- Wakes    all waiters for the end of this round and for the next round, when the last party has left
-- Cost     O(log n), and the dead places
local call = redis.call
local barrier, places, publish, channel = KEYS[1], KEYS[2], ARGV[3], ARGV[4]
-- @half.lua
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local ends = call('ZSCORE', places, ARGV[1])
-- A place below zero was lost before.
if gen and gen + 0 > ARGV[2] + 0 and ends and ends + 0 >= 0 then return { 0, now, fact() } end
local code = call('ZREM', places, ARGV[1]) == 1 and 1 or -2
if gen and inside() then
  bury(math.floor(now / 1000))
  if call('ZCOUNT', places, 0, '+inf') == 0 then over() end
end
return { code, now, gen and fact() or '' }
