-- rwlock/write_acquire
-- Take a free lock for writing, or find that this writer has it already.
--
-- KEYS[1]  rwlock     hash    mode, reader -> hold count, writer -> hold count (Redisson's layout)
-- KEYS[2]  fence      string  the last fencing token, no TTL; the rwlock's own key again: mint none
-- KEYS[3]  mark       string  a writer that waits, for its grace; the rwlock's own key again: writers have no preference
-- ARGV[1]  writer     "<client uuid>:<number>:write", used for one outermost hold only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  grace      milliseconds for which new readers are held off if it is busy; 0: they are not
--
-- Returns  > 0 the token, 0 acquired without a token, -1 late, -4 - ms busy: ask again after so long (-3: the holder has no TTL)
-- Replay   grants again with a new, larger token; the count stays (P6)
-- Wakes    nobody
-- Cost     O(1)
local call = redis.call
local ttl = call('PTTL', KEYS[1])
local held
if ttl ~= -2 then
  -- Reading the type first leaves a foreign key untouched (R16); a hash without a mode is a lock's.
  local found = call('HMGET', KEYS[1], 'mode', ARGV[1])
  if not found[1] then return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode') end
  held = found[2]
  if not held and ARGV[4] == '0' then return -4 - ttl end
end

-- P3: a request that outlived its caller takes nothing, and holds nobody off.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[3] + 0 then return -1 end

if ttl ~= -2 and not held then
  -- The mark is renewed twice in its grace, for as long as this writer waits. At maxmemory it does without.
  redis.pcall('SET', KEYS[3], ARGV[1], 'PX', ARGV[4])
  local again = math.floor(ARGV[4] / 2)
  if ttl >= 0 and ttl < again then again = ttl end
  return -4 - again
end

local token = 0
if KEYS[2] ~= KEYS[1] then
  -- P2: max(last + 1, now), compared as numbers (R5). Text, because Lua writes a large number slowly.
  token = now
  local last = call('SET', KEYS[2], time[1] .. string.sub('00000' .. time[2], -6), 'GET')
  if last then
    local n = tonumber(last)
    -- R17. Back it goes, and nothing has changed.
    if not n or n % 1 ~= 0 or n >= 9007199254740991 then
      call('SET', KEYS[2], last)
      return redis.error_reply('WRONGTYPE the fencing counter ' .. KEYS[2] .. ' is not a whole number below 2^53 - 1')
    end
    if n >= now then
      token = n + 1
      call('SET', KEYS[2], string.format('%.0f', token))
    end
  end
end

if not held then call('HSET', KEYS[1], 'mode', 'write', ARGV[1], '1') end
-- Never shorten (R3). A lock without a TTL must not stay behind, whatever the server's rights say (R9).
if ttl < ARGV[2] + 0 then
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
  if set ~= 1 then
    if not held then call('DEL', KEYS[1]) end
    return set
  end
end
if KEYS[3] ~= KEYS[1] and call('GET', KEYS[3]) == ARGV[1] then call('DEL', KEYS[3]) end
return token
