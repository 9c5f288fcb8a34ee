-- semaphore/total, in front of the scripts that change how many plain permits there are.
--
-- The total is known if a stanchion client created the semaphore. An operator's reclaim uses the total to find permits that cannot be held
-- any more. Redisson does not update the key, so it expires 30 days after it was last set. A semaphore that ends keeps its total in `idle`.
local REMEMBERED = '2592000000'

local function know_total(key, total)
  redis.call('SET', key, string.format('%.0f', total), 'PX', REMEMBERED)
end

-- `key` may be the semaphore's own: leased permits need no total. Redisson ends them together with the semaphore.
local function made(it, key, total)
  redis.call('DEL', it.idle)
  if not it.plain then return end
  -- Holders of a former semaphore of this name hold no permits of this one.
  redis.call('DEL', it.held)
  know_total(key, total)
end

local function changed(it, key, by, free)
  local idle = idle_of(it)
  if idle then
    if it.plain then idle.total = idle.total + by end
    return used(it, idle, free, 0)
  end
  local total = it.plain and redis.call('GET', key)
  if total then know_total(key, total + by) end
end

