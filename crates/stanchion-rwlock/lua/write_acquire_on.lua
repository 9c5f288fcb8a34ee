local ttl = call('PTTL', main)
local mode, held
if ttl ~= -2 then
  -- Reading the type first leaves a foreign key untouched (R16); a hash without a mode is a lock's.
  local found = call('HMGET', main, 'mode', ARGV[1])
  mode, held = found[1], found[2]
  if not mode then return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode') end
  if not held and mode == 'write' and ARGV[4] == '0' then return -4 - ttl end
end

-- P3: a request that outlived its caller takes nothing, and holds nobody off.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[3] + 0 then return -1 end

if mode == 'read' and not held then
  -- R8: first, a write that passes at maxmemory.
  call('ZREM', readers, '')
  local fields, again = bury(math.floor(now / 1000), call('HLEN', main))
  if fields <= 1 then
    call('DEL', main, readers)
    ttl = -2
  else
    ttl = ttl >= 0 and math.min(ttl, again) or again
  end
end

local prefers = KEYS[4] ~= main
local turn = prefers and not held and call('GET', KEYS[5]) or ''
-- The readers have let one writer pass: it is their turn.
local yields = string.sub(turn, 1, 1) == '!'
if ttl ~= -2 and not held or yields then
  if yields and ttl == -2 then ttl = call('PTTL', KEYS[5]) end
  if ARGV[4] == '0' then return -4 - ttl end
  -- The mark is renewed twice in its grace, for as long as this writer waits. At maxmemory there is none.
  redis.pcall('SET', KEYS[4], ARGV[1], 'PX', ARGV[4])
  local again = math.floor(ARGV[4] / 2)
  if ttl >= 0 and ttl < again then again = ttl end
  return -4 - again
end

local fence = KEYS[2]
-- @mint.lua

if not held then call('HSET', main, 'mode', 'write', ARGV[1], '1') end
-- Never shorten (R3). A lock without a TTL must not stay behind, even where PEXPIRE is not permitted (R9).
if ttl < ARGV[2] + 0 then
  local set = redis.pcall('PEXPIRE', main, ARGV[2])
  if set ~= 1 then
    if not held then call('DEL', main) end
    return set
  end
end
if prefers and call('GET', KEYS[4]) == ARGV[1] then call('DEL', KEYS[4]) end
if string.sub(turn, 1, 1) == '.' then
  -- The waiting readers let this writer pass. They let no other pass.
  call('SET', KEYS[5], '!' .. string.sub(turn, 2), 'KEEPTTL')
elseif turn ~= '' then
  call('DEL', KEYS[5])
end
return token
