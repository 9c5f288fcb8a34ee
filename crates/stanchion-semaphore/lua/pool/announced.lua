-- semaphore/announced, for the scripts that change how many permits there are.

-- Announces free permits to Redisson's clients, and lets the client run semaphore/tend, which serves the queue. Returns the reply.
local function announced(answer, free, line, base, publish)
  if free <= 0 then return answer end
  redis.pcall(publish, base, free)
  return redis.call('EXISTS', line) == 1 and { 'tend', 0, answer } or answer
end
