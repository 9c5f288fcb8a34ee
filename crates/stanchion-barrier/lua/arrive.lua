-- barrier/arrive
-- Take a place in the current round. The n-th place trips it.
--
-- KEYS[1]  barrier    hash    n, gen (the current generation), first (that at creation); an hour from the last arrival or look
-- KEYS[2]  places     zset    owner -> server ms until which its place is good; as KEYS[1]
-- KEYS[3]  once       string  the answer of this arrival: a resend may come after its round
-- ARGV[1]  owner      "<client uuid>:<number>", used for one arrival only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  n          the number of parties
-- ARGV[5]  keep       milliseconds that the answer is kept
-- ARGV[6]  publish    PUBLISH or SPUBLISH
-- ARGV[7]  channel    what the channel of a round begins with; its generation follows
--
-- Returns  { 0, now in us, generation, arrival, 1 if it tripped the round }; -1 late; { -3, now, n } another number of parties
-- Replay   gives the answer of the first run, and takes no place (P6)
-- Wakes    all who wait in the round, when it trips: one message
-- Cost     O(log n), and the dead places
local call = redis.call
local barrier, places, once = KEYS[1], KEYS[2], KEYS[3]
-- Every type is read before the first write: a foreign key is an error, and stays (R16).
local n, gen, first = unpack(call('HMGET', barrier, 'n', 'gen', 'first'))
if not gen and call('EXISTS', barrier) == 1 then
  return redis.error_reply('WRONGTYPE the key holds no barrier')
end
call('ZCARD', places)
local answered = call('GET', once)
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if answered then
  local g, arrival, last = string.match(answered, '^(%d+) (%d+) (%d)$')
  return { 0, now, g + 0, arrival + 0, last + 0 }
end
-- P3: a request that outlived its caller takes no place.
if now > ARGV[3] + 0 then return -1 end
if n and n ~= ARGV[4] then return { -3, now, n + 0 } end
local ms = math.floor(now / 1000)
-- Deletes pass at maxmemory, and let the rest pass or fail before anything is half done (R8).
if not gen then
  gen = string.format('%.0f', now)
  -- Places of a barrier that is forgotten count for nothing.
  call('DEL', places)
  call('HSET', barrier, 'n', ARGV[4], 'gen', gen, 'first', gen)
end
call('ZREMRANGEBYSCORE', places, '-inf', ms - 1)
local hour = math.max(3600000, ARGV[2] + 0)
if call('PTTL', barrier) < hour then call('PEXPIRE', barrier, hour) end
local arrival = call('ZCARD', places) + 1
local last = arrival >= ARGV[4] + 0 and 1 or 0
call('SET', once, gen .. ' ' .. arrival .. ' ' .. last, 'PX', ARGV[5])
if last == 1 then
  call('DEL', places)
  call('HSET', barrier, 'gen', string.format('%.0f', gen + 1))
  -- R14: through pcall, last.
  redis.pcall(ARGV[6], ARGV[7] .. gen, '0')
else
  call('ZADD', places, string.format('%.0f', ms + ARGV[2]), ARGV[1])
  if call('PTTL', places) < hour then call('PEXPIRE', places, hour) end
end
return { 0, now, gen + 0, arrival, last }
