-- The requests of one job, for wrk. Arguments: `sequential FIRST ''` or `random SEED LANE`, the ids being those of ids.ts;
-- a file of tokens, all equally long, or ''; then METHOD TARGET KEY BODY TIMES for each kind of request.
-- KEY is its Idempotency-Key, or ''.

local bit = require('bit')
local next_id
local head = ''
local cycle, position = {}, 0

local function sequential(first)
  local id = first - 1
  return function()
    id = id + 1
    return id
  end
end

local function random(seed, lane)
  local state = seed
  return function()
    state = bit.bxor(state, bit.lshift(state, 13))
    state = bit.bxor(state, bit.rshift(state, 17))
    state = bit.bxor(state, bit.lshift(state, 5))
    return 2 ^ 43 + state % 2 ^ 32 * 1024 + lane
  end
end

-- A function that gives the header of the next token, or nothing to show. Reads the file meanwhile: it may be large.
local function tokens(name, first)
  if name == '' then
    return function() return '' end
  end
  local file = assert(io.open(name))
  local line = #file:read('*l') + 1
  local lines = math.ceil(file:seek('end') / line)
  file:seek('set', first % lines * line)
  return function()
    local secret = file:read('*l')
    if not secret then
      file:seek('set')
      secret = file:read('*l')
    end
    return 'Authorization: Bearer ' .. secret .. '\r\n'
  end
end

local function writer(method, target, key, body, next_token)
  local key_line = key == '' and '' or 'Idempotency-Key: ' .. key:gsub('{id}', '%%d') .. '\r\n'
  target, body = target:gsub('{id}', '%%d'), body:gsub('{id}', '%%d')
  local sends_id_in_target, sends_id_in_body = target:find('%%d'), body:find('%%d')
  return function()
    local id = (sends_id_in_target or sends_id_in_body) and next_id()
    local line = method .. ' ' .. (sends_id_in_target and target:format(id) or target) .. ' HTTP/1.1\r\n'
    if body == '' then
      return line .. next_token() .. head .. '\r\n'
    end
    local content = sends_id_in_body and body:format(id) or body
    return line .. next_token() .. head .. key_line:format(id) .. 'Content-Type: application/json\r\nContent-Length: ' .. #content .. '\r\n\r\n' .. content
  end
end

function init(args)
  if args[1] == 'random' then
    next_id = random(tonumber(args[2]), tonumber(args[3]))
  else
    next_id = sequential(tonumber(args[2]))
  end
  for name, value in pairs(wrk.headers) do
    head = head .. name .. ': ' .. value .. '\r\n'
  end
  local next_token = tokens(args[4], tonumber(args[2]))
  for first = 5, #args, 5 do
    local request_of = writer(args[first], args[first + 1], args[first + 2], args[first + 3], next_token)
    for _ = 1, tonumber(args[first + 4]) do
      table.insert(cycle, request_of)
    end
  end
end

function request()
  position = position % #cycle + 1
  return cycle[position]()
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"answers":%d,"seconds":%f,"p50Ms":%f,"p99Ms":%f,"failures":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.connect + errors.read + errors.write + errors.timeout + errors.status))
end
