-- election/campaign
-- Lead if nobody does, or find that this owner leads already; otherwise be a candidate, or stay one.
--
-- KEYS[1]  lead        hash    owner -> 1, the leader; its TTL is the lease (the layout of a lock)
-- KEYS[2]  fence       string  the last fencing token, no TTL; the key of the leader again: mint none
-- KEYS[3]  term        hash    owner, priority, since, token, seq and value of the leader; the lease
-- KEYS[4]  candidates  hash    owner -> "<priority> <value>"; as long as the longest candidate lasts
-- KEYS[5]  seen        zset    owner -> server ms until which it is a candidate; as KEYS[4]
-- KEYS[6]  rank        zset    owner -> its priority, negated; as KEYS[4]
-- KEYS[7]  heir        string  the owner for whom a vacancy is kept, or "-<client uuid>": that client rests, as older versions note it; PX
-- KEYS[8]  rests       zset    client uuid -> server ms until which it rests; as long as the longest rest
-- ARGV[1]  owner       "<client uuid>:<number>", used for one campaign only (R1)
-- ARGV[2]  lease       milliseconds
-- ARGV[3]  not_after   server time in microseconds; later the script refuses
-- ARGV[4]  waits       1: refused, it is a candidate; 0: it leaves nothing
-- ARGV[5]  priority    a whole number
-- ARGV[6]  value       bytes
-- ARGV[7]  stays       milliseconds for which it is a candidate unless it asks again
-- ARGV[8]  head start  milliseconds for which a vacancy is kept for a candidate of higher priority
-- ARGV[9]  publish     PUBLISH or SPUBLISH
-- ARGV[10] wake        the channel of the lock, on which candidates are told to ask
-- ARGV[11] news        the channel of those who look on
-- ARGV[12] notice      what the channel of a client begins with
--
-- Returns  > 0 the token, 0 leads without a token, -1 late; { -4 - ms, now in us } ask again after that time (-3: the leader has no TTL)
-- Replay   grants again with a new, larger token; the value that was proclaimed meanwhile stays (P6)
-- Wakes    all candidates, when the vacancy is kept for one of them; the leader, when this one has a higher priority
-- Cost     O(log n) for n candidates, and up to 64 that have ended
local call, fence = redis.call, KEYS[2]
local lead, term, candidates, seen, rank, heir, rests = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local owner, lease, publish = ARGV[1], ARGV[2] + 0, ARGV[9]

-- Every type is read before the first write: a foreign key is an error, and stays (R16).
local ttl = call('PTTL', lead)
local held = ttl ~= -2 and call('HGET', lead, owner)
if ttl ~= -2 and not held and call('HEXISTS', lead, 'mode') == 1 then
  return redis.error_reply('WRONGTYPE this name is in use as a read-write lock')
end
local leader, its_priority = unpack(call('HMGET', term, 'owner', 'priority'))
local known = call('HEXISTS', candidates, owner) == 1
call('ZSCORE', seen, owner)
call('ZSCORE', rank, owner)
call('ZSCORE', rests, owner)
local kept = call('GET', heir)

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
-- P3: a request that outlived its caller takes nothing.
if now > ARGV[3] + 0 then return -1 end
local ms = math.floor(now / 1000)

local function forget(one)
  call('HDEL', candidates, one)
  call('ZREM', seen, one)
  call('ZREM', rank, one)
end

-- Exactly those that have ended, in the order of their ends.
for _, ended in ipairs(call('ZRANGEBYSCORE', seen, '-inf', ms - 1, 'LIMIT', 0, 64)) do
  if ended ~= owner then forget(ended) end
end

-- Refused, it is a candidate from here on if it waits: in the same step, so that no resignation comes in between.
local function refuse(wait)
  if ARGV[4] == '1' then
    call('HSET', candidates, owner, ARGV[5] .. ' ' .. ARGV[6])
    call('ZADD', seen, ms + ARGV[7], owner)
    call('ZADD', rank, 0 - ARGV[5], owner)
    for _, key in ipairs({ candidates, seen, rank }) do
      if call('PTTL', key) < ARGV[7] + 0 then call('PEXPIRE', key, ARGV[7]) end
    end
  end
  return { -4 - wait, now }
end

if ttl ~= -2 and not held then
  if ARGV[4] == '1' and its_priority and ARGV[5] + 0 > its_priority + 0 and call('HEXISTS', lead, leader) == 1 then
    local holders, notice = { leader }, ARGV[12]
    -- @notice.lua
    -- With every request: a message may be lost.
    tell_holders('ask', ' a candidate of priority ' .. ARGV[5] .. ' waits')
  end
  return refuse(ttl)
end

if not held and kept ~= owner then
  local noted = kept and string.match(kept, '^%-(.*)$')
  -- Returns the milliseconds for which the client of a candidate still rests; nil if it does not.
  local function rest_of(one)
    local client = string.match(one, '^(.*):') or one
    local till = call('ZSCORE', rests, client)
    if till and till + 0 >= ms then return till - ms end
    return client == noted and call('PTTL', heir) or nil
  end
  if kept and not noted then return refuse(call('PTTL', heir)) end
  local rest = rest_of(owner)
  if rest then
    -- A client that has stepped down lets others go first: those that do not rest, and those whose rest ends sooner.
    for _, other in ipairs(call('ZRANGEBYSCORE', seen, ms, '+inf', 'LIMIT', 0, 64)) do
      local its = rest_of(other)
      if not its or its < rest then return refuse(rest) end
    end
  end
  -- The highest rank above this one's that lives and does not rest.
  local ranked = call('ZRANGE', rank, 0, 15, 'WITHSCORES')
  for i = 1, #ranked, 2 do
    local one = ranked[i]
    if -ranked[i + 1] <= ARGV[5] + 0 then break end
    local stays = call('ZSCORE', seen, one)
    if not stays or stays + 0 < ms then
      forget(one)
    elseif one ~= owner and not rest_of(one) then
      -- Once for each request of that candidate: if it does not come, the next in rank is asked.
      call('ZREM', rank, one)
      call('SET', heir, one, 'PX', ARGV[8])
      local reply = refuse(ARGV[8] + 0)
      redis.pcall(publish, ARGV[10], '0')
      return reply
    end
  end
end

-- @mint.lua

local us, minted = string.format('%.0f', now), string.format('%.0f', token)
if leader == owner then
  -- A replay: what has been proclaimed meanwhile stays.
  call('HSET', term, 'token', minted)
else
  call('DEL', term)
  call('HSET', term, 'owner', owner, 'priority', ARGV[5], 'since', us, 'token', minted, 'seq', '0', 'value', ARGV[6])
end
if not held then call('HSET', lead, owner, '1') end
-- Never shorten (R3).
if ttl < lease then
  -- A leader without a TTL must not stay behind, even where PEXPIRE is not permitted (R9).
  local set = redis.pcall('PEXPIRE', lead, lease)
  if set ~= 1 then
    if not held then call('DEL', lead, term) end
    return set
  end
end
if call('PTTL', term) < lease then call('PEXPIRE', term, lease) end
if known then forget(owner) end
if kept then call('DEL', heir) end
-- R14: through pcall, last.
redis.pcall(publish, ARGV[11], 'elected ' .. owner .. ' ' .. minted .. ' ' .. us)
return token
