-- semaphore/request, for the scripts that acquire permits, behind line.lua.

-- Takes the permits that `entry` wants if enough are free and no other entry waits, or adds `entry` to the queue. Returns the reply. Its last
-- element is "none" if the semaphore does not exist.
local function request(entry, wanted, us, ask, arrived, hears, kept, lease, ids, most)
  -- R16: read before the first write.
  local foreign_notes = read_turn(us)
  if foreign_notes then return foreign_notes end
  -- The queue leaves a permit to Redisson's clients during their turn.
  if left_ms > 0 and free <= 0 then turn_used() end
  local lost = is_lost(entry, ask, arrived)
  reclaim(us, most or sweep)
  local tries, polling = ask == 'try', polls(entry)
  local head, rests = candidate(us, entry)
  local waits = head and not rests and head ~= entry
  -- A `look` or `ask` request may come before a head for which there are enough permits. Otherwise the permits are kept for the head.
  if fits(entry) and not (waits and (tries or polling or ask == 'new' or not fits(head))) then
    enter(entry, us, lease, ids)
    local _, _, more
    if not tries and (head or left_ms == 0 and call('HEXISTS', wake, 'until') == 1) then
      _, _, more = took(entry, us, lost and 'ask' or ask, lease)
    end
    if lost then call_all(us) end
    return unless_unfinished(0, more)
  end
  if idle then used(it, idle, free, tries and 0 or kept) end
  local left = next_end(us)
  if tries then
    -- The queue may leave some permits.
    local _, _, more = serve(us)
    head, rests = candidate(us)
    if not fits(entry) or head and not rests then return unless_unfinished(-4 - left, more) end
    enter(entry, us, lease, ids)
    return unless_unfinished(0, more)
  end
  local stood = stand(entry, us, left, arrived, left_ms > 0 and free >= wanted, hears, ask, lease)
  if lost then call_all(us) end
  if not exists and type(stood) == 'table' and stood[2] then stood[#stood + 1] = 'none' end
  local _, own, more = serve(us, entry, lease)
  if own then return unless_unfinished(0, more) end
  if type(stood) == 'table' and stood[2] then
    local look = -4 - stood[1]
    -- The poll keeps a semaphore that ends.
    if idle then look = math.min(look, math.floor(kept / 2)) end
    local known = call('HMGET', wake, 'waits', 'ends')
    local rank = known[2] and known[2] + 0 > us and call('ZRANK', line, entry)
    if rank and rank <= watchers then
      look = math.min(look, math.ceil((known[2] - us) / 1000) + rank * try_ms)
    end
    if look ~= -4 - stood[1] then stood[1], stood[5] = -4 - look, 0 end
  end
  return unless_unfinished(stood, more)
end
