-- semaphore/free, in front of the other scripts.

-- Returns the number of free permits, and its text if the key exists. Called before any write, so a foreign key of any type stays
-- untouched (R16). Reads no more of it than a number can have.
local function free_in(key)
  local text = redis.call('GETRANGE', key, '0', '15')
  -- A number that INCRBY accepts, and that Lua represents exactly.
  if text == '0' or (#text < 16 and string.find(text, '^-?[1-9]%d*$')) then return text + 0, text end
  if text == '' and redis.call('EXISTS', key) == 0 then return 0 end
  error({ err = 'WRONGTYPE the key holds a text that is no number of permits' })
end

