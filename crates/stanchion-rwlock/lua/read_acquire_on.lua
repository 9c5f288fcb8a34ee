local owner, lease = ARGV[1], ARGV[2] + 0
local ttl = call('PTTL', main)
local mode, held, writer
if ttl ~= -2 then
  -- Reading the type first leaves a foreign key untouched (R16); a hash without a mode is a lock's.
  local found = call('HMGET', main, 'mode', owner, ARGV[4])
  mode, held, writer = found[1], found[2], found[3]
  if not mode then return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode') end
end
local newcomer = not held and not writer
local prefers = KEYS[4] ~= main
local turn = prefers and newcomer and call('GET', KEYS[5]) or ''

-- Busy: a writer holds, or one waits and it is not the readers' turn.
local busy
if newcomer and mode == 'write' then
  busy = ttl
elseif newcomer and prefers and (turn == '' or string.sub(turn, 1, 1) == '.') then
  local mark = call('PTTL', KEYS[4])
  if mark ~= -2 then busy = mark end
end
if busy and ARGV[6] == '0' then return -4 - busy end

-- P3: a request that outlived its caller takes nothing, and leaves no mark.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[3] + 0 then return -1 end

if busy then
  -- One reader's mark stands for all, and is renewed twice in its grace. After one more writer it is their turn. At maxmemory
  -- there is none.
  if turn == '' then
    redis.pcall('SET', KEYS[5], '.' .. owner, 'PX', ARGV[6])
  elseif string.sub(turn, 2) == owner then
    call('PEXPIRE', KEYS[5], ARGV[6])
  end
  local again = math.floor(ARGV[6] / 2)
  if busy >= 0 and busy < again then again = busy end
  return -4 - again
end

-- The hold key first: a field without one looks like a dead reader (R10). Never shorten (R3).
now = math.floor(now / 1000)
if not held or call('PTTL', KEYS[2]) < lease then call('SET', KEYS[2], '1', 'PX', lease) end
call('ZADD', readers, 'GT', now + lease, owner)
call('PEXPIRE', readers, math.max(lease, ttl))
if not mode then
  call('HSET', main, 'mode', 'read', owner, '1')
elseif not held then
  if mode == 'read' then bury_ended(now, 8) end
  call('HSET', main, owner, '1')
end
-- A hold without a TTL must not stay behind, even where PEXPIRE is not permitted (R9).
if ttl < lease then
  local set = redis.pcall('PEXPIRE', main, lease)
  if set ~= 1 then
    call('HDEL', main, owner)
    if not mode then call('DEL', main) end
    call('DEL', KEYS[2])
    call('ZREM', readers, owner)
    return set
  end
end
if turn == '.' .. owner then
  call('DEL', KEYS[5])
elseif string.sub(turn, 1, 1) == '!' then
  -- The readers that wait with it got the same message, and have this long to join.
  call('SET', KEYS[5], '+', 'PX', 250)
end
return 0
