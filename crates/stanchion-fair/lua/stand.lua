-- The rest of an acquire that found a holder or a queue: its reply. `arrived` and `hears`: see fair/acquire.
local function stand(owner, lease, not_after, arrived, hears)
  if us > not_after then return -1 end

  -- Every type is read before the first write (R16).
  read_holder()
  local in_queue = call('LLEN', queue)
  local ours = call('ZCARD', waiters)
  local queued = call('ZSCORE', timeouts, owner)
  local called = age('called')

  if holder == owner then
    -- A replay, or a grant by a late or lost message.
    call('PEXPIRE', lock, lease, 'GT')
    return mint(us)
  end

  if arrived == '' then
    if not holder then settle() end
    -- Otherwise only dead waiters were ahead.
    if call('EXISTS', lock, queue) > 0 then return -4 - math.max(-1, left or call('PTTL', lock)) end
    in_queue = 0
  else
    -- R8: at maxmemory a waiter that is in the queue passes, a new waiter does not.
    if arrived ~= '0' then call('ZREM', waiters, '') end
    -- L15: a message precedes the removal of a place. Without one, a due poll finds that the queue was lost. After a lost grant the waiter is
    -- still in `waiters`.
    if hears == '2' and (tonumber(arrived) or 0) > 0 and not queued and called == math.huge and not call('ZSCORE', waiters, owner) then
      call_all()
      called = 0
    end
    if hears == '0' or called < math.huge then note(process(owner)) end
  end

  -- No waiter is ahead. Another owner may have released in this script.
  if not holder and in_queue == 0 and not queued then
    local token = mint(us)
    enter(owner, lease)
    return token
  end

  local others = math.max(0, in_queue - ours + (holder and call('ZSCORE', waiters, holder) and 1 or 0))
  local place = arrived + 0
  if place == 0 then
    -- Rising, so that the order of arrival is that of the queue, also if the clock goes back.
    local last = call('ZRANGE', waiters, -1, -1, 'WITHSCORES')[2]
    place = math.max(us, (last or 0) + 1)
  end
  call('ZADD', waiters, 'NX', place, owner)
  if call('PTTL', waiters) < waiters_ms - poll_ms then
    local set = redis.pcall('PEXPIRE', waiters, waiters_ms)
    if set ~= 1 then
      -- R9.
      call('ZREM', waiters, owner)
      return set
    end
  end
  if not queued then
    -- A place that was removed, because its process was cut off, goes in front of the next waiter that arrived later.
    local next
    local rank = arrived ~= '0' and call('ZRANK', waiters, owner)
    for _, later in ipairs(rank and call('ZRANGE', waiters, rank + 1, rank + 3) or {}) do
      next = next or call('ZSCORE', timeouts, later) and later
    end
    if not next or call('LINSERT', queue, 'BEFORE', next, owner) < 1 then call('RPUSH', queue, owner) end
  else
    place = (call('ZSCORE', waiters, owner) or place) + 0
  end
  -- F7: time for every Redisson waiter that may be ahead. Never added to another deadline, and set again by each request.
  -- The fraction is a lease that is shorter than a grant by message: see `term_of`.
  call('ZADD', timeouts, now + (others + 2) * wait + (lease < granted_ms and lease / 2048 or 0), owner)

  -- A new waiter changes nothing for the waiters ahead while the lock is held.
  if not holder or arrived ~= '0' then settle(owner, lease) end
  return granted or busy(owner, place, others, arrived ~= '0', queued)
end
