-- semaphore/hand_off
-- Pass permits to another owner of the same process in one step.
--
-- KEYS[1]  free     string      the number of free permits; missing: the semaphore does not exist, and no permit is held
-- KEYS[2]  ledger   hash        owner -> permits
-- KEYS[3]  line     sorted set  entry -> arrival
-- KEYS[4]  wake     hash        notes about the queue
-- ARGV[1]  to         the owner that gets them
-- ARGV[2]  not_after  server time in microseconds; later the script refuses
-- ARGV[3]  from       the owner that gives them up
-- ARGV[4]  permits    those that `from` holds
-- ARGV[5]  base
-- ARGV[6]  publish    PUBLISH or SPUBLISH
-- ARGV[7]  yields     empty; "outside": clients of Redisson's come first; the uuid of this client: others, too
-- ARGV[8]  hears      1: this client is subscribed to `base`
--
-- Returns  0 passed on; -2 `from` holds nothing; -1 late, -3 freed permits are for others: nothing done
-- Replay   the ledger no longer has `from`: -2. The client sends it once, and after a lost reply undoes the grant to `to` (P3)
-- Wakes    no waiter
-- Cost     O(log n) for n processes in the queue
local call = redis.call
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
-- P3: a late run changes nothing. The client releases.
if us > ARGV[2] + 0 then return -1 end
local free, exists = free_in(KEYS[1])
if not exists or kept_for_others(free, us, KEYS[3], KEYS[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]) then return -3 end
-- HDEL tests and decides, and passes at maxmemory (R8).
if call('HDEL', KEYS[2], ARGV[3]) == 0 then return -2 end
local set = redis.pcall('HSET', KEYS[2], ARGV[1], ARGV[4])
if type(set) == 'number' then return 0 end
-- The user has lost the right to HSET. The permits are free, and the client sends a release, which serves the queue (R15).
call('INCRBY', KEYS[1], ARGV[4])
return set
