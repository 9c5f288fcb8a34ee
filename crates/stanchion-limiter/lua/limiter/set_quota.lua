-- limiter/set_quota
-- Set the quota: Redisson's setRate with its arguments, except that bookings stay counted.
--
-- KEYS[1]  config     hash        see acquire.lua
-- KEYS[2]  value      string
-- KEYS[3]  own value  string
-- KEYS[4]  log        sorted set
-- KEYS[5]  own log    sorted set
-- KEYS[6]  once       string      this operation has run; expires at not_after
-- ARGV[1]  rate
-- ARGV[2]  interval   ms
-- ARGV[3]  type       0 for all clients together, 1 for each client
-- ARGV[4]  keep       ms, at most ten years; 0: no limit
-- ARGV[5]  state      keep or reset the permits in use
-- ARGV[6]  not_after  server time in microseconds; later the script refuses
-- ARGV[7]  channel
-- ARGV[8]  publish    PUBLISH or SPUBLISH
--
-- Returns  1 done, -1 late
-- Replay   if the once key exists: done, and nothing that was taken since is forgotten (P6, R13)
-- Wakes    the waiters beyond the horizon, in every process
-- Cost     O(entries)
local _, _, before = stored_in(KEYS[1])
if call('GET', KEYS[6]) then return 1 end
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
if us > ARGV[6] + 0 then return -1 end
local kind, keeps = ARGV[3] + 0, math.min(ARGV[4] + 0, LONGEST)
local value_key, log = KEYS[2 + kind], KEYS[4 + kind]
-- HSET comes first: if Redis refuses it at maxmemory, nothing has been written.
call('HSET', KEYS[1], 'rate', ARGV[1], 'interval', ARGV[2], 'type', ARGV[3], 'keepAliveTime', keeps)
if before and before ~= kind then
  call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
elseif ARGV[5] == 'reset' then
  call('DEL', value_key, log)
else
  call('ZREMRANGEBYSCORE', log, '-inf', math.floor(us / 1000) - ARGV[2])
  call('SET', value_key, string.format('%.0f', ARGV[1] - total(log)))
end
keep(KEYS[1], value_key, log, keeps)
-- The key lives through the millisecond of not_after, so a resent request finds the key, or is late (R13).
call('SET', KEYS[6], '1', 'PXAT', string.sub(ARGV[6], 1, -4))
redis.pcall(ARGV[8], ARGV[7], 'q')
return 1
