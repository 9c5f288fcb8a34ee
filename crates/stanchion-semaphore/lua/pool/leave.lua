-- semaphore/leave
-- Take a process out of the crowd: none of its waiters is left.
--
-- KEYS[1]  crowd    sorted set  see crowd.lua
-- KEYS[2]  wake     hash        see crowd.lua
-- ARGV[1]  client   its uuid
-- ARGV[2]  channel
-- ARGV[3]  publish  PUBLISH or SPUBLISH
--
-- Returns  1 it was there, 0 it was not
-- Replay   the second run finds nothing
-- Wakes    the next in the crowd, which asks in a moment: what was announced to this one may be left
-- Cost     O(log n) for n processes that wait
local to = { crowd = KEYS[1], wake = KEYS[2], base = ARGV[2], publish = ARGV[3] }
local gone = part(to, ARGV[1])
return unless_unfinished(to, gone)
