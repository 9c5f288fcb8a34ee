-- cli/similar
-- Returns whether a key exists, and the names of some existing keys. Reads only.
--
-- KEYS[1]  name    any     the key that is looked for; in a cluster it says on which node to look
-- ARGV[1]  cursor  of SCAN, 0 at first
-- ARGV[2]  most    about so many keys are looked at
--
-- Returns  { 1 if the key exists, the next cursor (0: all have been seen), key, ... }
-- Replay   harmless
-- Wakes    none
-- Cost     O(most)
local seen = redis.call('SCAN', ARGV[1], 'COUNT', ARGV[2])
local result = { redis.call('EXISTS', KEYS[1]), seen[1] }
for i = 1, #seen[2] do result[2 + i] = seen[2][i] end
return result
