-- The commands that Redisson's lock sends to be released, without its latch against lost replies.
-- KEYS[1] lock; KEYS[2] channel; ARGV[1] message; ARGV[2] lease in ms; ARGV[3] owner; ARGV[4] publish command.
-- Returns nil when not held, 0 while holds are left, 1 when free.
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
local left = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if left > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
return 1
