-- rwlock/renew_read
-- Extend the leases of many read holds: the hash and the hold key of each. Items are independent.
--
-- KEYS[3i-2]  the hash of hold i
-- KEYS[3i-1]  its hold key
-- KEYS[3i]    zset of that lock: reader -> end of its lease, server ms
-- ARGV[1]     not_after, server time in microseconds: a run after it does nothing
-- ARGV[2i]    field of hold i: its owner
-- ARGV[2i+1]  lease of hold i in milliseconds
--
-- Returns  array: for each hold 1 renewed, 0 gone, -1 the server refused its keys; or the number -1: late
-- Replay   harmless: a lease is only ever lengthened
-- Wakes    no waiter
-- Cost     O(log n) for each hold of a lock with n readers
local time = redis.call('TIME')
if time[1] * 1000000 + time[2] > ARGV[1] + 0 then return -1 end
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local result = {}
for i = 1, #KEYS, 3 do
  local at = (i - 1) / 3 * 2
  local owner, lease = ARGV[at + 2], ARGV[at + 3]
  local held = redis.pcall('HEXISTS', KEYS[i], owner)
  if held == 1 then
    -- P10, R3: GT, so that a late duplicate never shortens. PEXPIRE is allowed when memory is full, and then so is SET (R8).
    local main = redis.pcall('PEXPIRE', KEYS[i], lease, 'GT')
    local own = redis.pcall('PEXPIRE', KEYS[i + 1], lease, 'GT')
    if own == 0 and redis.call('EXISTS', KEYS[i + 1]) == 0 then
      -- The field has outlived the hold key, so no writer can have been granted.
      own = redis.pcall('SET', KEYS[i + 1], '1', 'PX', lease)
    end
    local ends = redis.pcall('ZADD', KEYS[i + 2], 'XX', 'GT', now + lease, owner)
    redis.pcall('PEXPIRE', KEYS[i + 2], lease, 'GT')
    if type(ends) ~= 'number' then main = ends end
    if type(main) ~= 'number' or (type(own) == 'table' and own.err) then held = -1 end
  elseif held ~= 0 then
    held = -1
  end
  result[#result + 1] = held
end
return result
