-- semaphore/total, in front of the scripts that change how many plain permits there are.
--
-- The total is known if a stanchion client created the semaphore. It tells an operator's reclaim which permits cannot be held any
-- more. Redisson does not update the key, so it expires 30 days after it was last set.
local REMEMBERED = '2592000000'

local function know_total(key, total)
  redis.call('SET', key, string.format('%.0f', total), 'PX', REMEMBERED)
end

-- `key` may be the semaphore's own: leased permits need no total. Redisson ends them together with the semaphore.
local function made(ledger, key, total)
  if key == KEYS[1] then return end
  -- Holders of a former semaphore of this name hold nothing of this one.
  redis.call('DEL', ledger)
  know_total(key, total)
end

local function changed(key, by)
  local total = key ~= KEYS[1] and redis.call('GET', key)
  if total then know_total(key, total + by) end
end

