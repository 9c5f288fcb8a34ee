-- The least work that releases a reentrant lock on a hash.
-- KEYS[1] lock; KEYS[2] channel; ARGV[1] owner. Returns nil when not held, else the holds that are left.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
local left = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if left > 0 then return left end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], '0')
return 0
