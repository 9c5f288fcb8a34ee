-- multilock/acquire
-- Take several locks if all of them are free, or none.
--
-- KEYS[1]  lock       hash    owner -> hold count (Redisson's layout); one key for each lock, in name order
-- KEYS[2]  fence      string  the last fencing token of a lock; one key for each counter, after all locks
-- ARGV[1]  owner      "<client uuid>:<number>", used for one outermost hold only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  locks      how many of the keys are locks
-- ARGV[5]  publish    PUBLISH or SPUBLISH
-- ARGV[6]  channel    one for each lock
--
-- Returns  > 0 the token of all, 0 acquired without a token, -1 late,
--          { -4 - ttl (-3: no TTL), now, i } busy: another owner holds the i-th lock, and this owner holds none
-- Replay   grants again with a new, larger token: counts are set, never incremented (P6)
-- Wakes    nobody; except for locks that an earlier run took and this one cannot keep: as a release does (R12)
-- Cost     O(locks)
local call = redis.call
local locks = ARGV[4] + 0
-- All types are read first, so WRONGTYPE comes before any write and foreign keys stay untouched (R16).
local ttls, mine, busy = {}, {}, nil
for i = 1, locks do
  local ttl = call('PTTL', KEYS[i])
  ttls[i] = ttl
  if ttl ~= -2 then
    if call('HGET', KEYS[i], ARGV[1]) then
      mine[#mine + 1] = i
    elseif call('HEXISTS', KEYS[i], 'mode') == 1 then
      return redis.error_reply('WRONGTYPE the name of lock ' .. i .. ' is in use as a read-write lock')
    elseif not busy then
      busy = i
    end
  end
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if busy then
  for _, i in ipairs(mine) do
    if call('HDEL', KEYS[i], ARGV[1]) == 1 then redis.pcall(ARGV[5], ARGV[5 + i], '0') end
  end
  return { -4 - ttls[busy], now, busy }
end

-- P3: a request that outlived its caller takes nothing. Checked after busy, which takes nothing either.
if now > ARGV[3] + 0 then return -1 end

local token = 0
local taken = 0
local done, problem = pcall(function()
  if #KEYS > locks then
    -- P2: one token above the last of every counter, max(last + 1, now), compared as numbers (R5).
    token = now
    local text = time[1] .. string.sub('00000' .. time[2], -6)
    for i = locks + 1, #KEYS do
      local last = call('GET', KEYS[i])
      if last then
        local n = tonumber(last)
        -- R17. Nothing has changed yet.
        if not n or n % 1 ~= 0 or n >= 9007199254740991 then
          error(redis.error_reply('WRONGTYPE the fencing counter ' .. KEYS[i] .. ' is not a whole number below 2^53 - 1'))
        end
        if n >= token then
          token = n + 1
          text = string.format('%.0f', token)
        end
      end
    end
    for i = locks + 1, #KEYS do call('SET', KEYS[i], text) end
  end
  for i = 1, locks do
    taken = i
    call('HSET', KEYS[i], ARGV[1], '1')
    -- Never shorten (R3).
    if ttls[i] < ARGV[2] + 0 then call('PEXPIRE', KEYS[i], ARGV[2]) end
  end
end)
if done then return token end
-- All or nothing, also when rights are missing; and no lock without a TTL stays behind (R9).
for i = 1, taken do
  if redis.pcall('HDEL', KEYS[i], ARGV[1]) == 1 then redis.pcall(ARGV[5], ARGV[5 + i], '0') end
end
return type(problem) == 'table' and problem or redis.error_reply(tostring(problem))
