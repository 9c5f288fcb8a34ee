-- semaphore/acquire
-- Take permits if enough are free and not kept back, or confirm that this owner has them already.
--
-- KEYS[1]  free       string      the number of free permits (Redisson's layout); missing: none
-- KEYS[2]  ledger     hash        owner -> permits; no TTL, because it exists exactly while permits are held
-- KEYS[3]  line       list        see line.lua
-- KEYS[4]  crowd      sorted set  see crowd.lua
-- KEYS[5]  wake       hash        see crowd.lua
-- KEYS[6]  slow       hash        see line.lua
-- KEYS[7]  idle       string      see idle.lua
-- ARGV[1]  owner      "<client uuid>:<number>", used for one acquire only (R1)
-- ARGV[2]  wanted     permits, at least 1
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  waits      when refused: 0 do not wait; 1 wait behind another of its process; 2 wait as its first, and join the line if need be
-- ARGV[5]  channel
-- ARGV[6]  publish    PUBLISH or SPUBLISH
-- ARGV[7]  client     the uuid of its client, if it waits and hears messages; otherwise empty
-- ARGV[8]  flags      the sum of 1 it was told by message, 2 its client hears Redisson's releases, 4 others of its process wait, 8 told by a reply, and
--                     16 for each permit that its process was told of and has nobody for
-- ARGV[9]  kept       ms for which one who waits keeps a semaphore that ends, and asks again before
-- ARGV[10] made       "<ms> <permits>": make a missing semaphore, which ends; otherwise empty
--
-- Returns  >= 0 acquired: the number of permits that others can still have; -1 late; -4 - ms busy: ask again after ms (-3: on a
--          message); with a sign { -4 - ms, server time in microseconds, 1 in line or 2 passed over: see refused.lua }; with a client
--          { -4 - ms, server time, 0 or that sign, 1 to hear Redisson's releases for the crowd or 2 to stop }
-- Replay   the ledger has the owner: granted, and nothing is taken again (P6); the process is in the crowd if others of it wait, as after
--          the first run
-- Wakes    waiters, when permits are no longer kept back for it, or it made the semaphore
-- Cost     O(1); refused, and for more than one permit: O(places in line), at most 16, and O(holders), up to 256
local call = redis.call
local free, exists = free_in(KEYS[1])
local wanted, place = ARGV[2] + 0, ARGV[1] .. ' ' .. ARGV[2]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- Returns the permits that are free then, and true if this owner has taken its own now.
local function take()
  if call('HSET', KEYS[2], ARGV[1], ARGV[2]) == 0 then return free end
  local left = redis.pcall('DECRBY', KEYS[1], ARGV[2])
  if type(left) == 'number' then return left, true end
  call('HDEL', KEYS[2], ARGV[1])
  return left
end

-- The common case, without the functions for those who wait.
if free >= wanted and (ARGV[8] == '0' or ARGV[8] == '2') and call('EXISTS', KEYS[3], KEYS[4], KEYS[5], KEYS[7]) == 0 then
  -- P3: a request that outlived its caller takes nothing.
  if now > ARGV[3] + 0 then return -1 end
  return (take())
end

-- @crowd.lua
local ms = math.floor(now / 1000)
local first = first_in(KEYS[3])
local client, told, hears, more, prompted, surplus = ARGV[7], flags_of(ARGV[8] + 0)
local to = { line = KEYS[3], crowd = KEYS[4], wake = KEYS[5], base = ARGV[5], publish = ARGV[6] }
if told then asked(to, wanted + surplus) end

local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[7], plain = true }
-- P3: a request that outlived its caller leaves nothing behind.
local new = not exists and ARGV[10] ~= '' and now <= ARGV[3] + 0
if new then free, exists = make(it, ARGV[10]), true end
local idle = idle_of(it)
local least = ARGV[4] == '0' and 0 or ARGV[9] + 0

local function count() return call('HLEN', KEYS[2]) end
local function list(most)
  local ids, permits = {}, {}
  local flat = count() <= most and call('HGETALL', KEYS[2]) or call('HRANDFIELD', KEYS[2], most, 'WITHVALUES')
  for i = 1, #flat, 2 do ids[#ids + 1], permits[#permits + 1] = flat[i], flat[i + 1] end
  return ids, permits
end

-- A replay ends as the first run: its reply says whether the process is in the crowd.
if call('HGET', KEYS[2], ARGV[1]) then
  if now > ARGV[3] + 0 then return -1 end
  return granted(to, client, now, hears, more, math.max(free, 0), kept_back(first, place, ms), 0)
end
if free < wanted + kept_back(first, place, ms) then
  -- P3: a request that outlived its caller leaves nothing behind.
  if now > ARGV[3] + 0 and ARGV[4] ~= '0' then return -1 end
  -- A semaphore that does not exist has no holders.
  if not exists then call('DEL', KEYS[2]) end
  if idle then used(it, idle, free, least) end
  local again, sign, open = refused(KEYS[3], KEYS[6], first, place, wanted, free, ms, ARGV[4], count, list)
  if open or new then announce(to, free) end
  return busy(to, again, now, sign, client, hears, told, client == '' and ARGV[4] ~= '0')
end

-- P3: a request that outlived its caller takes nothing.
if now > ARGV[3] + 0 then return -1 end
local mine = first and first.place == place
if client ~= '' and not prompted and not mine and free - promised(to, now) < wanted then
  if idle then used(it, idle, free, least) end
  return behind(to, now, client, hears)
end
-- Before the permits are taken: refused, it has taken none.
if idle then holds(it, idle) end
local left, taken = take()
if not taken then
  if idle then used(it, idle, free, 0) end
  return left
end
if first and leave(KEYS[3], place, first) == 1 then first = first_in(KEYS[3]) end
return granted(to, client, now, hears, more, left, kept_back(first, place, ms), 0)
