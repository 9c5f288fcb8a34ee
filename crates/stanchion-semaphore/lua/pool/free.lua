-- semaphore/free, in front of the other scripts.

-- The number of free permits, and its text if the key exists. Reading it first leaves a foreign key untouched (R16), whatever its
-- type or text, and reads no more of it than a number can have.
local function free_in(key)
  local text = redis.call('GETRANGE', key, '0', '15')
  -- As INCRBY takes it, and Lua tells it from the next number.
  if text == '0' or (#text < 16 and string.find(text, '^-?[1-9]%d*$')) then return text + 0, text end
  if text == '' and redis.call('EXISTS', key) == 0 then return 0 end
  error({ err = 'WRONGTYPE the key holds a text that is no number of permits' })
end

