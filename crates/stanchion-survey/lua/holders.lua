-- survey/holders
-- Who holds a name, and who will hold it next. Reads only.
--
-- KEYS[1]  lock   hash  owner -> hold count; of a read-write lock also `mode`
-- KEYS[2]  queue  list  owners in order of arrival; the lock's own key again: none
-- ARGV[1]  most   the largest number of owners to list, of each
--
-- Returns  { mode or '', number of fields, { owner, count, ... }, length of the queue, { owner, ... } }
-- Replay   harmless
-- Wakes    nobody
-- Cost     O(ARGV[1])
local call, lock, queue = redis.call, KEYS[1], KEYS[2]
-- HLEN first: another kind of value under this name is an error.
local fields = call('HLEN', lock)
local result = { '', fields, {}, 0, {} }
if fields > 0 then
  result[1] = call('HGET', lock, 'mode') or ''
  result[3] = call('HRANDFIELD', lock, ARGV[1] + 1, 'WITHVALUES')
end
if queue ~= lock then
  result[4] = call('LLEN', queue)
  result[5] = call('LRANGE', queue, 0, ARGV[1] - 1)
end
return result
