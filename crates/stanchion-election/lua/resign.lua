-- election/resign
-- End what the owner has: its term or its candidacy.
--
-- KEYS[1]  lead        hash    owner -> 1, the leader
-- KEYS[2]  term        hash    owner, priority, since, token, seq and value of the leader
-- KEYS[3]  candidates  hash    owner -> "<priority> <value>"
-- KEYS[4]  seen        zset    owner -> server ms at which its candidacy ends
-- KEYS[5]  rank        zset    owner -> its priority, negated
-- KEYS[6]  heir        string  the owner that a vacancy is reserved for
-- KEYS[7]  rests       zset    client uuid -> server ms at which its rest ends
-- ARGV[1]  owner
-- ARGV[2]  publish     PUBLISH or SPUBLISH
-- ARGV[3]  wake        the channel of the lock
-- ARGV[4]  news        the channel for observers
-- ARGV[5]  next        the owner that shall lead next, or "-<client uuid>": this client rests, or ''
-- ARGV[6]  for         milliseconds of the reservation or the rest
--
-- Returns  >= 0 done, the number of subscribers notified; -1 done, but no message could be sent; -2 the owner leads nothing
-- Replay   the second run finds nothing to end (P6)
-- Wakes    all candidates, of stanchion and of Redisson
-- Cost     O(log n) for n candidates
local call = redis.call
local lead, term, candidates, seen, rank, heir, rests = unpack(KEYS)
local owner = ARGV[1]
-- HDEL tests, decides and deletes in one step, and is allowed at maxmemory (R8).
local found = call('HDEL', lead, owner) == 1
-- From here on through pcall: a foreign type in another key must not keep the leader in office.
redis.pcall('HDEL', candidates, owner)
redis.pcall('ZREM', seen, owner)
redis.pcall('ZREM', rank, owner)
local mine = redis.pcall('GET', heir) == owner
if found then
  if redis.pcall('HGET', term, 'owner') == owner then redis.pcall('DEL', term) end
  if ARGV[5] == '' then
    redis.pcall('DEL', heir)
  else
    -- Also written for a client that rests, because older versions read the rest here. The next election removes the key.
    redis.pcall('SET', heir, ARGV[5], 'PX', ARGV[6])
  end
  local time, client = call('TIME'), string.match(ARGV[5], '^%-(.*)$')
  if client then
    -- A rest has its own entry, because several clients may rest at one time, and a rest outlasts the terms of other leaders.
    local ms = time[1] * 1000 + math.floor(time[2] / 1000)
    redis.pcall('ZREMRANGEBYSCORE', rests, '-inf', ms - 1)
    redis.pcall('ZADD', rests, 'GT', ms + ARGV[6], client)
    local ttl = redis.pcall('PTTL', rests)
    if type(ttl) == 'number' and ttl < ARGV[6] + 0 then redis.pcall('PEXPIRE', rests, ARGV[6]) end
  end
  redis.pcall(ARGV[2], ARGV[4], 'vacant ' .. time[1] .. string.sub('00000' .. time[2], -6))
else
  -- A vacancy that was reserved for this owner is open to all candidates now.
  if mine then redis.pcall('DEL', heir) end
  if not mine or call('EXISTS', lead) == 1 then return -2 end
end
local told = redis.pcall(ARGV[2], ARGV[3], '0')
return type(told) == 'number' and told or -1
