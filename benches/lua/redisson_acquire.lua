-- The commands that Redisson's lock sends to be acquired, in its order of arguments.
-- KEYS[1] lock; ARGV[1] lease in ms; ARGV[2] owner. Returns nil when acquired, else the TTL.
local mine = redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1
if mine then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])
