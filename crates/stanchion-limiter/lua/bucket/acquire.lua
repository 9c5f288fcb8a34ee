-- bucket/acquire
-- Take permits of one bucket under all of its limits, book them for a later moment, or return when they are available.
--
-- KEYS[1]  bucket     string  see bucket.lua; its TTL ends one second after all its limits are full again
-- ARGV[1]  id         "<client uuid>:<number>", used for one acquire only (R1)
-- ARGV[2]  wanted     permits; 0 only reads
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  until      server time in microseconds at which they must count at the latest; 0: now
-- ARGV[5]  horizon    the furthest that one permit can be booked ahead, in ms
-- ARGV[6]  limits     `<interval in microseconds>/<permits>/<burst>`, separated by spaces
--
-- Returns  as limiter/acquire, with the least burst instead of the rate
-- Replay   if the bucket has the id: granted, and nothing is taken twice (P6); the permits count from now on if their moment has passed.
--          If another request took permits in between, the permits are taken again
-- Wakes    none
-- Cost     O(limits)
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = us - EPOCH
local wanted, horizon = ARGV[2] + 0, ARGV[5] * 1000
local id, full, stepped = read(KEYS[1], now)
local limits = limits_of(ARGV[6])
full = filled(full, limits, now)
local burst = limits[1][3]
for i = 2, #limits do burst = math.min(burst, limits[i][3]) end

-- Returns the microseconds until `more` permits count.
local function wait(more)
  local longest = 0
  -- Keep this order of operations: a sum with a moment is rounded.
  for i, limit in ipairs(limits) do longest = math.max(longest, (full[i] - now) + (more * limit[1] - limit[2])) end
  return math.ceil(longest)
end

local function granted(due)
  local free, reset = left(full, limits, now)
  local next_in = wait(1)
  local again = -1
  if next_in > horizon then again = math.ceil((next_in - horizon) / 1000) end
  -- At least one while a permit can be booked, so that the next request of the process is sent at once.
  return { again < 0 and math.max(free, 1) or 0, us, math.ceil(due / 1000), again, free, reset, burst }
end

if wanted == 0 then return granted(wait(0)) end
if id == ARGV[1] then
  -- A replayed grant is used late, so its permits count as taken now.
  for i, limit in ipairs(limits) do full[i] = math.max(full[i], now + wanted * limit[1]) end
  write(KEYS[1], id, full, now)
  return granted(wait(0))
end
-- P3: a request that outlived its caller takes nothing.
if us > ARGV[3] + 0 then return -1 end
local due = wait(wanted)
local never = due > 0 and us + due > ARGV[4] + 0
-- A request for several permits may book behind all those for one, which would otherwise starve it. The booking stays within the range that
-- `filled` accepts, because `horizon` is FURTHEST at most.
local reach = horizon
if horizon > 0 and wanted > 1 then
  for _, limit in ipairs(limits) do reach = math.max(reach, horizon + math.min(wanted * limit[1], FURTHEST / 2)) end
end
if never or due > reach then
  -- Store the step of the clock. Otherwise the next request would find the same step, and the bucket would stop refilling.
  if stepped then write(KEYS[1], id, full, now) end
  local free, reset = left(full, limits, now)
  return { -4 - math.max(math.ceil((due - reach) / 1000), 0), us, never and 1 or 0, math.ceil(due / 1000), free, reset, burst }
end
-- If another limit delays the request, the permits of this limit are taken at that later moment.
for i, limit in ipairs(limits) do full[i] = math.max(full[i], now + due) + wanted * limit[1] end
write(KEYS[1], ARGV[1], full, now)
return granted(due)
