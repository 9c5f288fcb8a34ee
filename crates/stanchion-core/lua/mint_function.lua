-- P2, R17, as in the common case of an acquire (mint.lua), where no function may be.
local function mint(us)
  if fence == lock then return 0 end
  local n = tonumber(call('GET', fence) or 0)
  if not n or n % 1 ~= 0 or n >= 9007199254740991 then
    error(redis.error_reply('WRONGTYPE the fencing counter ' .. fence .. ' is not a whole number below 2^53 - 1'))
  end
  local token = math.max(n + 1, us)
  call('SET', fence, string.format('%.0f', token))
  return token
end

