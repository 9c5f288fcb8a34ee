-- limiter/status
-- Read the quota and its use. Writes nothing.
--
-- KEYS[1]  config     hash        see acquire.lua
-- KEYS[2]  value      string
-- KEYS[3]  own value  string
-- KEYS[4]  log        sorted set
-- KEYS[5]  own log    sorted set
--
-- Returns  { 0 there is no limiter }, or { 1, rate, interval, type, keep-alive time, free permits (negative: booked), entries, ms until a
--          permit is free, ms until all are free }
-- Replay   harmless
-- Wakes    none
-- Cost     O(entries)
local time = call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
local rate, interval, kind, keeps = stored_in(KEYS[1])
if not (rate and interval and kind) then return { 0 } end
local log = KEYS[4 + kind]
local value = value_in(KEYS[2 + kind])
local ended, count, sum = 0, 0, 0
local all = call('ZRANGE', log, 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local permits = permits_in(all[i])
  if all[i + 1] + 0 <= now - interval then
    ended = ended + permits
  else
    sum, count = sum + permits, count + 1
  end
end
local free = value and math.min(value + ended, rate) or rate - sum
local wait, rest = 0, free
for i = 1, #all, 2 do
  if rest >= 1 then break end
  local score = all[i + 1] + 0
  if score > now - interval then rest, wait = rest + permits_in(all[i]), score + interval - now end
end
local full = count > 0 and all[#all] + interval - now or 0
return { 1, rate, interval, kind, keeps or 0, free, count, wait, full }
