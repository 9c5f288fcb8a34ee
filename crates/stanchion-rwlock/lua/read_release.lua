-- rwlock/read_release
-- One read hold less: n to n - 1. The last hold of the last reader frees the lock and wakes a waiter.
--
-- KEYS[1]  rwlock    hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  hold key  string  of this reader
-- ARGV[1]  owner
-- ARGV[2]  n         the hold count the client knows
-- ARGV[3]  lease     milliseconds
-- ARGV[4]  channel   not a KEY: it would need a right on a key of that name (R14)
-- ARGV[5]  publish   PUBLISH or SPUBLISH
-- ARGV[6]  prefix    what the hold keys of all readers begin with: they are in the slot of KEYS[1]
--
-- Returns  >= 0 done, so many subscribers were told; -1 done, but the message could not be sent; -2 the owner holds nothing
-- Replay   the second run finds nothing to release, or sets the same count (P6)
-- Wakes    when nobody reads any more, one waiter in each process that waits: payload 0, as Redisson
-- Cost     O(1): looks at 4 other readers at most, where Redisson looks at all of them (P11)
local call = redis.call
if ARGV[2] ~= '1' then
  if not call('HGET', KEYS[1], ARGV[1]) then return -2 end
  call('PEXPIRE', KEYS[1], ARGV[3], 'GT')
  if call('PEXPIRE', KEYS[2], ARGV[3], 'GT') == 0 and call('EXISTS', KEYS[2]) == 0 then call('SET', KEYS[2], '1', 'PX', ARGV[3]) end
  call('HSET', KEYS[1], ARGV[1], ARGV[2] - 1)
  return 0
end

-- HDEL tests, decides and deletes in one, and passes at maxmemory (R8).
local had = call('HDEL', KEYS[1], ARGV[1])
call('DEL', KEYS[2])
if had == 0 then return -2 end

-- One field is the mode. Inside a write hold nothing is free, and the TTL is the writer's.
local fields = call('HLEN', KEYS[1])
if fields > 1 then
  if call('HGET', KEYS[1], 'mode') == 'write' then return 0 end
  -- A reader whose hold keys have all gone is dead. Few readers are all looked at. Of many nobody is, but by every tenth
  -- owner, which looks at four: so that the dead go in time, and a release costs the same beside 8 and beside 1000.
  local few = fields <= 5
  if not few and string.sub(ARGV[1], -1) ~= '0' then return 0 end
  local budget, longest = 8, 0
  local sample = call('HRANDFIELD', KEYS[1], few and fields or 4, 'WITHVALUES')
  for i = 1, #sample, 2 do
    if sample[i] ~= 'mode' then
      local alive = false
      for hold = 1, tonumber(sample[i + 1]) or 0 do
        if budget == 0 then
          few, alive = false, true
          break
        end
        budget = budget - 1
        local left = call('PTTL', ARGV[6] .. sample[i] .. ':rwlock_timeout:' .. hold)
        if left > longest then longest = left end
        if left > 0 then alive = true end
      end
      if not alive then
        call('HDEL', KEYS[1], sample[i])
        fields = fields - 1
      end
    end
  end
  if fields > 1 then
    -- As Redisson: the lock lasts as long as its longest hold. The one place where a TTL may shrink, because all are known.
    if few then call('PEXPIRE', KEYS[1], longest) end
    return 0
  end
end
call('DEL', KEYS[1])
local told = redis.pcall(ARGV[5], ARGV[4], '0')
return type(told) == 'number' and told or -1
