-- semaphore/hand_off
-- Pass permits to another owner of the same process in one step, if no other process waits. Otherwise release them.
--
-- KEYS[1]  free     string      the number of free permits; missing: the semaphore does not exist, and nothing of it is held
-- KEYS[2]  ledger   hash        owner -> permits
-- KEYS[3]  line     list        see line.lua
-- KEYS[4]  crowd    sorted set  see crowd.lua
-- KEYS[5]  wake     hash        see crowd.lua
-- KEYS[6]  idle     string      see idle.lua. A semaphore that ends lives on while a permit is held, whoever holds it
-- ARGV[1]  to         the owner that gets them
-- ARGV[2]  not_after  server time in microseconds; later this is a plain release
-- ARGV[3]  from       the owner that gives them up
-- ARGV[4]  permits    those that `from` holds
-- ARGV[5]  channel    not a KEY: it would need a right on a key of that name (R14)
-- ARGV[6]  publish    PUBLISH or SPUBLISH
-- ARGV[7]  flags      the sum of 2 its client hears Redisson's releases, and 4 others of the process wait
--
-- Returns  0 passed on; -1 late: released; -2 `from` holds nothing; -3 released, because others wait, or more is held than there are
-- Replay   the ledger no longer has `from`: -2. It is sent once; what a lost answer gave to `to` is undone (P3)
-- Wakes    nobody else. Where it releases: as a release does
-- Cost     O(log n) for n processes that wait
local free, exists = free_in(KEYS[1])
if not exists then
  redis.call('DEL', KEYS[2])
  return -2
end
-- HDEL tests and decides, and passes at maxmemory (R8).
if redis.call('HDEL', KEYS[2], ARGV[3]) == 0 then return -2 end
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local late = us > ARGV[2] + 0
-- @crowd.lua
local to = { line = KEYS[3], crowd = KEYS[4], wake = KEYS[5], base = ARGV[5], publish = ARGV[6] }
-- Below zero: the total was lowered, and what comes back is nobody's.
if not late and free >= 0 and is_nobody_else(to, string.sub(ARGV[1], 1, 36), us) then
  -- An error gives them back below (R15).
  if type(redis.pcall('HSET', KEYS[2], ARGV[1], ARGV[4])) == 'number' then
    local _, hears, others = flags_of(ARGV[7] + 0)
    pcall(keep, to, string.sub(ARGV[1], 1, 36), us, hears, others)
    return 0
  end
end
free = redis.pcall('INCRBY', KEYS[1], ARGV[4])
if type(free) ~= 'number' then
  redis.pcall('HSET', KEYS[2], ARGV[3], ARGV[4])
  return free
end
-- Errors do not undo a release (R15).
pcall(touch, { free = KEYS[1], held = KEYS[2], idle = KEYS[6], plain = true }, free)
announce(to, free)
return unless_unfinished(to, late and -1 or -3)
