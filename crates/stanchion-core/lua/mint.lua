local token = 0
if fence ~= KEYS[1] then
  -- P2: max(last + 1, now), compared as numbers (R5). Text, because Lua writes a large number slowly; nine times of ten the
  -- microseconds need no zeros.
  token = now
  local micros = #time[2] == 6 and time[2] or string.sub('00000' .. time[2], -6)
  local last = call('SET', fence, time[1] .. micros, 'GET')
  if last then
    local n = tonumber(last)
    -- R17: the value is restored, so the script has changed nothing.
    if not n or n % 1 ~= 0 or n >= 9007199254740991 then
      call('SET', fence, last)
      return redis.error_reply('WRONGTYPE the fencing counter ' .. fence .. ' is not a whole number below 2^53 - 1')
    end
    if n >= now then
      token = n + 1
      call('SET', fence, string.format('%.0f', token))
    end
  end
end
