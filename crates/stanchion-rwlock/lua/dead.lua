-- What the scripts of readers and writers do about readers that died. It stands between a script's header and its work;
-- `main`, `readers` and `prefix` are set by then.
--
-- A reader is dead when none of its hold keys is left (Redisson's rule). `readers` says before when that need not be
-- asked: a reader of ours is in it with the end of its lease, one of Redisson's with the end of its holds when they were last
-- looked at. So the dead are found in the order in which their leases ended, whoever is beside them.

-- What a reader's hold keys have left, in ms. One with more holds than are looked at is taken for alive.
local function left_of(reader, count)
  local longest = 0
  for hold = 1, math.min(count, 8) do
    longest = math.max(longest, call('PTTL', prefix .. reader .. ':rwlock_timeout:' .. hold))
  end
  if longest == 0 and count > 8 then return 1000 end
  return longest
end

local function take_out(reader)
  call('ZREM', readers, reader)
  return call('HDEL', main, reader)
end

-- Takes out the dead among those whose leases ought to have ended before `now`, server ms: `most` of them are looked at.
-- Returns how many went.
local function bury_ended(now, most)
  local gone = 0
  for _, reader in ipairs(call('ZRANGEBYSCORE', readers, '-inf', '(' .. now, 'LIMIT', 0, most)) do
    local left = left_of(reader, tonumber(call('HGET', main, reader) or 0) or 0)
    if left > 0 then
      call('ZADD', readers, now + left, reader)
    else
      gone = gone + take_out(reader)
    end
  end
  return gone
end

-- Takes out the dead readers of a lock that is read and has so many fields, one of which is the mode.
-- Returns how many fields are left, the ms after which it is worth another look, and whether all were looked at: that is the longest hold then.
local function bury(now, fields)
  fields = fields - bury_ended(now, 64)
  -- Few are all looked at, as Redisson does; so are those that nobody has looked at yet, at most 64 of them in one run.
  local few = fields <= 5
  if not few and fields - 1 <= call('ZCARD', readers) then
    return fields, math.max(0, call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2] - now), false
  end
  local longest, all = 0, fields <= 64
  local sample = call('HRANDFIELD', main, 64, 'WITHVALUES')
  for i = 1, #sample, 2 do
    local reader = sample[i]
    if reader ~= 'mode' then
      local left = left_of(reader, tonumber(sample[i + 1]) or 0)
      if left <= 0 then
        take_out(reader)
        fields = fields - 1
      elseif not few then
        call('ZADD', readers, 'NX', now + left, reader)
      end
      longest = math.max(longest, left)
    end
  end
  if not few then call('PEXPIRE', readers, math.max(call('PTTL', readers), call('PTTL', main), 1)) end
  -- Of those that nobody has looked at, some are left: soon again.
  return fields, all and longest or 100, all
end

