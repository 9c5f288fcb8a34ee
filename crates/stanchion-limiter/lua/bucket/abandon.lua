-- bucket/abandon
-- Give back what a request has taken or booked, unless the bucket has granted another request since.
--
-- KEYS[1]  bucket   string  see bucket.lua
-- ARGV[1]  id       of the request
-- ARGV[2]  permits  the permits of the request
-- ARGV[3]  limits   see acquire.lua
--
-- Returns  0 done, -2 the last grant belongs to another request, or all of its permits have come back already
-- Replay   finds no such id (P6)
-- Wakes    none: see limiter/refund
-- Cost     O(limits)
local time = call('TIME')
local now = time[1] * 1000000 + time[2] - EPOCH
local id, full = read(KEYS[1], now)
if id ~= ARGV[1] then return -2 end
local late = true
for i, limit in ipairs(limits_of(ARGV[3])) do
  if full[i] then
    late = late and full[i] <= now
    full[i] = full[i] - ARGV[2] * limit[1]
  end
end
if late then return -2 end
-- DEL is allowed at maxmemory, and makes Redis allow the SET after it (R8).
call('DEL', KEYS[1])
write(KEYS[1], '-', full, now)
return 0
