-- The functions for dead readers, for the scripts of readers and writers. Need the locals `call`, `lock`, `readers` and `prefix`.
--
-- A reader is dead when none of its hold keys is left (Redisson's rule). `readers` has the time before which that need not
-- be checked: for a stanchion reader the end of its lease, for a Redisson reader the end of its holds when they were last
-- checked. Dead readers are found in the order in which their leases ended, however many live readers there are.

-- Returns the longest TTL of a reader's hold keys, in ms. A reader with more holds than are checked may last as long as the lock.
local function left_of(reader, count)
  local longest = 0
  for hold = 1, math.min(count, 8) do
    longest = math.max(longest, call('PTTL', prefix .. reader .. ':rwlock_timeout:' .. hold))
  end
  if count > 8 then return math.max(longest, call('PTTL', lock), 1000) end
  return longest
end

local function take_out(reader)
  call('ZREM', readers, reader)
  return call('HDEL', lock, reader)
end

-- Removes the dead among the readers whose leases should have ended before `now`, server ms. Checks at most `most` of them.
-- Returns the number removed.
local function bury_ended(now, most)
  local gone = 0
  for _, reader in ipairs(call('ZRANGEBYSCORE', readers, '-inf', '(' .. now, 'LIMIT', 0, most)) do
    local left = left_of(reader, tonumber(call('HGET', lock, reader) or 0) or 0)
    if left > 0 then
      call('ZADD', readers, now + left, reader)
    else
      gone = gone + take_out(reader)
    end
  end
  return gone
end

-- Removes dead readers of a lock in mode `read` that has so many fields, the mode included.
-- Returns the number of fields left, the ms until another check is worth it, and whether all readers were checked: if so,
-- these ms are the longest hold.
local function bury(now, fields)
  fields = fields - bury_ended(now, 64)
  -- If there are few, all are checked, as Redisson does. Otherwise, if some were never checked, a sample of 64.
  local few = fields <= 5
  if not few and fields - 1 <= call('ZCARD', readers) then
    return fields, math.max(0, call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2] - now), false
  end
  local longest, all = 0, fields <= 64
  local sample = call('HRANDFIELD', lock, 64, 'WITHVALUES')
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
  if not few then call('PEXPIRE', readers, math.max(call('PTTL', readers), call('PTTL', lock), 1)) end
  -- If some were not checked: again soon.
  return fields, all and longest or 100, all
end

