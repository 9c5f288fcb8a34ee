-- rwlock/tend
-- Serve the queue of a lock that is free or in mode `read`: for the relay after a release of Redisson's, or after an unfinished script.
--
-- KEYS[1]  rwlock   hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  fence    string  the last fencing token; the rwlock's own key again: mint none
-- KEYS[3]  line     zset    entry -> arrival
-- KEYS[4]  wake     hash    notes about the queue
-- KEYS[5]  readers  zset    reader -> end of its lease, server ms
-- ARGV[1]  base
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  sentry   the uuid of the client that is the relay, or ''
-- ARGV[4]  prefix   the prefix of all readers' hold keys, which are in the slot of KEYS[1]
--
-- Returns  -1, or { "tend", ms, -1 } there are more dead processes in the queue
-- Replay   harmless
-- Wakes    the next in the queue, as far as it may hold
-- Cost     O(log n) for n processes in the queue
local call = redis.call
local lock, fence, line, wake, readers = unpack(KEYS)
local base, publish, announces, prefix = ARGV[1], ARGV[2], '0', ARGV[4]
local mode = call('HGET', lock, 'mode')
-- @line.lua
-- R8: first, a write that passes at maxmemory.
call('ZREM', line, '')
local us = clock()
heard_by(ARGV[3], us)
local _, _, more = serve(us)
return unless_unfinished(-1, more)
