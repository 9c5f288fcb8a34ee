-- election/watch
-- Tell whether the leader, or its value, is another than the one that is known. Reads only.
--
-- KEYS[1]  lead   hash  owner -> 1, the leader
-- KEYS[2]  term   hash  owner and seq of the leader, and more
-- ARGV[1]  owner  the leader that is known; '' nobody
-- ARGV[2]  seq    the number of its value that is known; '' none
--
-- Returns  0 another; { -4 - ttl, now in us } the same, ask again when its lease has ended (-3: nobody leads, or without a TTL)
-- Replay   harmless
-- Wakes    nobody
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
