-- rwlock/force_release
-- Free the lock, no matter who holds it, and wake waiters. Holders learn of it at their next renewal; readers' hold keys expire.
--
-- KEYS[1]  rwlock   hash  mode, reader -> hold count, writer -> hold count
-- KEYS[2]  readers  zset  reader -> end of its lease
-- ARGV[1]  channel
-- ARGV[2]  publish  PUBLISH or SPUBLISH
--
-- Returns  1 it was held, 0 it was free
-- Replay   would free the next holder: sent once only
-- Wakes    as the release of a writer does
-- Cost     O(1) to send; the server frees a hash of many readers in time linear in them
-- HLEN first: another kind of value under this name is an error, and stays (R16).
if redis.call('HLEN', KEYS[1]) == 0 then return 0 end
if redis.call('HEXISTS', KEYS[1], 'mode') == 0 then
  return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode')
end
redis.call('UNLINK', KEYS[1], KEYS[2])
redis.pcall(ARGV[2], ARGV[1], '1')
return 1
