-- election/watch
-- Compare the leader and its value with those that the caller knows. Reads only.
--
-- KEYS[1]  lead   hash  owner -> 1, the leader
-- KEYS[2]  term   hash  owner and seq of the leader, and more
-- ARGV[1]  owner  the leader that the caller knows; '' none
-- ARGV[2]  seq    the number of the value that the caller knows; '' none
--
-- Returns  0 they differ; { -4 - ttl, now in us } they are the same, poll again when the lease has ended (-3: no leader, or no TTL)
-- Replay   harmless
-- Wakes    none
-- Cost     O(1)
local call = redis.call
local ttl = call('PTTL', KEYS[1])
local fields = call('HGETALL', KEYS[1])
local owner, seq = fields[1] or '', ''
if owner ~= '' then
  local of, its = unpack(call('HMGET', KEYS[2], 'owner', 'seq'))
  if of == owner then seq = its or '' end
end
if owner ~= ARGV[1] or seq ~= ARGV[2] then return 0 end
local time = call('TIME')
return { ttl < 0 and -3 or -4 - ttl, time[1] * 1000000 + time[2] }
