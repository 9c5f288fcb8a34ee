-- rwlock/release_alone
-- End a writer's last hold with one key: for a migrating slot, whose keys are on two nodes. The queue is served after the migration.
--
-- KEYS[1]  rwlock   hash  mode, reader -> hold count, writer -> hold count
-- ARGV[1]  base
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  owner
--
-- Returns  >= 0 done, the number of subscribers notified; -1 done, but no message could be sent; -2 the owner holds nothing
-- Replay   the second run finds nothing to release (P6)
-- Wakes    Redisson's clients: payload 1
-- Cost     O(1) and the server's delivery to the subscribers
if redis.call('HDEL', KEYS[1], ARGV[3] .. ':write') == 0 then return -2 end
if redis.call('HLEN', KEYS[1]) == 1 then
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
local told = redis.pcall(ARGV[2], ARGV[1], '1')
return type(told) == 'number' and told or -1
