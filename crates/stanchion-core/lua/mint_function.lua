-- The function form of mint.lua (P2, R17). The common case of an acquire has no function, because functions cost server time.
local function mint(us)
  if fence == lock then return 0 end
  local last = call('SET', fence, string.format('%.0f', us), 'GET')
  if not last then return us end
  local n = tonumber(last)
  -- R17: the value is restored, so the script has changed nothing.
  if not n or n % 1 ~= 0 or n >= 9007199254740991 then
    call('SET', fence, last)
    error(redis.error_reply('WRONGTYPE the fencing counter ' .. fence .. ' is not a whole number below 2^53 - 1'))
  end
  if n < us then return us end
  call('SET', fence, string.format('%.0f', n + 1))
  return n + 1
end

