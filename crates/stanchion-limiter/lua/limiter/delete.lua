-- limiter/delete
-- Delete the limiter. The next request creates it again.
--
-- KEYS[1]  config     hash        see acquire.lua
-- KEYS[2]  value      string
-- KEYS[3]  own value  string
-- KEYS[4]  log        sorted set
-- KEYS[5]  own log    sorted set
-- KEYS[6]  written      string
-- KEYS[7]  own written  string
-- ARGV[1]  channel
-- ARGV[2]  publish    PUBLISH or SPUBLISH
--
-- Returns  1 the limiter existed, 0 it did not
-- Replay   would delete a limiter that was created in between: sent once only
-- Wakes    as set_quota.lua
-- Cost     O(entries)
stored_in(KEYS[1])
local deleted = call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
call('DEL', KEYS[6], KEYS[7])
redis.pcall(ARGV[2], ARGV[1], 'q')
return deleted > 0 and 1 or 0
