-- barrier/renew
-- Lengthen the leases of many places. Items are independent.
--
-- KEYS[2i-1]   barrier   the hash of place i
-- KEYS[2i]     places    the zset of place i
-- ARGV[1]      not_after, server time in microseconds: a later run does nothing
-- ARGV[3i-1]   owner of place i
-- ARGV[3i]     its lease in milliseconds
-- ARGV[3i+1]   the last round for which the place counts
--
-- Returns  array: for each place 1 renewed, or its round is over; 0 gone, -1 the server refused this key; or the number -1: late
-- Replay   harmless: a lease is only ever lengthened
-- Wakes    none
-- Cost     O(log n) for each place
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[1] + 0 then return -1 end
local ms = math.floor(now / 1000)
-- Removes nothing. ZREM is allowed at maxmemory, and makes Redis allow the ZADD after it (R8).
redis.pcall('ZREM', KEYS[2], '')
local result = {}
for i = 1, #KEYS / 2 do
  local barrier, places, owner, lease = KEYS[2 * i - 1], KEYS[2 * i], ARGV[3 * i - 1], ARGV[3 * i]
  local ends = redis.pcall('ZSCORE', places, owner)
  if type(ends) == 'string' and ends + 0 < ms then
    -- P5: the place was lost, and the round may continue without it, or be over.
    result[i] = 0
  elseif type(ends) == 'string' then
    -- P10, R3: GT, so that a late duplicate never shortens the lease.
    local set = redis.pcall('ZADD', places, 'XX', 'GT', string.format('%.0f', ms + lease), owner)
    result[i] = type(set) == 'number' and 1 or -1
    local hour = math.max(3600000, lease + 0)
    redis.pcall('PEXPIRE', barrier, hour, 'GT')
    redis.pcall('PEXPIRE', places, hour, 'GT')
  elseif ends then
    result[i] = -1
  else
    local gen = redis.pcall('HGET', barrier, 'gen')
    if type(gen) == 'table' then
      result[i] = -1
    else
      -- The round has ended since the client sent this renewal. That is not a loss: a message about the end is on its way to the party.
      result[i] = gen and gen + 0 > ARGV[3 * i + 1] + 0 and 1 or 0
    end
  end
end
return result
