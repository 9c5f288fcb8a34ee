-- lock/tend
-- Serve the queue of a free lock: for the relay after a release of Redisson's, or for a client whose script was unfinished.
--
-- KEYS[1]  lock     hash    owner -> hold count
-- KEYS[2]  fence    string  the last fencing token; the lock's own key again: mint none
-- KEYS[3]  line     zset    entry -> arrival
-- KEYS[4]  wake     hash    notes about the queue
-- ARGV[1]  base
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  sentry   the uuid of the client that is the relay, or ''
--
-- Returns  -1, or { "tend", ms, -1 } there are more dead processes in the queue
-- Replay   harmless
-- Wakes    the head of the queue, which is granted the free lock
-- Cost     O(log n) for n processes in the queue
local call = redis.call
local lock, fence, line, wake = unpack(KEYS)
local base, publish = ARGV[1], ARGV[2]
-- @line.lua
-- R8: first, a write that passes at maxmemory.
call('ZREM', line, '')
local us = clock()
heard_by(ARGV[3], us)
if call('EXISTS', lock) == 1 or call('EXISTS', line) == 0 then return -1 end
local _, _, more = serve(us)
return unless_unfinished(-1, more)
