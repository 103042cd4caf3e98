local function took(o, latency)
  if latency > 0 then o.L, o.n = o.L + latency, o.n + 1 end
end

local function succeeded(o, latency, usual)
  took(o, latency)
  o.row = 0
  local _, mean = weighed(o, usual)
  local slow = o.C > 10 and mean > factor * usual
  if o.state == 2 then
    if now < o.back then return end
    o.good = o.good + 1
    if o.good >= 3 then o.state, o.clean, o.F = 1, now, 0 end
  elseif o.state == 1 then
    if slow or mean > 1.5 * usual or o.C > 10 and o.F / (o.C + 20) > rate then
      o.clean = now
    elseif now - o.clean >= recover then
      o.state, o.ejections = 0, 0
    end
  elseif slow then
    o.state, o.clean = 1, now
  end
end

local names, list = {}, {}
if not ARGV[2] or baseline == 0 then
  if unpack('<d', call('GET', KEYS[4]), 73) == 1 then return {-25} end -- of many members the gateway computes it
  names = call('ZRANGE', KEYS[1], '0', '-1')
  list = everyone(KEYS[2], names)
end
local usual = base(list) -- of the moment before: all reports of a request are of one
local reply = {}

if not ARGV[2] then
  for i, m in ipairs(names) do
    local w, latency = weighed(list[i], usual)
    reply[i] = pack('<ddddddc0', list[i].state, w, latency, 0, list[i].ejections, #m, m)
  end
  return table.concat(reply)
end

local at, changed, other = 1, {}, false
while at <= #ARGV[2] do
  local outcome, latency, saturation, length, from = unpack('<dddd', ARGV[2], at)
  local m = sub(ARGV[2], from, from + length - 1)
  at = from + length
  local o = changed[m]
  if not o and call('ZSCORE', KEYS[1], m) then o = read(call('HGET', KEYS[2], m)) end
  if o then
    local before = o.state
    o.C = o.C + 1
    if saturation >= 0 then o.S, o.s = o.S + saturation, o.s + 1 end
    if outcome == 0 then
      succeeded(o, latency, usual)
    else
      if outcome == 2 then took(o, latency) end -- it was waited for
      failed(o)
    end
    changed[m], other = o, other or before ~= o.state
    local w, mean = weighed(o, usual)
    reply[#reply + 1] = pack('<ddddd', o.state, w, mean, before ~= o.state and 1 or 0, o.ejections)
  else
    reply[#reply + 1] = pack('<ddddd', 3, 0, 0, 0, 0)
  end
end
if other then call('DEL', KEYS[3]) end
for m, o in pairs(changed) do call('HSET', KEYS[2], m, written(o)) end
return table.concat(reply)
