-- jobs/status
-- Read the holder, the remaining lease, and the record of the last tick and the last run. Reads only.
--
-- KEYS[1]  lock    hash  owner -> hold count
-- KEYS[2]  record  hash  the last tick and the last run
--
-- Returns  { ttl in ms (-2 free, -1 no TTL), the last tick, when its run began, owner, began, ended, until ('' each: none), holder,
--          count, ... }
-- Replay   harmless
-- Wakes    none
-- Cost     O(1): a lock's hash has one field
local result = { redis.call('PTTL', KEYS[1]) }
local last = redis.call('HMGET', KEYS[2], 'tick', 'tick_at', 'owner', 'began', 'ended', 'until')
for i = 1, 6 do result[1 + i] = last[i] or '' end
-- Two fields are enough to see that the hash is not a lock. A hash that is not a lock may be large.
local holders = redis.call('HRANDFIELD', KEYS[1], 2, 'WITHVALUES')
for i = 1, #holders do result[#result + 1] = holders[i] end
return result
