-- The requests of one job, for wrk. Arguments: METHOD TARGET BODY EXPECTED_STATUS, then the ids:
-- `sequential FIRST` or `random SEED LANE`. The ids are those of ids.ts.

local bit = require('bit')
local sends_id_in_target, sends_id_in_body
local next_id, expected_status
local method, target, body, head

-- Global, since wrk reads them from here when the run is over.
unexpected = 0
local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

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

function init(args)
  method, target, body = args[1], args[2], args[3]
  expected_status = tonumber(args[4])
  if args[5] == 'random' then
    next_id = random(tonumber(args[6]), tonumber(args[7]))
  else
    next_id = sequential(tonumber(args[6]))
  end
  sends_id_in_target = target:find('{id}', 1, true) ~= nil
  sends_id_in_body = body:find('{id}', 1, true) ~= nil
  target, body = target:gsub('{id}', '%%d'), body:gsub('{id}', '%%d')
  head = ''
  for name, value in pairs(wrk.headers) do
    head = head .. name .. ': ' .. value .. '\r\n'
  end
end

function request()
  local id = next_id()
  local line = method .. ' ' .. (sends_id_in_target and target:format(id) or target) .. ' HTTP/1.1\r\n'
  if body == '' then
    return line .. head .. '\r\n'
  end
  local content = sends_id_in_body and body:format(id) or body
  return line .. head .. 'Content-Length: ' .. #content .. '\r\n\r\n' .. content
end

function response(status)
  if status ~= expected_status then
    unexpected = unexpected + 1
  end
end

function done(summary, latency)
  local failures = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  for _, thread in ipairs(threads) do
    failures = failures + thread:get('unexpected')
  end
  io.write(string.format(
    '{"answers":%d,"seconds":%f,"p50Ms":%f,"p99Ms":%f,"failures":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, failures))
end
