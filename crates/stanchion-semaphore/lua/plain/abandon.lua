-- semaphore/abandon
-- Undo a request: give back its permits and its place in line.
--
-- KEYS[1]  free     string      the number of free permits; missing: the semaphore does not exist, and nothing of it is held
-- KEYS[2]  ledger   hash        owner -> permits
-- KEYS[3]  line     list        see line.lua
-- KEYS[4]  crowd    sorted set  see crowd.lua
-- KEYS[5]  wake     hash        see crowd.lua
-- KEYS[6]  idle     string      see idle.lua
-- ARGV[1]  owner
-- ARGV[2]  permits  those it asked for
-- ARGV[3]  channel
-- ARGV[4]  publish  PUBLISH or SPUBLISH
--
-- Returns  >= 0 done: the number of subscribers that got the message; -1 done, but no message could be sent; -2 there was nothing to undo
-- Replay   finds nothing
-- Wakes    as a release does; also when permits were only kept back for the owner
-- Cost     O(places in line), at most 16
local free, exists = free_in(KEYS[1])
local left = leave(KEYS[3], ARGV[1] .. ' ' .. ARGV[2], first_in(KEYS[3]))
local held = redis.call('HDEL', KEYS[2], ARGV[1])
if held == 1 and exists then
  free = redis.pcall('INCRBY', KEYS[1], ARGV[2])
  if type(free) ~= 'number' then
    redis.pcall('HSET', KEYS[2], ARGV[1], ARGV[2])
    return free
  end
elseif left == 0 then
  return -2
end
-- Errors do not undo a release (R15).
if exists then pcall(touch, { free = KEYS[1], held = KEYS[2], idle = KEYS[6], plain = true }, free) end
local to = { line = KEYS[3], crowd = KEYS[4], wake = KEYS[5], base = ARGV[3], publish = ARGV[4] }
return unless_unfinished(to, announce(to, free))
