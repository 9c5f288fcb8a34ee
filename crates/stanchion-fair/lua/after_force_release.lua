pcall(settle)
local notice = ARGV[4]
-- @notice.lua
tell_holders('gone', '')
return 1
