-- leased/hand_off
-- Pass permits to another owner of the same process in one step, if no other process waits. Otherwise release them.
--
-- KEYS[1]  free     string      the number of free permits
-- KEYS[2]  leases   sorted set  permit id -> end of its lease; the TTL of `free`, mostly none
-- KEYS[3]  line     list        see line.lua
-- KEYS[4]  crowd    sorted set  see crowd.lua
-- KEYS[5]  wake     hash        see crowd.lua
-- KEYS[6]  idle     string      see idle.lua
-- ARGV[1]  to         ids of 16 bytes each, concatenated: those that the new owner gets
-- ARGV[2]  lease      milliseconds, of the new owner
-- ARGV[3]  not_after  server time in microseconds; later this is a plain release
-- ARGV[4]  from       as many ids: those that are given up
-- ARGV[5]  channel    not a KEY: it would need a right on a key of that name (R14)
-- ARGV[6]  publish    PUBLISH or SPUBLISH
-- ARGV[7]  client     the uuid of both owners' client
-- ARGV[8]  flags      the sum of 2 its client hears Redisson's releases, and 4 others of the process wait
--
-- Returns  0 passed on; -1 late: released; -2 at least one was not held, and the others are free; -3 released, because others wait, or more
--          is held than there are
-- Replay   the ids are no longer there: -2. It is sent once; what a lost answer gave to `to` is undone (P3)
-- Wakes    nobody else. Where it releases: as a release does
-- Cost     O(permits, log n), O(log m) for m processes that wait
local function ids_in(text)
  local ids = {}
  for at = 1, #text, 16 do ids[#ids + 1] = string.sub(text, at, at + 15) end
  return ids
end
local from = ids_in(ARGV[4])
-- Checked before anything is removed: permits that cannot be given back would be lost (R16).
local free = free_in(KEYS[1])
-- @crowd.lua
-- Before anything is removed: refused, it has done nothing, and no lease outlasts the semaphore.
local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[6], plain = false }
local idle = idle_of(it)
if idle then used(it, idle, free, idle.ms + ARGV[2]) end
-- ZREM tests and decides, and passes at maxmemory (R8).
local removed = redis.call('ZREM', KEYS[2], unpack(from))
if removed == 0 then return -2 end
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local late = us > ARGV[3] + 0
local to = { line = KEYS[3], crowd = KEYS[4], wake = KEYS[5], base = ARGV[5], publish = ARGV[6], free = KEYS[1], leases = KEYS[2] }
-- Below zero: the total was lowered, and what comes back is nobody's.
if not late and removed == #from and free >= 0 and is_nobody_else(to, ARGV[7], us) then
  local ends, scored = string.format('%.0f', math.floor(us / 1000) + ARGV[2]), {}
  for _, id in ipairs(ids_in(ARGV[1])) do
    scored[#scored + 1] = ends
    scored[#scored + 1] = id
  end
  -- An error gives them back below (R15).
  if type(redis.pcall('ZADD', KEYS[2], unpack(scored))) == 'number' then
    -- The key is a new one if nobody else holds.
    local ttl = redis.call('PTTL', KEYS[1])
    if ttl > 0 then redis.call('PEXPIRE', KEYS[2], ttl) end
    local _, hears, others = flags_of(ARGV[8] + 0)
    pcall(keep, to, ARGV[7], us, hears, others)
    return 0
  end
end
free = redis.call('INCRBY', KEYS[1], removed)
-- A semaphore that ends must first be kept for the lease: who asks does that.
if not idle and can_be_granted(KEYS[1]) then to.grant = grant end
announce(to, free)
return unless_unfinished(to, removed < #from and -2 or late and -1 or -3)
