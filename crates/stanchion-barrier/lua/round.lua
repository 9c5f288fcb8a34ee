-- What a barrier is, and how a round of it ends. Needs the locals `call`, `barrier`, `places`, `publish`, `channel`.
--
-- The fact that ends waits: "<first> <gen> <broken>". `first` is the number of the barrier's first round, so that the facts of one that was
-- deleted are told from those of the next; `gen` the present round, so all before it are over; `broken` those of them that broke,
-- the last eight, "<round><why>" with commas between. It says all that the facts before it said.
local n, gen, first, policy, after, broken =
  unpack(call('HMGET', barrier, 'n', 'gen', 'first', 'policy', 'next', 'broken'))
if not gen and call('EXISTS', barrier) == 1 then
  return redis.error_reply('WRONGTYPE the key holds no barrier')
end
local function fact()
  return first .. ' ' .. gen .. ' ' .. (broken or '')
end
-- @bury.lua
-- Ends the round and begins the next. `why`: it breaks.
local function over(why)
  -- Passes at maxmemory, and lets the rest pass (R8).
  call('ZREMRANGEBYSCORE', places, 0, '+inf')
  if why then
    local kept = {}
    for one in string.gmatch((broken or '') .. ',' .. gen .. why, '[^,]+') do table.insert(kept, one) end
    while #kept > 8 do table.remove(kept, 1) end
    broken = table.concat(kept, ',')
    call('HSET', barrier, 'broken', broken)
  end
  gen = string.format('%.0f', gen + 1)
  call('HSET', barrier, 'gen', gen)
  if after then
    n, after = after, false
    call('HSET', barrier, 'n', n)
    call('HDEL', barrier, 'next')
  end
  -- R14: through pcall. One message for all who wait (P11).
  redis.pcall(publish, channel, fact())
end
