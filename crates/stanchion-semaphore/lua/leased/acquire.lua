-- leased/acquire
-- Take permits if so many are free and not kept back, or find that these ids are taken for this owner already.
--
-- KEYS[1]  free       string      the permits that nobody holds (Redisson's layout); missing: none
-- KEYS[2]  leases     sorted set  permit id, 16 raw bytes -> end of its lease, server time in ms (Redisson's layout); the TTL of
--                                 `free`, mostly none: ended leases are reaped by whoever is short of permits
-- KEYS[3]  line       list        see line.lua
-- ARGV[1]  owner      "<client uuid>:<number>", used for one acquire only (R1)
-- ARGV[2]  ids        one behind the other: as many as permits are wanted
-- ARGV[3]  lease      milliseconds
-- ARGV[4]  not_after  server time in microseconds; later the script refuses
-- ARGV[5]  waits      1: when refused it may stand in line
-- ARGV[6]  reap       how many ended leases to reap at most
-- ARGV[7]  channel
-- ARGV[8]  publish    PUBLISH or SPUBLISH
--
-- Returns  >= 0 acquired, and so many more could be; -1 late, -4 - ms busy: ask again after so long, when a lease ends (-3: when there is a message); when it
--          stands in line { -4 - ms, server time in microseconds, 1 }
-- Replay   the ids are there: granted, their leases only ever lengthened (P6, R3)
-- Wakes    waiters for reaped permits that it does not take itself
-- Cost     O(wanted + reap, log n); refused: O(places in line), at most 16
local call = redis.call
local free = free_in(KEYS[1])
local ids, held = {}, 0
for at = 1, #ARGV[2], 16 do
  local id = string.sub(ARGV[2], at, at + 15)
  ids[#ids + 1] = id
  if call('ZSCORE', KEYS[2], id) then held = held + 1 end
end
local wanted = #ids
local place = ARGV[1] .. ' ' .. wanted
local kept, first = kept_back(KEYS[3], place, ARGV[5])

-- P3: a request that outlived its caller takes nothing.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[4] + 0 then return -1 end
local ms = math.floor(now / 1000)
local ends = string.format('%.0f', ms + ARGV[3])

if held == wanted then
  -- Nothing to remove: passes at maxmemory, and lets ZADD pass (R8).
  call('ZREM', KEYS[2], '')
  for _, id in ipairs(ids) do call('ZADD', KEYS[2], 'XX', 'GT', ends, id) end
  return math.max(free, 0)
end

-- Permits that come free here although nobody released them.
local found = 0
if held > 0 then
  -- An earlier run took them, and some of its leases have been reaped since: begin anew.
  call('ZREM', KEYS[2], unpack(ids))
  found = held
  free = call('INCRBY', KEYS[1], held)
end
if free < wanted + kept then
  local ended = call('ZRANGEBYSCORE', KEYS[2], '-inf', ms, 'LIMIT', 0, ARGV[6])
  if #ended > 0 then
    call('ZREM', KEYS[2], unpack(ended))
    found = found + #ended
    free = call('INCRBY', KEYS[1], #ended)
  end
end

-- Whether so many can come together when all leases have ended. Nothing is kept back for a request that cannot be served.
local function possible(permits)
  return free + call('ZCARD', KEYS[2]) >= permits
end

local short = free < wanted
if short or (free < wanted + kept and possible(kept)) then
  if found > 0 and free > 0 then redis.pcall(ARGV[8], ARGV[7], free) end
  local again, stands = math.huge, false
  -- Kept back for somebody who may be dead: that ends without a message.
  if not short then again = math.max(call('PTTL', KEYS[3]), 0) end
  if ARGV[5] == '1' and (first or wanted > 1) then
    if not possible(wanted) then
      leave(KEYS[3], place, first)
    elseif stand(KEYS[3], place, first) then
      again, stands = BEAT, true
    end
  end
  local next_end = call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
  -- Redisson's "no lease".
  if next_end and next_end + 0 < 922337203685477 then again = math.min(again, math.max(next_end - ms, 0)) end
  if stands then return { -4 - again, now, 1 } end
  return again == math.huge and -3 or -4 - again
end

free = call('DECRBY', KEYS[1], wanted)
local scored = {}
for i, id in ipairs(ids) do
  scored[2 * i - 1] = ends
  scored[2 * i] = id
end
local added = redis.pcall('ZADD', KEYS[2], unpack(scored))
if type(added) ~= 'number' then
  call('INCRBY', KEYS[1], wanted)
  return added
end
local ttl = call('PTTL', KEYS[1])
if ttl > 0 then call('PEXPIRE', KEYS[2], ttl) end
if found > 0 and free > 0 then redis.pcall(ARGV[8], ARGV[7], free) end
if first then
  leave(KEYS[3], place, first)
  free = free - kept_back(KEYS[3], place, ARGV[5])
end
return math.max(free, 0)
