local owner = ARGV[1]
if ARGV[2] ~= '1' then
  if not call('HGET', main, owner) then return -2 end
  call('PEXPIRE', main, ARGV[3], 'GT')
  if call('PEXPIRE', KEYS[2], ARGV[3], 'GT') == 0 and call('EXISTS', KEYS[2]) == 0 then call('SET', KEYS[2], '1', 'PX', ARGV[3]) end
  local time = call('TIME')
  call('ZADD', readers, 'XX', 'GT', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3], owner)
  call('PEXPIRE', readers, ARGV[3], 'GT')
  call('HSET', main, owner, ARGV[2] - 1)
  return 0
end

local function tell(what)
  local told = redis.pcall(ARGV[5], ARGV[4], what)
  return type(told) == 'number' and told or -1
end

-- HDEL tests, decides and deletes in one, and passes at maxmemory (R8).
local had = call('HDEL', main, owner)
call('DEL', KEYS[2])
if KEYS[4] ~= main then
  local turn = call('GET', KEYS[4])
  if turn and string.sub(turn, 2) == owner then
    call('DEL', KEYS[4])
    -- Its mark has held writers off.
    if had == 0 then return tell('1') end
  end
end
if had == 0 then return -2 end

-- One field is the mode. Beside a write hold the lock is not free, and the TTL is the writer's.
local fields = call('HLEN', main)
if fields > 1 then
  call('ZREM', readers, owner)
  if call('HGET', main, 'mode') == 'write' then return 0 end
  local time, longest, all = call('TIME')
  fields, longest, all = bury(time[1] * 1000 + math.floor(time[2] / 1000), fields)
  if fields > 1 then
    -- As in Redisson, the lock lasts as long as its longest hold. Only here may a TTL shrink, because all holds are known.
    if all then call('PEXPIRE', main, longest) end
    return 0
  end
end
call('DEL', main, readers)
return tell('0')
