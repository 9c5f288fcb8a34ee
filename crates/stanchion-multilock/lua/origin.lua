-- multilock/origin
-- Return the number of this keyspace, which the first request stores.
--
-- KEYS[1]  origin  string  a random number, 1 to 2^53; no TTL: it must not change while waits are ordered by it. One for each
--                          hash slot in which a multi-lock has had one name on several servers
-- ARGV[1]  fresh   the number if there is none yet
--
-- Returns  the number
-- Replay   the same number
-- Wakes    no waiter
-- Cost     O(1)
local origin = redis.call('GET', KEYS[1])
if not origin then
  redis.call('SET', KEYS[1], ARGV[1])
  origin = ARGV[1]
end
local number = tonumber(origin)
if not number or number < 1 or number > 9007199254740992 or number % 1 ~= 0 then
  return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is not what a multi-lock has put there')
end
return number
