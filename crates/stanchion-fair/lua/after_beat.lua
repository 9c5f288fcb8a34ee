if us > ARGV[5] + 0 then return -1 end
read_holder()
-- R8: first, a write that passes at maxmemory.
call('ZREM', heard, '')
mark(process(ARGV[4]), true)
local look = settle()
local forgotten = holder ~= ARGV[4] and not call('ZSCORE', timeouts, ARGV[4])
return busy(ARGV[4], look >= 0 and look or left, forgotten)
