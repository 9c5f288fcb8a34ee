-- An acquire that found the lock held or somebody waiting.
local owner, lease, place = ARGV[4], ARGV[5] + 0, ARGV[7]
if us > ARGV[6] + 0 then return -1 end

-- Every type is read before the first write (R16).
local holders = call('HKEYS', lock)
local in_queue = call('LLEN', queue)
local ours = call('ZCARD', waiters)
local queued = call('ZSCORE', timeouts, owner)
if #holders > 1 then
  return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has more than one holder')
end
holder = holders[1]

if holder == owner then
  -- A replay, or a grant whose message is late or lost.
  call('PEXPIRE', lock, lease, 'GT')
  return mint()
end

local function busy(look, forgotten)
  local here = holder and process(holder) == process(owner)
  -- Our client uuids are of version 8, Redisson's of version 4.
  local foreign = in_queue > ours or holder and string.sub(holder, 15, 15) ~= '8'
  return { -4 - math.max(-1, look), us, here and holder or '', forgotten and 1 or 0, foreign and 1 or 0 }
end

if place == 'none' then
  if holder then return busy(call('PTTL', lock)) end
  local look = settle()
  if call('EXISTS', lock, queue) > 0 then return busy(look >= 0 and look or left) end
  -- Only the dead were in its way.
else
  -- R8: who waits already passes at maxmemory, who comes anew does not.
  if place == 'old' then call('HDEL', live, '') end
  mark(process(owner), now + grace - trial)
end

-- F6: room for everybody of Redisson's that may be ahead; never chained to another deadline, and stamped anew each time.
call('ZADD', timeouts, now + (math.max(0, in_queue - ours) + 2) * wait, owner)
if not queued then call('RPUSH', queue, owner) end
call('ZADD', waiters, 'NX', us, owner)

-- A newcomer changes nothing for those ahead of it while the lock is held; they look after themselves.
local look
if holder and place == 'new' then
  look = call('PTTL', lock)
else
  look = settle(owner, lease)
  if look < 0 then look = left end
end
return granted or busy(look, place == 'old' and not queued)
