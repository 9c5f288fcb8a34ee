-- rwlock/write_abandon
-- Undo the requests of a writer: its hold, and the mark that holds readers off.
--
-- KEYS[1]  rwlock   hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  mark     string  a writer that waits
-- ARGV[1]  writer   "<owner>:write"
-- ARGV[2]  channel
-- ARGV[3]  publish  PUBLISH or SPUBLISH
--
-- Returns  >= 0 done, the number of subscribers reached; -1 done, but the message could not be sent; -2 there was nothing
-- Replay   the second run finds nothing
-- Wakes    as a release does; also if there was only the mark, because it has held readers off
-- Cost     O(1) and the server's delivery to the subscribers
local held = redis.call('HDEL', KEYS[1], ARGV[1]) == 1
if held then
  if redis.call('HLEN', KEYS[1]) == 1 then
    redis.call('DEL', KEYS[1])
  else
    redis.call('HSET', KEYS[1], 'mode', 'read')
  end
end
local marked = redis.call('GET', KEYS[2]) == ARGV[1]
if marked then redis.call('DEL', KEYS[2]) end
if not held and not marked then return -2 end
local told = redis.pcall(ARGV[3], ARGV[2], '1')
return type(told) == 'number' and told or -1
