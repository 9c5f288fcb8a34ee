-- barrier/renew
-- Lengthen the leases of many places. Items are independent.
--
-- KEYS[i]      the places with place i
-- ARGV[1]      not_after, server time in microseconds: a run after it does nothing
-- ARGV[2i]     owner of place i
-- ARGV[2i+1]   its lease in milliseconds
--
-- Returns  array: for each place 1 renewed, 0 gone (a round that trips ends its places), -1 the server refused this key; or the number -1: late
-- Replay   harmless: a lease is only ever lengthened
-- Wakes    nobody
-- Cost     O(log n) for each place
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[1] + 0 then return -1 end
local ms = math.floor(now / 1000)
-- Removes nothing, passes at maxmemory, and lets ZADD pass (R8).
redis.pcall('ZREM', KEYS[1], '')
local result = {}
for i = 1, #KEYS do
  local ends = redis.pcall('ZSCORE', KEYS[i], ARGV[2 * i])
  if not ends then
    result[i] = 0
  elseif type(ends) ~= 'string' then
    result[i] = -1
  else
    -- P10, R3: GT, so that a late duplicate never shortens.
    local set = redis.pcall('ZADD', KEYS[i], 'XX', 'GT', string.format('%.0f', ms + ARGV[2 * i + 1]), ARGV[2 * i])
    result[i] = type(set) == 'number' and 1 or -1
  end
end
return result
