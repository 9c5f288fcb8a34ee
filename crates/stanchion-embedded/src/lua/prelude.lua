-- Builds the environment of scripts. Runs once per interpreter, with the standard library as globals.
-- Arguments: the functions of the host; the tables `string` and `table` of scripts. Returns the environment of scripts, the
-- table that holds KEYS and ARGV, and the function that runs a script.
local host, strings, tables = ...
local error, pcall, xpcall, setmetatable, rawset, type, tostring = error, pcall, xpcall, setmetatable, rawset, type, tostring
local loadstring, setfenv, sub, concat = loadstring, setfenv, string.sub, table.concat
local resume, unpack, tonumber = coroutine.resume, unpack, tonumber

local sealed = setmetatable({}, { __mode = 'k' })

local READONLY = 'Attempt to modify a readonly table'

local function refuse()
  error(READONLY, 2)
end

-- A view of a table that cannot be written to.
local function seal(table)
  local view = setmetatable({}, { __index = table, __newindex = refuse, __metatable = false })
  sealed[view] = true
  return view
end

-- Errors of redis.call become tables when a script catches them. The error of a script that ran for too long is not caught:
-- `host.caught` raises it again. So every function that catches errors for scripts has to use this one.
local function settle(ok, ...)
  if ok then return true, ... end
  return false, host.caught((...))
end

local redis = {
  call = host.call,
  pcall = host.pcall,
  sha1hex = host.sha1hex,
  error_reply = host.error_reply,
  status_reply = host.status_reply,
  log = host.log,
  replicate_commands = function() return true end,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REDIS_VERSION = '7.0.15', REDIS_VERSION_NUM = 0x0007000f,
}

local maths = {}
for name, value in pairs(math) do maths[name] = value end
maths.random, maths.randomseed = host.random, host.randomseed

local coroutines = {}
for name, value in pairs(coroutine) do coroutines[name] = value end
function coroutines.resume(...) return settle(resume(...)) end

local scope = {
  assert = assert, collectgarbage = collectgarbage, error = error, gcinfo = gcinfo, getmetatable = getmetatable,
  ipairs = ipairs, next = next, pairs = pairs, rawequal = rawequal, rawget = rawget, select = select,
  tonumber = tonumber, tostring = tostring, type = type,
  _VERSION = _VERSION,
  coroutine = seal(coroutines), math = seal(maths), redis = seal(redis), string = seal(strings), table = seal(tables),
  struct = seal({ pack = host.struct_pack, unpack = host.struct_unpack, size = host.struct_size }),
}
local environment

-- As in Redis 7.0, pcall gives the text of an error table; xpcall and coroutines give the table.
local function settle_as_text(ok, ...)
  if ok then return true, ... end
  local problem = host.caught((...))
  local text = type(problem) == 'table' and problem.err
  if type(text) == 'string' then return false, text end
  return false, problem
end

function scope.pcall(...) return settle_as_text(pcall(...)) end

-- Lua 5.1 computes the number of results in 32 bits: past that it would overwrite its own stack.
function scope.unpack(list, first, last)
  if type(list) ~= 'table' then
    local given = list == nil and 'no value' or type(list)
    error("bad argument #1 to 'unpack' (table expected, got " .. given .. ')', 2)
  end
  local from, to = tonumber(first or 1), tonumber(last or #list)
  if from and to and not (to < from) and not (from > -2^31 and to < 2^31 and to - from < 8000) then
    error('too many results to unpack', 2)
  end
  return unpack(list, first, last)
end

-- Not Lua's own: that runs the handler where the error was raised, without a hook, so no limit applies to a handler of the hook's error.
function scope.xpcall(body, handler)
  local function handled(ok, ...)
    if ok then return true, ... end
    local _, answer = settle(pcall(handler, host.caught((...))))
    return false, answer
  end
  return handled(pcall(body))
end

function scope.rawset(table, key, value)
  if sealed[table] then error(READONLY, 0) end
  return rawset(table, key, value)
end

function scope.setmetatable(table, metatable)
  if sealed[table] then error(READONLY, 0) end
  return setmetatable(table, metatable)
end

-- Compiled code could break out of the interpreter, so only source is loaded.
function scope.loadstring(source, name)
  if type(source) == 'string' and sub(source, 1, 1) == '\27' then return nil, 'bad binary format' end
  -- No hook runs during the compilation: 1 MiB takes some 30 ms.
  if type(source) == 'string' and #source > 1048576 then return nil, 'source too long' end
  local chunk, problem = loadstring(source, name)
  if chunk then setfenv(chunk, environment) end
  return chunk, problem
end

function scope.load(reader, name)
  local parts = {}
  while true do
    local part = reader()
    if part == nil or part == '' then break end
    parts[#parts + 1] = part
  end
  return scope.loadstring(concat(parts), name or '=(load)')
end

setmetatable(scope, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
environment = seal(scope)
rawset(scope, '_G', environment)
rawset(scope, 'KEYS', {})
rawset(scope, 'ARGV', {})

-- The string methods are shared by all scripts: ('x'):rep must not be replaced by one of them.
getmetatable('').__index = strings
getmetatable('').__metatable = false

local locate = host.locate
return environment, scope, function(script) return xpcall(script, locate) end
