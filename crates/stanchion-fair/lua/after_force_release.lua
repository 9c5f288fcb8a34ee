pcall(settle, nil, nil, true)
local notice = ARGV[4]
-- @notice.lua
tell_holders('gone', '')
return unless_unfinished(1)
