-- The state of a barrier, and the end of a round. Needs the locals `call`, `barrier`, `places`, `publish`, `channel`.
--
-- A fact is the message that ends waits: "<first> <gen> <broken>". `first` is the number of the barrier's first round, and distinguishes the facts
-- of a deleted barrier from those of the next one. `gen` is the present round, so all rounds before it are over. `broken` lists the last eight
-- broken rounds, "<round><why>" with commas between. A fact includes all that the facts before it said.
local n, gen, first, policy, after, broken =
  unpack(call('HMGET', barrier, 'n', 'gen', 'first', 'policy', 'next', 'broken'))
if not gen and call('EXISTS', barrier) == 1 then
  return redis.error_reply('WRONGTYPE the key holds no barrier')
end
local function fact()
  return first .. ' ' .. gen .. ' ' .. (broken or '')
end
-- @bury.lua
-- Ends the round and begins the next. With `why`, the round breaks.
local function over(why)
  -- Allowed at maxmemory, and makes Redis allow the writes after it (R8).
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
  -- R14: through pcall. One message for all waiters (P11).
  redis.pcall(publish, channel, fact())
end
