-- Decides a take, a peek or a refund against all rules of a limit at once.
-- KEYS: 1 or 2 hashes with a field for each rule; last, if ARGV[5] is not '', the record of the Idempotency-Key.
-- ARGV: 1 mode take|peek|refund|undo (refund that forgets the record), 2 cost, 3 the least that may be granted, 4 the clock in us of
-- a test, otherwise '', 5 head of the record or '', 6 its life in ms, 7 what it keeps behind the answer, 8 how many rules are in
-- KEYS[1]; then 9 for each rule: field, kind bucket|shaper|fixed|first|sliding, limit, period in us, period in units, us in a unit,
-- burst, longest wait in units, offset in us.
-- Returns {1 allowed or 0, granted, number of the rule that gives the least or 0, then for each rule: remaining, us until it is
-- reset, us until a refused take would pass or -1, us to wait}, or {-20, the record without its head}, or {-21}: it is another's.
--
-- All numbers are integers up to 2^53: doubles hold them, and floor(a / b) and ceil(a / b) are then those of the true quotient, since
-- it misses an integer by 1/b at least, more than half the distance of doubles there. exact.go chooses units so that it holds.
-- State of a bucket: b<level>:<time in us>:<period>; level is in tokens times units, `limit` of it drain in a unit.
-- State of a window: w<start in us>:<period in us>:<count>:<count of the window before>.
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local call, match, format = redis.call, string.match, string.format
local most = 9007199254740992
local forever = 4503599627370496 -- us, 143 years: no answer is longer
local jitter = 5000000 -- a clock that steps back by up to 5 s is waited for; one further back is believed, or limits would hang
local mode, cost, least = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local first, width = 9, 9

