-- barrier/look
-- Read the present round. Breaks it if a party is dead and the policy is to break.
--
-- KEYS[1]  barrier  hash  see barrier/arrive
-- KEYS[2]  places   zset  owner -> server ms at which its lease ends
-- ARGV[1]  first    identifies the barrier that the caller waits at
-- ARGV[2]  round    the round that the caller waits for
-- ARGV[3]  publish  PUBLISH or SPUBLISH
-- ARGV[4]  channel
--
-- Returns  { -4 - ms until the next poll, or -3: not known; now in us, fact }; -2 the barrier was deleted since
-- Replay   harmless
-- Wakes    all waiters of the round, when it breaks
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
-- A wait of many hours keeps the barrier alive.
call('PEXPIRE', barrier, '3600000', 'GT')
call('PEXPIRE', places, '3600000', 'GT')
return { code, now, fact() }
