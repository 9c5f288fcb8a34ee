-- lock/acquire
-- Take a free lock, or find that this owner has it already.
--
-- KEYS[1]  lock       hash    owner -> hold count; its TTL is the lease (Redisson's layout)
-- KEYS[2]  fence      string  the last fencing token, no TTL; the lock's own key again: mint none
-- ARGV[1]  owner      "<client uuid>:<number>", used for one outermost hold only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
--
-- Returns  > 0 the token, 0 acquired without a token, -1 late, -4 - ttl busy (-3: the holder has no TTL)
-- Replay   grants again with a new, larger token: the count is set, never incremented (P6)
-- Wakes    nobody
-- Cost     O(1)
local call = redis.call
-- Reading the type first leaves a foreign key untouched: WRONGTYPE comes before any write (R16).
local ttl = call('PTTL', KEYS[1])
if ttl ~= -2 and not call('HGET', KEYS[1], ARGV[1]) then return -4 - ttl end

-- P3: a request that outlived its caller takes nothing. Busy is as good an answer, so only a grant pays for TIME.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[3] + 0 then return -1 end

local token = 0
if KEYS[2] ~= KEYS[1] then
  -- P2: max(last + 1, now), compared as numbers (R5). Text, because Lua writes a large number slowly.
  token = now
  local last = call('SET', KEYS[2], time[1] .. string.sub('00000' .. time[2], -6), 'GET')
  if last and last + 0 >= now then
    token = last + 1
    call('SET', KEYS[2], string.format('%.0f', token))
  end
end

call('HSET', KEYS[1], ARGV[1], '1')
-- Never shorten (R3). A lock without a TTL must not stay behind, whatever the server's rights say (R9).
if ttl < ARGV[2] + 0 then
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
  if set ~= 1 then
    call('HDEL', KEYS[1], ARGV[1])
    return set
  end
end
return token
