-- What is known of the health of members, and what follows from it. settings are doubles: half life, floor, us to recover, failures to be
-- ejected, us that two of them may span, us of the first ejection and of the longest, share of usable members below which all are used,
-- factor of latency and rate of errors that degrade, baseline in ms, 0 = the median of members.
-- The hash a has of each member on which there was a report 15 doubles: state 0 healthy, 1 degraded, 2 unhealthy; since when it is clean; failures in a row and
-- when the first was; then decayed: failures, calls, sum of latencies in ms, how many of them; when they were decayed; ejections; until when
-- it is ejected; trials that went well; the last trial; decayed: sum of saturations, how many of them. All times are in us.
local form = '<' .. string.rep('d', 15)
local unknown = string.rep('\0', 120)
local half, floor, recover, threshold, span, eject, longest, panic, factor, rate, baseline, after = unpack('<ddddddddddd', settings, start)

local function read(text)
  local state, clean, row, first, F, C, L, n, last, ejections, back, good, trial, S, s = unpack(form, text or unknown)
  if last == 0 then clean, last = now, now end
  local k = 2 ^ (-math.max(0, now - last) / half) -- silence forgets good and bad alike
  return {state = state, clean = clean, row = row, first = first, F = F * k, C = C * k, L = L * k, n = n * k, last = math.max(now, last),
    ejections = ejections, back = back, good = good, trial = trial, S = S * k, s = s * k}
end

-- everyone is what is known of names, in their order.
local function everyone(key, names)
  local list = #names > 0 and call('HMGET', key, _G.unpack(names)) or {}
  for i = 1, #names do list[i] = read(list[i]) end
  return list
end

local function written(o)
  return pack(form, o.state, o.clean, o.row, o.first, o.F, o.C, o.L, o.n, o.last, o.ejections, o.back, o.good, o.trial, o.S, o.s)
end

-- base is the latency in ms that is usual: the median of those that are not ejected. 0.2 ms at least, or noise would degrade the fast.
local function base(list)
  if baseline > 0 then return baseline end
  local t = {}
  for _, o in ipairs(list) do
    if o.n > 0.05 and o.state < 2 then t[#t + 1] = o.L / o.n end
  end
  table.sort(t)
  return math.max(t[math.floor((#t + 1) / 2)] or 1, 0.2)
end

-- weighed is the weight of a member, floor to 1, and its latency in ms. Five samples at the baseline and twenty successes are supposed: from
-- little evidence little follows.
local function weighed(o, b)
  local latency = (o.L + 5 * b) / (o.n + 5)
  local loss = math.max(0, (latency - b) / b) + 10 * o.F / (o.C + 20)
  if o.s > 0.05 then loss = loss + math.max(0, o.S / o.s - 0.8) * 5 end
  local w = math.max(floor, 1 - loss)
  if o.state == 1 then
    w = math.min(w, floor + (1 - floor) * math.min(1, (now - o.clean) / recover))
  elseif o.state == 2 then
    w = floor
  end
  return w, latency
end
