local reply = farewell(ARGV[4], found, freed)
-- The next waiter polls in place of the one that has left.
if was_first and left ~= -2 then pcall(watch, left) end
return unless_unfinished(reply)
