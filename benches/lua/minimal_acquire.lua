-- The least work that acquires a reentrant lock on a hash: no fence, no check for a late request.
-- KEYS[1] lock; ARGV[1] owner; ARGV[2] lease in ms. Returns nil when acquired, else the TTL.
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[2])
  return nil
end
return redis.call('pttl', KEYS[1])
