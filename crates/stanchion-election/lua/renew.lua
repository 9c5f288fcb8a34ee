-- election/renew
-- Lengthen the leases of many leaders. Items are independent.
--
-- KEYS[2i-1]  the hash of leader i
-- KEYS[2i]    the hash with its term
-- ARGV[1]     not_after, server time in microseconds: a later run does nothing
-- ARGV[2i]    owner
-- ARGV[2i+1]  lease in milliseconds
--
-- Returns  array: for each leader 1 renewed, 0 gone, -1 the server refused its key; or the number -1: late
-- Replay   harmless: a lease is only ever lengthened
-- Wakes    none
-- Cost     O(1) for each
local now = redis.call('TIME')
if now[1] * 1000000 + now[2] > ARGV[1] + 0 then return -1 end
local result = {}
for i = 1, #KEYS, 2 do
  local held = redis.pcall('HEXISTS', KEYS[i], ARGV[i + 1])
  if held == 1 then
    -- P10, R3: GT, so that a late duplicate never shortens a lease. PEXPIRE is allowed when memory is full (R8).
    local set = redis.pcall('PEXPIRE', KEYS[i], ARGV[i + 2], 'GT')
    redis.pcall('PEXPIRE', KEYS[i + 1], ARGV[i + 2], 'GT')
    if type(set) ~= 'number' then held = -1 end
  elseif held ~= 0 then
    held = -1
  end
  result[#result + 1] = held
end
return result