if ARGV[5] ~= '' and mode ~= 'undo' then
  local record = call('GET', KEYS[#KEYS])
  if record then
    if string.sub(record, 1, #ARGV[5]) ~= ARGV[5] then return {-21} end
    return {-20, string.sub(record, #ARGV[5] + 1)}
  end
end

local now = tonumber(ARGV[4])
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

-- rescale keeps the tokens of a level whose period was edited. The part of a token is rounded, as Go rounds it.
local function rescale(level, period, new)
  local tokens = floor(level / period)
  local part = level - tokens * period
  return min(tokens, floor(most / new) - 1) * new + min(new, ceil(part / period * new))
end

local function openBucket(r, kind, level, ts, period)
  if kind ~= 'b' then level, ts, period = 0, now, r.period end
  if period ~= r.period then level = rescale(level, period, r.period) end
  if ts - now > jitter then ts, r.moved = now, true end
  if level == 0 then ts = now end
  if now > ts then
    local units = floor((now - ts) / r.unit)
    if units >= ceil(level / r.limit) then
      level, ts = 0, now
    else
      level, ts = level - units * r.limit, ts + units * r.unit
    end
  end
  r.level, r.ts = level, ts
  r.most = r.burst * r.period + r.limit * r.wait
  return level < r.most and floor((r.most - level) / r.period) or 0
end

local function openWindow(r, kind, start, micros, count, before)
  local origin = now
  if r.kind ~= 'first' then origin = floor((now + r.offset) / r.micros) * r.micros - r.offset end
  if kind ~= 'w' then
    count, before = 0, 0
  elseif start > now then
    if start - now <= jitter then origin = start else r.moved = true end
  elseif r.kind == 'first' then
    if now < start + r.micros then origin = start else count, before = 0, 0 end
  elseif start + micros == origin and micros == r.micros then
    count, before = 0, count
  elseif start ~= origin or micros ~= r.micros then -- long ago, or edited: then what is counted at the moment stays
    count, before = now < start + micros and count or 0, 0
  end
  r.start, r.count, r.before = origin, count, before
  if r.kind ~= 'sliding' then return max(0, r.limit - count) end
  r.count, r.before = min(count, r.limit), min(before, r.limit)
  local left = r.period - max(0, floor((now - origin) / r.unit))
  return max(0, r.limit - r.count - ceil(r.before * left / r.period))
end

local function readRule(i)
  return {field = ARGV[i], kind = ARGV[i + 1], limit = tonumber(ARGV[i + 2]), micros = tonumber(ARGV[i + 3]), period = tonumber(ARGV[i + 4]),
    unit = tonumber(ARGV[i + 5]), burst = tonumber(ARGV[i + 6]), wait = tonumber(ARGV[i + 7]), offset = tonumber(ARGV[i + 8])}
end

-- openRule finds how a rule stands now, and how many tokens it could give.
local function openRule(r, state)
  local kind, a, b, c, d
  if state then
    kind, a, b, c, d = match(state, '^(%a)(%d+):(%d+):(%d+):?(%d*)$')
    a, b, c, d = tonumber(a), tonumber(b), tonumber(c), tonumber(d)
  end
  r.bucket = r.kind == 'bucket' or r.kind == 'shaper'
  r.can = (r.bucket and openBucket or openWindow)(r, kind, a, b, c, d)
end

-- openHash reads the rules from..to, which are in one hash. One rule, the common case, needs no list.
local rules = {}
local function openHash(key, from, to)
  if from == to then
    rules[from] = readRule(first + (from - 1) * width)
    return openRule(rules[from], call('HGET', key, rules[from].field))
  end
  local fields = {}
  for n = from, to do
    rules[n] = readRule(first + (n - 1) * width)
    fields[n - from + 1] = rules[n].field
  end
  local states = call('HMGET', key, unpack(fields))
  for n = from, to do openRule(rules[n], states[n - from + 1]) end
end
local count, own = (#ARGV - first + 1) / width, tonumber(ARGV[8])
openHash(KEYS[1], 1, own)
if own < count then openHash(KEYS[2], own + 1, count) end

-- The decision: all rules or none.
local allowed, granted, limiting = 1, cost, 0
local consumed = 0
if mode == 'take' or mode == 'peek' then
  for n = 1, count do
    if rules[n].can < granted then granted, limiting = rules[n].can, n end
  end
  if granted < least then allowed, granted = 0, 0 end
  if mode == 'take' then consumed = granted end
else
  granted, consumed = 0, -cost
end

local function retryWindow(r)
  if least > r.limit then return -1 end
  local at = r.start + r.micros
  if r.kind == 'sliding' and r.count <= r.limit - least then -- a sum could be over 2^53
    at = r.start + min(r.micros, (r.period - floor((r.limit - r.count - least) * r.period / r.before)) * r.unit)
  elseif r.kind == 'sliding' then
    at = at + min(r.micros, (r.period - min(r.period, floor((r.limit - least) * r.period / r.count))) * r.unit)
  end
  return at - now
end

local function closeWindow(r)
  local retry = (allowed == 0 and r.can < least) and retryWindow(r) or 0
  r.count = max(0, r.count + consumed)
  local remaining, reset = 0, 0
  if r.kind == 'sliding' then
    local left = r.period - max(0, floor((now - r.start) / r.unit))
    remaining = r.limit - r.count - ceil(r.before * left / r.period)
    if r.count > 0 then reset = r.start + 2 * r.micros - now elseif r.before > 0 then reset = r.start + r.micros - now end
  else
    remaining = r.limit - r.count
    if r.count > 0 then reset = r.start + r.micros - now end
  end
  return max(0, remaining), reset, retry, 0
end

-- after is how long it takes until so much of a level has drained, from now on. The level is that of r.ts: less than a unit ago, or
-- in the future, if the clock went back.
local function after(r, level)
  return r.ts - now + min(ceil(level / r.limit), floor(forever / r.unit)) * r.unit
end

local function closeBucket(r)
  local retry, wait = 0, 0
  if allowed == 0 and r.can < least then
    local need = least <= floor(r.most / r.period) and least * r.period
    retry = need and after(r, r.level - (r.most - need)) or -1
  end
  local full = r.kind == 'shaper' and r.most or r.burst * r.period
  if granted > 0 then -- never more than fits
    local late = r.kind == 'shaper' and r.level or r.level + granted * r.period - full
    if late > 0 then wait = after(r, late) end
  end
  if consumed > 0 then
    r.level = r.level + consumed * r.period
  elseif consumed < 0 then
    r.level = -consumed >= ceil(r.level / r.period) and 0 or r.level + consumed * r.period
  end
  local remaining = r.level < full and floor((full - r.level) / r.period) or 0
  local reset = r.level > 0 and after(r, r.level) or 0
  return remaining, reset, retry, wait
end

local out = {allowed, granted, (allowed == 0 or granted < cost) and limiting or 0, 0, 0, 0, 0}
for n = 1, count do
  local r = rules[n]
  local at = n * 4
  out[at], out[at + 1], out[at + 2], out[at + 3] = (r.bucket and closeBucket or closeWindow)(r)
end

-- Only now anything is written. A refusal writes nothing, except a clock that was set back.
if mode == 'peek' then return out end
local function writeHash(key, from, to)
  local words, life = {}, 0
  for n = from, to do
    local r = rules[n]
    life = max(life, out[n * 4 + 1])
    if consumed ~= 0 or r.moved then
      words[#words + 1] = r.field
      if r.bucket then
        words[#words + 1] = format('b%.0f:%.0f:%.0f', r.level, r.ts, r.period)
      else
        words[#words + 1] = format('w%.0f:%.0f:%.0f:%.0f', r.start, r.micros, r.count, r.before)
      end
    end
  end
  if #words == 0 then return end
  call('HSET', key, unpack(words))
  call('PEXPIRE', key, format('%.0f', ceil(life / 1000) + 1000))
end
writeHash(KEYS[1], 1, own)
if own < count then writeHash(KEYS[2], own + 1, count) end

if ARGV[5] ~= '' and mode == 'undo' then
  call('DEL', KEYS[#KEYS])
elseif ARGV[5] ~= '' and allowed == 1 then
  local parts = {}
  for i = 1, #out do parts[i] = format('%.0f', out[i]) end
  call('SET', KEYS[#KEYS], ARGV[5] .. table.concat(parts, ',') .. ';' .. ARGV[7], 'PX', ARGV[6])
end
return out
