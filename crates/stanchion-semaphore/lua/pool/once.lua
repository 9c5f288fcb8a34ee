-- semaphore/once, in front of the scripts that leave no other trace of a run: a key keeps the result until the server would
-- refuse the request as late (P6, R13: the same not_after for all attempts).

-- Returns the result of an earlier run { 1, result }, or { -1, 0 } when late.
local function before(once, not_after)
  local result = redis.call('GET', once)
  if result then return { 1, tonumber(result) } end
  local time = redis.call('TIME')
  if time[1] * 1000000 + time[2] > not_after + 0 then return { -1, 0 } end
end

-- Stores the result. The key outlives `not_after`: keys expire in the millisecond after.
local function done(once, not_after, result)
  redis.call('SET', once, result, 'PXAT', string.format('%.0f', math.floor(not_after / 1000)))
  return { 1, tonumber(result) }
end

