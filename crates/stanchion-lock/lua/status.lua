-- lock/status
-- The holder, its hold count, the rest of its lease, and the last token. Reads only.
--
-- KEYS[1]  lock   hash    owner -> hold count
-- KEYS[2]  fence  string  the last fencing token; the lock's own key again: none
--
-- Returns  { ttl in ms (-2 free, -1 no TTL), last token or '', owner, count, ... }
-- Replay   harmless
-- Wakes    no waiter
-- Cost     O(1): a lock's hash has one field
local result = { redis.call('PTTL', KEYS[1]), '' }
if KEYS[2] ~= KEYS[1] then result[2] = redis.call('GET', KEYS[2]) or '' end
local holders = redis.call('HGETALL', KEYS[1])
for i = 1, #holders do result[#result + 1] = holders[i] end
return result
