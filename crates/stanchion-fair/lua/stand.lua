-- The rest of an acquire that found a holder or a queue: its reply.
local function stand(owner, lease, not_after, place)
  if us > not_after then return -1 end

  -- Every type is read before the first write (R16).
  read_holder()
  local in_queue = call('LLEN', queue)
  local ours = call('ZCARD', waiters)
  local queued = call('ZSCORE', timeouts, owner)
  local alone = in_queue <= ours

  if holder == owner then
    -- A replay, or a grant by a late or lost message.
    call('PEXPIRE', lock, lease, 'GT')
    return mint(us)
  end

  if place == 'none' then
    if holder then return busy(owner, call('PTTL', lock)) end
    local look = settle()
    if call('EXISTS', lock, queue) > 0 then return busy(owner, look >= 0 and look or left) end
    -- Only dead waiters were ahead.
  else
    -- R8: at maxmemory a waiter that is in the queue passes, a new waiter does not.
    if place == 'old' then call('ZREM', heard, '') end
    mark(process(owner), place == 'old')
  end

  -- No waiter is ahead. Another owner may have released in this script.
  if not holder and in_queue == 0 and not queued then return grant(owner, lease) end

  -- F7: time for every Redisson waiter that may be ahead. Never added to another deadline, and set again by each request.
  call('ZADD', timeouts, now + (math.max(0, in_queue - ours) + 2) * wait, owner)
  if not queued then call('RPUSH', queue, owner) end
  call('ZADD', waiters, 'NX', us, owner)

  -- A new waiter changes nothing for the waiters ahead while the lock is held.
  if holder and place == 'new' then return busy(owner, call('PTTL', lock), false, alone) end
  local look = settle(owner, lease, not holder)
  return granted or busy(owner, look >= 0 and look or left, place == 'old' and not queued, alone)
end
