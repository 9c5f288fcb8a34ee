-- leased/acquire
-- Take permits if enough are free and not kept back, or confirm that this owner has them already.
--
-- KEYS[1]  free       string      the number of free permits (Redisson's layout); missing: none
-- KEYS[2]  leases     sorted set  permit id, 16 raw bytes -> end of its lease, server time in ms (Redisson's layout); the TTL of
--                                 `free`, mostly none: a request that finds too few free permits reaps ended leases
-- KEYS[3]  line       list        see line.lua
-- KEYS[4]  crowd      sorted set  see crowd.lua
-- KEYS[5]  wake       hash        see crowd.lua
-- KEYS[6]  slow       hash        see line.lua
-- KEYS[7]  idle       string      see idle.lua
-- ARGV[1]  owner      "<client uuid>:<number>", used for one acquire only (R1)
-- ARGV[2]  ids        concatenated: one for each permit that is wanted
-- ARGV[3]  lease      milliseconds
-- ARGV[4]  not_after  server time in microseconds; later the script refuses
-- ARGV[5]  waits      when refused: 0 do not wait; 1 wait behind another of its process; 2 wait as its first, and join the line if need be
-- ARGV[6]  reap       the most ended leases to reap
-- ARGV[7]  channel
-- ARGV[8]  publish    PUBLISH or SPUBLISH
-- ARGV[9]  client     the uuid of its client, if it waits and hears messages; otherwise empty
-- ARGV[10] flags      the sum of 1 it was told by message, 2 its client hears Redisson's releases, 4 others of its process wait, 8 told by a reply, and
--                     16 for each permit that its process was told of and has nobody for
-- ARGV[11] kept       ms for which one who waits keeps a semaphore that ends, and asks again before
-- ARGV[12] made       "<ms> <permits>": make a missing semaphore, which ends; otherwise empty
--
-- Returns  >= 0 acquired: the number of permits that others can still have; -1 late; -4 - ms busy: ask again after ms, when a lease
--          ends (-3: on a message); with a sign { -4 - ms, server time in microseconds, 1 in line or 2 passed over: see refused.lua };
--          with a client { -4 - ms, server time, 0 or that sign, 1 to hear Redisson's releases for the crowd or 2 to stop }
-- Replay   the ids are there: granted, their leases only ever lengthened (P6, R3); the process is in the crowd if others of it wait, as after
--          the first run
-- Wakes    waiters, for reaped permits and those of a new semaphore that it does not take itself, and when permits are no longer kept back
--          for it
-- Cost     O(wanted + reap, log n); refused, and for more than one permit: O(places in line), at most 16, and O(holders), up to 256
local call = redis.call
local free, exists = free_in(KEYS[1])
local ids, held = {}, 0
for at = 1, #ARGV[2], 16 do
  local id = string.sub(ARGV[2], at, at + 15)
  ids[#ids + 1] = id
  if call('ZSCORE', KEYS[2], id) then held = held + 1 end
end
local wanted = #ids
local place = ARGV[1] .. ' ' .. wanted

-- P3: a request that outlived its caller takes nothing.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[4] + 0 then return -1 end
local ms = math.floor(now / 1000)
local ends = string.format('%.0f', ms + ARGV[3])

-- Returns the permits that are free then, and true if this owner has taken its own.
local function take()
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
  return free, true
end

-- The common case, without the functions for those who wait.
if held == 0 and free >= wanted and (ARGV[10] == '0' or ARGV[10] == '2') and call('EXISTS', KEYS[3], KEYS[4], KEYS[5], KEYS[7]) == 0 then return (take()) end

-- @crowd.lua
-- Permits that become free here without a release.
local found = 0
local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[7], plain = false }
if not exists and ARGV[12] ~= '' then
  free = make(it, ARGV[12])
  found, held = free, 0
end
-- Before permits are taken, or leases lengthened: refused, it has done nothing, and no lease outlasts the semaphore.
local idle = idle_of(it)
if idle then used(it, idle, free, idle.ms + ARGV[3]) end
local waits = idle and ARGV[5] ~= '0'

local first = first_in(KEYS[3])
local client, told, hears, more, prompted, surplus = ARGV[9], flags_of(ARGV[10] + 0)
local to = { line = KEYS[3], crowd = KEYS[4], wake = KEYS[5], base = ARGV[7], publish = ARGV[8], single = wanted == 1 and not more and can_be_granted(KEYS[1]) }
if told then asked(to, wanted + surplus) end
local reserved = kept_back(first, place, ms)

if held == wanted then
  -- Removes nothing, passes at maxmemory, and lets ZADD pass (R8).
  call('ZREM', KEYS[2], '')
  for _, id in ipairs(ids) do call('ZADD', KEYS[2], 'XX', 'GT', ends, id) end
  -- A replay ends as the first run: its reply says whether the process is in the crowd.
  return granted(to, client, now, hears, more, math.max(free, 0), reserved, 0)
end
if held > 0 then
  -- An earlier run took them, and some of its leases have been reaped since: start over.
  call('ZREM', KEYS[2], unpack(ids))
  found = held
  free = call('INCRBY', KEYS[1], held)
end
if free < wanted + reserved then
  local ended = call('ZRANGEBYSCORE', KEYS[2], '-inf', ms, 'LIMIT', 0, ARGV[6])
  if #ended > 0 then
    call('ZREM', KEYS[2], unpack(ended))
    found = found + #ended
    free = call('INCRBY', KEYS[1], #ended)
  end
end

-- Redisson's "no lease" never ends.
local NEVER = '(922337203685477'
local function count() return call('ZCOUNT', KEYS[2], '-inf', NEVER) end
local function list(most)
  local leased, permits = call('ZRANGEBYSCORE', KEYS[2], '-inf', NEVER, 'LIMIT', 0, most), {}
  for i = 1, #leased do permits[i] = 1 end
  return leased, permits
end

if free < wanted + reserved then
  if waits then used(it, idle, free, ARGV[11] + 0) end
  local again, sign, open = refused(KEYS[3], KEYS[6], first, place, wanted, free, ms, ARGV[5], count, list)
  if open or found > 0 then announce(to, free) end
  local next_end = call('ZRANGEBYSCORE', KEYS[2], '-inf', NEVER, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return busy(to, again, now, sign, client, hears, told, client == '' and ARGV[5] ~= '0', next_end and math.max(next_end - ms, 0))
end
local mine = first and first.place == place
if client ~= '' and not prompted and not mine and found == 0 and free - promised(to, now) < wanted then
  if waits then used(it, idle, free, ARGV[11] + 0) end
  return behind(to, now, client, hears)
end

local left, taken = take()
if not taken then return left end
if first and leave(KEYS[3], place, first) == 1 then first = first_in(KEYS[3]) end
return granted(to, client, now, hears, more, left, kept_back(first, place, ms), found)
