-- election/campaign
-- Become the leader if there is none, or confirm that this owner leads already. Otherwise become a candidate, or stay one.
--
-- KEYS[1]  lead        hash    owner -> 1, the leader; its TTL is the lease (the layout of a lock)
-- KEYS[2]  fence       string  the last fencing token, no TTL; if it is KEYS[1] again, no token is minted
-- KEYS[3]  term        hash    owner, priority, since, token, seq and value of the leader; the lease
-- KEYS[4]  candidates  hash    owner -> "<priority> <value>"; TTL that of the longest candidacy
-- KEYS[5]  seen        zset    owner -> server ms at which its candidacy ends; TTL as KEYS[4]
-- KEYS[6]  rank        zset    owner -> its priority, negated; TTL as KEYS[4]
-- KEYS[7]  heir        string  the owner that a vacancy is reserved for, or "-<client uuid>": this client rests (format of older versions); PX
-- KEYS[8]  rests       zset    client uuid -> server ms at which its rest ends; TTL that of the longest rest
-- ARGV[1]  owner       "<client uuid>:<number>", used for one campaign only (R1)
-- ARGV[2]  lease       milliseconds
-- ARGV[3]  not_after   server time in microseconds; later the script refuses
-- ARGV[4]  waits       1: if refused, the owner becomes a candidate; 0: it leaves nothing
-- ARGV[5]  priority    a whole number
-- ARGV[6]  value       bytes
-- ARGV[7]  stays       milliseconds for which it stays a candidate without another request
-- ARGV[8]  head start  milliseconds for which a vacancy is reserved for a candidate of higher priority
-- ARGV[9]  publish     PUBLISH or SPUBLISH
-- ARGV[10] wake        the channel of the lock, which wakes candidates
-- ARGV[11] news        the channel for observers
-- ARGV[12] notice      prefix of the channel of a client
--
-- Returns  > 0 the token, 0 leads without a token, -1 late; { -4 - ms, now in us } retry after that time (-3: the leader has no TTL)
-- Replay   grants again with a new, larger token; a value that was proclaimed in between stays (P6)
-- Wakes    all candidates, if the vacancy is reserved for one of them; the leader, if this candidate has a higher priority
-- Cost     O(log n) for n candidates, and up to 64 that have ended
local call, fence = redis.call, KEYS[2]
local lead, term, candidates, seen, rank, heir, rests = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local owner, lease, publish = ARGV[1], ARGV[2] + 0, ARGV[9]

-- Every type is checked before the first write, so that a foreign key causes an error and stays unchanged (R16).
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

-- Remove the expired candidates, the oldest first.
for _, ended in ipairs(call('ZRANGEBYSCORE', seen, '-inf', ms - 1, 'LIMIT', 0, 64)) do
  if ended ~= owner then forget(ended) end
end

-- A refused owner that waits becomes a candidate in the same script, so that no resignation can come between the refusal and the candidacy.
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
    -- Notify the leader at every request, because a message may be lost.
    tell_holders('ask', ' a candidate of priority ' .. ARGV[5] .. ' waits')
  end
  return refuse(ttl)
end

if not held and kept ~= owner then
  local noted = kept and string.match(kept, '^%-(.*)$')
  -- Returns the milliseconds for which the client of a candidate still rests; nil if it does not rest.
  local function rest_of(one)
    local client = string.match(one, '^(.*):') or one
    local till = call('ZSCORE', rests, client)
    if till and till + 0 >= ms then return till - ms end
    return client == noted and call('PTTL', heir) or nil
  end
  if kept and not noted then return refuse(call('PTTL', heir)) end
  local rest = rest_of(owner)
  if rest then
    -- A client that has stepped down lets others go first: candidates that do not rest, and candidates whose rest ends sooner.
    for _, other in ipairs(call('ZRANGEBYSCORE', seen, ms, '+inf', 'LIMIT', 0, 64)) do
      local its = rest_of(other)
      if not its or its < rest then return refuse(rest) end
    end
  end
  -- Find the highest-ranked candidate above this one that is alive and does not rest.
  local ranked = call('ZRANGE', rank, 0, 15, 'WITHSCORES')
  for i = 1, #ranked, 2 do
    local one = ranked[i]
    if -ranked[i + 1] <= ARGV[5] + 0 then break end
    local stays = call('ZSCORE', seen, one)
    if not stays or stays + 0 < ms then
      forget(one)
    elseif one ~= owner and not rest_of(one) then
      -- One reservation for each request of that candidate. If it does not come, the vacancy is offered to the next in rank.
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
  -- A replay: a value that was proclaimed in between stays.
  call('HSET', term, 'token', minted)
else
  call('DEL', term)
  call('HSET', term, 'owner', owner, 'priority', ARGV[5], 'since', us, 'token', minted, 'seq', '0', 'value', ARGV[6])
end
if not held then call('HSET', lead, owner, '1') end
-- R3: never shorten a TTL.
if ttl < lease then
  -- R9: a leader without a TTL must not stay, even on a server that does not permit PEXPIRE.
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
