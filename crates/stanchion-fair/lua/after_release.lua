-- The owner is gone from lock and queue; whatever goes wrong from here on does not bring it back (R15).
local settled, look, told = pcall(settle)
if not settled then return found and -1 or -2 end
return farewell(found and told or -2, look)
