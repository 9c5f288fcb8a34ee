-- semaphore/free, in front of the other scripts.

-- The number of free permits, and its text if the key exists. Reading it first leaves a foreign key untouched (R16).
local function free_in(key)
  local text = redis.call('GET', key)
  local free = tonumber(text or '0')
  if free then return free, text end
  error({ err = 'WRONGTYPE the key holds a text that is no number of permits' })
end

