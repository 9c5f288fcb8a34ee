-- The owner has left the lock and the queue; an error from here on does not change that (R15).
local settled, look, told = pcall(settle)
if not settled then return found and -1 or -2 end
return farewell(found and told or -2, look)
