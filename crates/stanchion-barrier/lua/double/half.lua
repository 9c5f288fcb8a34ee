-- The state of a double barrier. Needs the locals `call`, `barrier`, `places`, `publish`, `channel`.
--
-- Its rounds come in pairs. An even round fills, and ends when n parties are in. The odd round after it ends when all have left. Its messages
-- have the format of a cyclic barrier without a broken round: "<first> <gen> ".
local n, gen, first = unpack(call('HMGET', barrier, 'n', 'gen', 'first'))
if not gen and call('EXISTS', barrier) == 1 then
  return redis.error_reply('WRONGTYPE the key holds no double barrier')
end
local function fact()
  return first .. ' ' .. gen .. ' '
end
local function inside()
  return gen % 2 == 1
end
-- @bury.lua
-- Ends the half round.
local function over()
  gen = string.format('%.0f', gen + 1)
  call('HSET', barrier, 'gen', gen)
  -- R14: through pcall. One message for all waiters (P11).
  redis.pcall(publish, channel, fact())
end
