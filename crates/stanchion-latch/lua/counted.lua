-- latch/counted, in front of the other scripts.

-- The count, or nil when there is none. Reading it first leaves a foreign key untouched (R16), whatever its type or text, and reads no
-- more of it than a count can have.
local function count_in(key)
  local text = redis.call('GETRANGE', key, '0', '17')
  -- As DECRBY takes it.
  if text == '0' or (#text < 18 and string.find(text, '^-?[1-9]%d*$')) then return text + 0 end
  if text == '' and redis.call('EXISTS', key) == 0 then return nil end
  error({ err = 'WRONGTYPE the key holds no count' })
end

