-- semaphore/status
-- Read the number of free permits, and the holders of the others. Writes nothing.
--
-- KEYS[1]  free     string  the number of free permits
-- KEYS[2]  ledger   hash    owner -> permits
-- ARGV[1]  holders  1: list them
--
-- Returns  { free permits or '' when the semaphore does not exist, owner, permits, ... }; one that does not exist has no holders
-- Replay   harmless
-- Wakes    no waiter
-- Cost     O(1), or O(holders) with the list
local _, text = free_in(KEYS[1])
local result = { text or '' }
if ARGV[1] ~= '1' or not text then return result end
for i, text in ipairs(redis.call('HGETALL', KEYS[2])) do result[i + 1] = text end
return result
