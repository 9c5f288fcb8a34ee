-- limiter/refund
-- Give back what a request has taken or booked.
--
-- KEYS[1]  config     hash        see acquire.lua
-- KEYS[2]  value      string
-- KEYS[3]  own value  string
-- KEYS[4]  log        sorted set
-- KEYS[5]  own log    sorted set
-- ARGV[1]  entry      of the request
-- ARGV[2]  permits    that it wanted
--
-- Returns  { 0 done, permits that are free now }; -2 there is no such entry: it has ended, was merged with others, or was never made
-- Replay   finds nothing (P6)
-- Wakes    nobody: who waits has a moment of its own, and the next that asks finds the place
-- Cost     O(log n)
local _, interval = stored_in(KEYS[1])
local time = call('TIME')
local ended = math.floor((time[1] * 1000000 + time[2]) / 1000) - (interval or 0)
for i = 0, 1 do
  local at = call('ZSCORE', KEYS[4 + i], ARGV[1])
  -- It has ended: its permits have come back by themselves, and the next request counts them.
  if at and interval and at + 0 <= ended then return -2 end
  -- Passes at maxmemory (R8).
  if at and call('ZREM', KEYS[4 + i], ARGV[1]) == 1 then
    -- Without the counter there is nothing to correct: it is made from the log.
    if call('EXISTS', KEYS[2 + i]) == 0 then return { 0, 0 } end
    return { 0, math.max(call('INCRBY', KEYS[2 + i], ARGV[2]), 0) }
  end
end
return -2
