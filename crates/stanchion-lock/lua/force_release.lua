-- lock/force_release
-- Free the lock, no matter who holds it, and wake a waiter. The holder learns of it at its next renewal.
--
-- KEYS[1]  lock     hash  owner -> hold count
-- ARGV[1]  channel
-- ARGV[2]  publish  PUBLISH or SPUBLISH
--
-- Returns  1 it was held, 0 it was free
-- Replay   would free the next holder: sent once only
-- Wakes    as a release does
-- Cost     O(1)
-- HLEN first: another kind of value under this name is an error, and stays (R16).
if redis.call('HLEN', KEYS[1]) == 0 then return 0 end
if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGTYPE this name is in use as a read-write lock')
end
redis.call('DEL', KEYS[1])
redis.pcall(ARGV[2], ARGV[1], '0')
return 1
