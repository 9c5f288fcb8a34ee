-- latch/counted, in front of the other scripts.

-- Returns the count, or nil when there is none. Called before any write, so a foreign key of any type stays untouched
-- (R16). Reads at most as many bytes as a count can have.
local function count_in(key)
  local text = redis.call('GETRANGE', key, '0', '17')
  -- A number that DECRBY accepts.
  if text == '0' or (#text < 18 and string.find(text, '^-?[1-9]%d*$')) then return text + 0 end
  if text == '' and redis.call('EXISTS', key) == 0 then return nil end
  error({ err = 'WRONGTYPE the key holds no count' })
end

