-- semaphore/once, in front of the scripts whose runs nothing tells apart: a key remembers the result until the server would
-- refuse the request as late (P6, R13: the same not_after for all attempts).

-- The result of an earlier run, or late: { 1, result } or { -1, 0 }.
local function before(once, not_after)
  local result = redis.call('GET', once)
  if result then return { 1, tonumber(result) } end
  local time = redis.call('TIME')
  if time[1] * 1000000 + time[2] > not_after + 0 then return { -1, 0 } end
end

-- Remembers the result. The key outlives `not_after`: keys expire by the millisecond after.
local function done(once, not_after, result)
  redis.call('SET', once, result, 'PXAT', string.format('%.0f', math.floor(not_after / 1000)))
  return { 1, tonumber(result) }
end

