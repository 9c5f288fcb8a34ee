local call = redis.call
local locks, publish = ARGV[4] + 0, ARGV[5]
local lock, fence, line, wake, base
local function at(i)
  lock, line, wake, base = KEYS[i], KEYS[locks + i], KEYS[2 * locks + i], ARGV[6 + i]
  local counter = ARGV[6 + locks + i] + 0
  fence = counter > 0 and KEYS[3 * locks + counter] or lock
end

-- Gives all locks to ARGV[1] for ARGV[2] ms; with `held` it has them already. Returns one token for all, 0: they mint none.
local us, ttls, taken = 0, {}, 0
local function take(held)
  local token = 0
  if #KEYS > 3 * locks then
    -- P2: one token above the last of every counter, max(last + 1, now), compared as numbers (R5).
    token = us
    for i = 3 * locks + 1, #KEYS do
      local last = call('GET', KEYS[i])
      if last then
        local n = tonumber(last)
        -- R17. Nothing has changed yet.
        if not n or n % 1 ~= 0 or n >= 9007199254740991 then
          error(redis.error_reply('WRONGTYPE the fencing counter ' .. KEYS[i] .. ' is not a whole number below 2^53 - 1'))
        end
        if n >= token then token = n + 1 end
      end
    end
    for i = 3 * locks + 1, #KEYS do call('SET', KEYS[i], string.format('%.0f', token)) end
  end
  for i = 1, locks do
    taken = i
    -- R4: a replay keeps the count.
    if not held then call('HSET', KEYS[i], ARGV[1], '1') end
    -- Never shorten (R3).
    if (ttls[i] or -2) < ARGV[2] + 0 then call('PEXPIRE', KEYS[i], ARGV[2]) end
  end
  return token
end

