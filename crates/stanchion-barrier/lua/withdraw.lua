-- barrier/withdraw
-- Give a place back: its party has left, and breaks the round if that is its rule. Passes at maxmemory.
--
-- KEYS[1]  barrier  hash  see barrier/arrive
-- KEYS[2]  places   zset  owner -> server ms until which its place is good
-- ARGV[1]  owner
-- ARGV[2]  why      l left, t timed out, d died
-- ARGV[3]  publish  PUBLISH or SPUBLISH
-- ARGV[4]  channel
--
-- Returns  { 1 given back, or lost before: nobody counts it, -2 there is no such place; now in us, fact: empty where there is no barrier }
-- Replay   finds no place (P6)
-- Wakes    all who wait in the round, when it breaks; a place less trips no round
-- Cost     O(log n)
local call = redis.call
local barrier, places, publish, channel = KEYS[1], KEYS[2], ARGV[3], ARGV[4]
-- @round.lua
local time = call('TIME')
local code = -2
local ends = call('ZSCORE', places, ARGV[1])
if ends then
  call('ZREM', places, ARGV[1])
  code = 1
  -- One that was lost before is none of this round.
  if gen and policy == 'b' and ends + 0 >= 0 then over(ARGV[2]) end
end
return { code, time[1] * 1000000 + time[2], gen and fact() or '' }
