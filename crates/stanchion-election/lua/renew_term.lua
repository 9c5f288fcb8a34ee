-- election/renew_term
-- Lengthen the TTL of the hash of one term, after its leader was renewed. For a migrating slot, whose keys are on two nodes.
--
-- KEYS[1]  the hash of the term
-- ARGV[1]  not_after, server time in microseconds: a later run does nothing
-- ARGV[2]  lease in milliseconds
--
-- Returns  array: 1 renewed, -1 the server refused the key; or the number -1: late
-- Replay   harmless: the TTL is only ever lengthened
-- Wakes    none
-- Cost     O(1)
local now = redis.call('TIME')
if now[1] * 1000000 + now[2] > ARGV[1] + 0 then return -1 end
local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[2], 'GT')
return { type(set) == 'number' and 1 or -1 }
