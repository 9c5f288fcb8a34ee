-- barrier/look
-- Say what the present round is. Breaks it if a dead party does.
--
-- KEYS[1]  barrier  hash  see barrier/arrive
-- KEYS[2]  places   zset  owner -> server ms until which its place is good
-- ARGV[1]  first    of the barrier that is asked after
-- ARGV[2]  round    that is asked after
-- ARGV[3]  publish  PUBLISH or SPUBLISH
-- ARGV[4]  channel
--
-- Returns  { -4 - ms after which to look again, or -3: not known; now in us, fact }; -2 the barrier was deleted since
-- Replay   harmless
-- Wakes    all who wait in the round, when it breaks
-- Cost     O(log n)
local call = redis.call
local barrier, places, publish, channel = KEYS[1], KEYS[2], ARGV[3], ARGV[4]
-- @round.lua
if not gen or first ~= ARGV[1] or gen + 0 < ARGV[2] + 0 then return -2 end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local ms = math.floor(now / 1000)
local code = -3
if gen == ARGV[2] and policy == 'b' then
  local earliest = call('ZRANGE', places, 0, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  if earliest and earliest + 0 < ms then
    over('d')
  elseif earliest then
    code = -4 - (earliest - ms)
  end
end
-- Who waits for hours keeps the barrier.
call('PEXPIRE', barrier, '3600000', 'GT')
call('PEXPIRE', places, '3600000', 'GT')
return { code, now, fact() }
