-- rwlock/write_release
-- One write hold less: n to n - 1. After the last one the lock is free, or its owner's read holds remain; waiters are woken.
--
-- KEYS[1]  rwlock   hash  mode, reader -> hold count, writer -> hold count
-- ARGV[1]  writer   "<owner>:write"
-- ARGV[2]  n        the hold count the client knows
-- ARGV[3]  lease    milliseconds
-- ARGV[4]  channel  not a KEY: it would need a right on a key of that name (R14)
-- ARGV[5]  publish  PUBLISH or SPUBLISH
--
-- Returns  >= 0 done, the number of subscribers reached; -1 done, but the message could not be sent; -2 the writer holds nothing
-- Replay   the second run finds nothing to release, or sets the same count (P6)
-- Wakes    all waiters of Redisson processes, and in stanchion processes those that can hold together: payload 1. Redisson
--          publishes nothing when read holds of the writer remain; stanchion does, because other readers may join
-- Cost     O(1) and the server's delivery to the subscribers
if ARGV[2] ~= '1' then
  if not redis.call('HGET', KEYS[1], ARGV[1]) then return -2 end
  redis.call('PEXPIRE', KEYS[1], ARGV[3], 'GT')
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] - 1)
  return 0
end
-- HDEL tests, decides and deletes in one, and passes at maxmemory (R8).
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return -2 end
if redis.call('HLEN', KEYS[1]) == 1 then
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
local told = redis.pcall(ARGV[5], ARGV[4], '1')
return type(told) == 'number' and told or -1
