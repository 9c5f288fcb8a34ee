-- limiter/refund
-- Give back what a request has taken or booked.
--
-- KEYS[1]  config     hash        see acquire.lua
-- KEYS[2]  value      string
-- KEYS[3]  own value  string
-- KEYS[4]  log        sorted set
-- KEYS[5]  own log    sorted set
-- ARGV[1]  entry      of the request
-- ARGV[2]  permits    the permits of the request
--
-- Returns  { 0 done, permits that are free now }; -2 there is no such entry: it has ended, was merged with others, or never existed
-- Replay   finds nothing (P6)
-- Wakes    none: each waiter has its own moment, and the next request takes the free place
-- Cost     O(log n)
local _, interval = stored_in(KEYS[1])
local time = call('TIME')
local ended = math.floor((time[1] * 1000000 + time[2]) / 1000) - (interval or 0)
for i = 0, 1 do
  local at = call('ZSCORE', KEYS[4 + i], ARGV[1])
  -- The entry has ended: its permits are free again, and the next request counts them.
  if at and interval and at + 0 <= ended then return -2 end
  -- Allowed at maxmemory (R8).
  if at and call('ZREM', KEYS[4 + i], ARGV[1]) == 1 then
    -- A missing counter needs no correction, because the next request computes it from the log.
    if call('EXISTS', KEYS[2 + i]) == 0 then return { 0, 0 } end
    return { 0, math.max(call('INCRBY', KEYS[2 + i], ARGV[2]), 0) }
  end
end
return -2
