-- barrier/withdraw
-- Give a place back, because its party has left. Breaks the round if that is the policy. Works at maxmemory.
--
-- KEYS[1]  barrier  hash  see barrier/arrive
-- KEYS[2]  places   zset  owner -> server ms at which its lease ends
-- ARGV[1]  owner
-- ARGV[2]  why      l left, t timed out, d died
-- ARGV[3]  publish  PUBLISH or SPUBLISH
-- ARGV[4]  channel
--
-- Returns  { 1 given back, or lost before and not counted; -2 no such place; now in us, fact ('' without a barrier) }
-- Replay   finds no place (P6)
-- Wakes    all waiters of the round, when it breaks; otherwise none, because a free place trips no round
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
  -- A place that was lost before does not belong to this round.
  if gen and policy == 'b' and ends + 0 >= 0 then over(ARGV[2]) end
end
return { code, time[1] * 1000000 + time[2], gen and fact() or '' }
