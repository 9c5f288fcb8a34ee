-- double/look
-- Read the present half round. Ends it if all parties inside are dead.
--
-- KEYS[1]  barrier  hash  see double/enter
-- KEYS[2]  places   zset  owner -> server ms at which its lease ends
-- ARGV[1]  first    identifies the barrier that the caller waits at
-- ARGV[2]  round    the half round that the caller waits for
-- ARGV[3]  publish  PUBLISH or SPUBLISH
-- ARGV[4]  channel
--
-- Returns  { -4 - ms until the next poll, or -3: not known; now in us, fact }; -2 the barrier was deleted since
-- Replay   harmless
-- Wakes    all waiters, to leave or to enter, when the round ends
-- Cost     O(log n), and the dead places
local call = redis.call
local barrier, places, publish, channel = KEYS[1], KEYS[2], ARGV[3], ARGV[4]
-- @half.lua
if not gen or first ~= ARGV[1] or gen + 0 < ARGV[2] + 0 then return -2 end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local code = -3
if gen == ARGV[2] and inside() then
  local ms = math.floor(now / 1000)
  bury(ms)
  local earliest = call('ZRANGE', places, 0, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  if earliest then
    code = -4 - (earliest - ms)
  else
    over()
  end
end
-- A wait of many hours keeps the barrier alive.
call('PEXPIRE', barrier, '3600000', 'GT')
call('PEXPIRE', places, '3600000', 'GT')
return { code, now, fact() }
