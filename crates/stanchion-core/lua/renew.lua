-- core/renew
-- Lengthen the leases of many holds that are fields of hashes: lock, fair lock, write lock. Items are independent.
--
-- KEYS[i]      the hash of hold i
-- ARGV[1]      not_after, server time in microseconds: a run after it does nothing
-- ARGV[2i]     field of hold i: its owner
-- ARGV[2i+1]   lease of hold i in milliseconds
--
-- Returns  array: for each hold 1 renewed, 0 gone, -1 the server refused this key; or the number -1: late
-- Replay   harmless: a lease is only ever lengthened
-- Wakes    no waiter
-- Cost     O(1) for each hold, about 1 us in a batch of 100
local now = redis.call('TIME')
if now[1] * 1000000 + now[2] > ARGV[1] + 0 then return -1 end
local result = {}
for i = 1, #KEYS do
  local held = redis.pcall('HEXISTS', KEYS[i], ARGV[2 * i])
  if held == 1 then
    -- P10, rule R3: GT, so that a late duplicate never shortens. PEXPIRE is allowed when memory is full (R8).
    local set = redis.pcall('PEXPIRE', KEYS[i], ARGV[2 * i + 1], 'GT')
    if type(set) ~= 'number' then held = -1 end
  elseif held ~= 0 then
    held = -1
  end
  result[i] = held
end
return result
