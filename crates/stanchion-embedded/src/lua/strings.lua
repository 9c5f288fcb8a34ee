-- The functions of strings and tables that would run without a bound as C functions: no hook stops them. Those that search
-- for patterns use the matcher of the host, which has a budget. The results and the errors are those of Lua 5.1.
-- Arguments: the functions of the host. Returns the tables `string` and `table` of scripts.
local host = ...
local error, type, tostring, tonumber, select, unpack = error, type, tostring, tonumber, select, unpack
local sub, byte, concat, sort = string.sub, string.byte, table.concat, table.sort
local seek, seek_plain, is_plain = host.seek, host.seek_plain, host.is_plain

-- The captures that a search returns: those of the pattern, or else the whole match; or only those of the pattern. Where
-- captures are taken one by one, a capture without an end is `false` and no error.
local FIND, MATCH, TEMPLATE, KEY = 0, 1, 2, 3

local function refused(name, number, count, value, wanted, level)
  local given = number > count and 'no value' or type(value)
  error('bad argument #' .. number .. " to '" .. name .. "' (" .. wanted .. ' expected, got ' .. given .. ')', level or 4)
end

local function as_text(name, number, count, value)
  if type(value) == 'string' then return value end
  if type(value) == 'number' then return tostring(value) end
  refused(name, number, count, value, 'string')
end

-- A number, cut to a whole one as C does. `default` for nil.
local function as_whole(name, number, count, value, default)
  if value == nil and default then return default end
  local whole = (type(value) == 'number' or type(value) == 'string') and tonumber(value)
  if not whole then refused(name, number, count, value, 'number') end
  if whole < 0 then return -(-whole - -whole % 1) end
  return whole - whole % 1
end

-- Where a search begins: counted from the end if negative, and within the text.
local function within(at, length)
  if at < 0 then at = at + length + 1 end
  if not (at >= 1) then return 1 end
  return at > length + 1 and length + 1 or at
end

local strings = {}
for name, value in pairs(string) do strings[name] = value end

function strings.find(...)
  local count, text, pattern, init, plain = select('#', ...), ...
  text, pattern = as_text('find', 1, count, text), as_text('find', 2, count, pattern)
  local at = within(as_whole('find', 3, count, init, 1), #text)
  if plain or is_plain(pattern) then
    local first = seek_plain(text, pattern, at)
    if not first then return nil end
    return first, first + #pattern - 1
  end
  local anchored = byte(pattern) == 94
  if anchored then pattern = sub(pattern, 2) end
  local problem, first, last, captures = seek(text, pattern, at, anchored, FIND)
  if problem then error(problem, 2) end
  if not first then return nil end
  if not captures then return first, last end
  return first, last, unpack(captures)
end

function strings.match(...)
  local count, text, pattern, init = select('#', ...), ...
  text, pattern = as_text('match', 1, count, text), as_text('match', 2, count, pattern)
  local at = within(as_whole('match', 3, count, init, 1), #text)
  local anchored = byte(pattern) == 94
  if anchored then pattern = sub(pattern, 2) end
  local problem, first, _, captures = seek(text, pattern, at, anchored, MATCH)
  if problem then error(problem, 2) end
  if not first then return nil end
  return unpack(captures)
end

function strings.gmatch(...)
  local count, text, pattern = select('#', ...), ...
  text, pattern = as_text('gmatch', 1, count, text), as_text('gmatch', 2, count, pattern)
  local at, length = 1, #text
  return function()
    if at > length + 1 then return end
    local problem, first, last, captures = seek(text, pattern, at, false, MATCH)
    if problem then error(problem, 2) end
    if not first then
      at = length + 2
      return
    end
    at = last + (last < first and 2 or 1)
    return unpack(captures)
  end
end
strings.gfind = strings.gmatch

-- Splits the text of a replacement into literal texts and numbers of captures.
local function parts_of(replacement)
  local parts, at = {}, 1
  while true do
    local percent = seek_plain(replacement, '%', at)
    if not percent then break end
    if percent > at then parts[#parts + 1] = sub(replacement, at, percent - 1) end
    local next = sub(replacement, percent + 1, percent + 1)
    -- A percent sign at the end is followed by the zero byte that ends strings in C.
    parts[#parts + 1] = next == '' and '\0' or tonumber(next) or next
    at = percent + 2
  end
  if at <= #replacement then parts[#parts + 1] = sub(replacement, at) end
  return parts
end

function strings.gsub(...)
  local count, text, pattern, value, most = select('#', ...), ...
  text, pattern = as_text('gsub', 1, count, text), as_text('gsub', 2, count, pattern)
  local length, kind = #text, type(value)
  most = as_whole('gsub', 4, count, most, length + 1)
  local parts, mode
  if kind == 'string' or kind == 'number' then
    parts, mode = parts_of(tostring(value)), TEMPLATE
  elseif kind == 'function' then
    mode = MATCH
  elseif kind == 'table' then
    mode = KEY
  else
    error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
  end
  local anchored = byte(pattern) == 94
  if anchored then pattern = sub(pattern, 2) end
  local out, many, at = {}, 0, 1
  while many < most do
    local problem, first, last, captures = seek(text, pattern, at, anchored, mode)
    if problem then error(problem, 2) end
    if not first then break end
    many = many + 1
    if first > at then out[#out + 1] = sub(text, at, first - 1) end
    if parts then
      for i = 1, #parts do
        local part = parts[i]
        if type(part) == 'number' then
          if part == 0 or part == 1 and not captures then
            part = sub(text, first, last)
          else
            part = captures and captures[part]
            if part == nil then error('invalid capture index', 2) end
            if not part then error('unfinished capture', 2) end
          end
        end
        out[#out + 1] = part
      end
    else
      local result
      if mode == KEY and not captures[1] then error('unfinished capture', 2) end
      if mode == KEY then result = value[captures[1]] else result = value(unpack(captures)) end
      if not result then
        result = sub(text, first, last)
      elseif type(result) ~= 'string' and type(result) ~= 'number' then
        error('invalid replacement value (a ' .. type(result) .. ')', 2)
      end
      out[#out + 1] = result
    end
    if last >= first then
      at = last + 1
    elseif first <= length then
      out[#out + 1] = sub(text, first, first)
      at = first + 1
    else
      at = first
      break
    end
    if anchored then break end
  end
  out[#out + 1] = sub(text, at)
  return concat(out), many
end

function strings.rep(...)
  local count, text, times = select('#', ...), ...
  local result = host.rep(as_text('rep', 1, count, text), as_whole('rep', 2, count, times))
  return result or error('not enough memory', 0)
end

-- In C these copy one byte after the other.
for _, name in ipairs { 'lower', 'upper', 'reverse' } do
  local change = host[name]
  strings[name] = function(...) return change(as_text(name, 1, select('#', ...), (...))) end
end

local tables = {}
for name, value in pairs(table) do tables[name] = value end

-- With a function that compares, instructions run between two comparisons, and with them the hook.
local function less(a, b) return a < b end

function tables.sort(...)
  local count, list, before = select('#', ...), ...
  if type(list) ~= 'table' then refused('sort', 1, count, list, 'table', 3) end
  if before ~= nil and type(before) ~= 'function' then refused('sort', 2, count, before, 'function', 3) end
  local ok, problem = pcall(sort, list, before or less)
  if ok then return end
  problem = host.caught(problem)
  -- The position is this file's; the error of a C function has none.
  if type(problem) == 'string' then problem = strings.gsub(problem, '^prelude:%d+: ', '') end
  error(problem, 0)
end

return strings, tables
