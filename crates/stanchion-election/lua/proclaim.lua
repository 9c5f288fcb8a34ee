-- election/proclaim
-- Change the value of the leader.
--
-- KEYS[1]  lead       hash  owner -> 1, the leader
-- KEYS[2]  term       hash  owner, priority, since, token, seq and value of the leader
-- ARGV[1]  owner
-- ARGV[2]  seq        the number of this change in the term; an older change does not overwrite a newer one
-- ARGV[3]  value      bytes
-- ARGV[4]  not_after  server time in microseconds; later the script refuses
-- ARGV[5]  publish    PUBLISH or SPUBLISH
-- ARGV[6]  news       the channel for observers
--
-- Returns  0 done, or a later change came first; -1 late; -2 the owner does not lead
-- Replay   harmless: the same number is written once (P6)
-- Wakes    the observers
-- Cost     O(1)
local call = redis.call
if call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -2 end
local owner, seq = unpack(call('HMGET', KEYS[2], 'owner', 'seq'))
local time = call('TIME')
if time[1] * 1000000 + time[2] > ARGV[4] + 0 then return -1 end
if owner == ARGV[1] and seq and seq + 0 >= ARGV[2] + 0 then return 0 end
call('HSET', KEYS[2], 'owner', ARGV[1], 'seq', ARGV[2], 'value', ARGV[3])
-- If Redis evicted the hash, this creates it again. It then expires with the lease.
if owner ~= ARGV[1] then call('PEXPIRE', KEYS[2], math.max(call('PTTL', KEYS[1]), 1)) end
redis.pcall(ARGV[5], ARGV[6], 'value ' .. ARGV[1] .. ' ' .. ARGV[2])
return 0
