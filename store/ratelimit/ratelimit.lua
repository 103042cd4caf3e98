-- Decides a take, a peek or a refund against all rules of a limit at once.
-- KEYS: 1 or 2 strings with the state of rules; last, if there is ARGV[2], the record of the Idempotency-Key.
-- ARGV: 1 doubles: mode 0 take, 1 peek, 2 refund, 3 undo (refund that forgets the record); cost; the least that may be granted; the clock
-- in us of a test, otherwise 0; how many rules are in KEYS[1]; how many there are; then 7 for each rule: tag; kind 0 bucket, 1 shaper,
-- 2 fixed, 3 first, 4 sliding; limit; period in units; us in a unit; of a bucket the most that fits and the part of it that needs no
-- waiting, both in tokens times units, of a window its period and its offset in us. They are one argument, since the table ARGV grows
-- in steps that take longer than to unpack all this. With an Idempotency-Key also 2 head of its record, 3 its life in ms, 4 what it
-- keeps behind the answer.
-- Returns a string: doubles granted, the clock in us, length of the state that KEYS[1] had before, that state, and that of KEYS[2]. The
-- model in Go finds from it what to answer, at no cost to Redis. Or {-20, the record without its head}, or {-21}: it is another's.
--
-- State: for each rule five doubles: its tag, which says whether it is a bucket or a window too, then level, time in us, period and the
-- time in us when the level is 0, or start in us, period in us, count and count of the window before. A level is in tokens times units,
-- `limit` of it drain in a unit. Behind the rules stand states of rules that this call does not know, up to ten, until they count no
-- more: for a second after an edit, gateways with the old rules and with the new ones write in turn, and must not erase what the others count.
--
-- All numbers are integers up to 2^53: doubles hold them, and the quotient of two of them rounded down or up is then the true one,
-- since it misses an integer by 1/b at least, more than half the distance of doubles there. exact.go chooses units so that it holds.
-- `q - q % 1` rounds down and `q + -q % 1` up, in a tenth of the time of math.floor; they are exact as well.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local jitter = 5000000 -- a clock that steps back by up to 5 s is waited for; one further back is believed, or limits would hang
local forever = 4503599627370496 -- us, 143 years: no state lives longer
local longest = 31622400000000 -- us, the longest period; a time is later
-- The first rule is read with the call, as most limits have no other.
local mode, cost, least, now, own, count, tag, kind, limit, period, unit, most, offset, others = unpack('<ddddddddddddd', ARGV[1])
local head = ARGV[2]

if head and mode ~= 3 then
  local record = call('GET', KEYS[#KEYS])
  if record then
    if string.sub(record, 1, #head) ~= head then return {-21} end
    return {-20, string.sub(record, #head + 1)}
  end
end

if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local state, total = call('GET', KEYS[1]) or '', own < count and call('GET', KEYS[2]) or ''
if mode == 1 then return pack('<dddc0c0', 0, now, #state, state, total) end

-- Every rule gives what is wanted, of a refund a negative number, or the round finds the least that one can give, and there is another
-- round for that. So nothing is kept of a rule from one loop to the next, and the common case is a single round.
local want, granted, moved = cost, cost, false
if mode ~= 0 then want, granted = -cost, 0 end
local own_state, own_life, new, life, edited
while true do
  local can, old, place, at = want, state, 1, others
  new, life = '', 0
  for n = 1, count do
    if n == own + 1 then
      own_state, own_life = new, life
      new, life, old, place = '', 0, total, 1
    end
    if n > 1 then tag, kind, limit, period, unit, most, offset, at = unpack('<ddddddd', ARGV[1], at) end
    local known, a, b, c, d = 0, 0, 0, 0, 0
    if place + 39 <= #old then known, a, b, c, d, place = unpack('<ddddd', old, place) end
    if known ~= tag then -- it is new, or the rules were edited and it has another place
      a, b, c, d = 0, 0, 0, 0
      for other = 1, #old - 39, 40 do
        edited = true
        if unpack('<d', old, other) == tag then
          known, a, b, c, d = unpack('<ddddd', old, other)
          break
        end
      end
    end
    local gives, ends = 0, 0

    if kind < 2 then -- a level, b time, c period, d when the level is 0
      if c ~= period then
        if a > 0 then -- an edit keeps the tokens; the part of one is rounded, as Go rounds it
          local tokens = math.floor(a / c)
          a = math.min(tokens, math.floor(9007199254740992 / period) - 1) * period + math.min(period, math.ceil((a - tokens * c) / c * period))
        end
        c = period
      end
      if b - now > jitter then b, moved = now, true end
      if a == 0 then
        b = now
      elseif now > b then
        local units = (now - b) / unit
        units = units - units % 1
        local drained = units * limit -- rounded only over 2^53, where it is more than any level
        if drained >= a then a, b = 0, now else a, b = a - drained, b + units * unit end
      end
      if a < most then
        gives = (most - a) / period
        gives = gives - gives % 1
      end
      a = a + want * period
      if a > 0 then
        ends = a / limit
        ends = b - now + (ends + -ends % 1) * unit
        if ends > forever then ends = forever end
      else
        a = 0
      end
      d = now + ends
    else -- a start, b period, c count, d count before
      local origin = now
      if kind ~= 3 then origin = now - (now + offset) % most end
      if a > now then
        if a - now <= jitter then origin = a else moved = true end
      elseif kind == 3 then
        if now < a + most then origin = a else c, d = 0, 0 end
      elseif b == most and a + b == origin then
        c, d = 0, c
      elseif b ~= most or a ~= origin then -- long ago, or edited: then what is counted at the moment stays
        if now >= a + b then c = 0 end
        d = 0
      end
      a, b = origin, most
      if kind == 4 then
        gives = limit - c
        if d > 0 then
          local past = now > a and (now - a) / unit or 0
          past = (d < limit and d or limit) * (period - (past - past % 1)) / period
          gives = gives - (past + -past % 1)
          ends = a + b - now
        end
      else
        gives = limit - c
      end
      if gives < 0 then gives = 0 end
      c = c + want
      if c > 0 then
        ends = a + b - now
        if kind == 4 then ends = ends + b end
      else
        c = 0
      end
    end

    if gives < can then can = gives end
    if can == want then
      local record = pack('<ddddd', tag, a, b, c, d)
      if new == '' then new = record else new = new .. record end -- pack would copy it byte by byte
    end
    if ends > life then life = ends end
  end

  if can == want then break end
  if can >= least then
    want, granted = can, can
  else -- a refusal writes nothing, except a clock that was set back
    if not moved then return pack('<dddc0c0', 0, now, #state, state, total) end
    want, granted = 0, 0
  end
  tag, kind, limit, period, unit, most, offset = unpack('<ddddddd', ARGV[1], 49)
end

if edited or #state > 40 * own or #total > 40 * (count - own) then -- there may be states of other rules
  local function keep(old, known)
    local most = #known + 400
    for place = 1, #old - 39, 40 do
      local other, a, b, _, d = unpack('<ddddd', old, place)
      if b <= longest then d = a + 2 * b end -- a window counts in the one after it
      if d > now and #known < most then
        for n = 1, #known, 40 do
          if unpack('<d', known, n) == other then d = 0 break end
        end
        if d > 0 then known = known .. string.sub(old, place, place + 39) end
      end
    end
    return known
  end
  if own < count then own_state, new = keep(state, own_state), keep(total, new) else new = keep(state, new) end
end

-- Only now anything is written. A key lives until all is back that is known here, rounded up to ms, and a second.
life = life / 1000
life = life + -life % 1 + 1000
if own < count then
  own_life = own_life / 1000
  call('SET', KEYS[1], own_state, 'PX', own_life + -own_life % 1 + 1000)
  call('SET', KEYS[2], new, 'PX', life)
else
  call('SET', KEYS[1], new, 'PX', life)
end

local reply = pack('<dddc0c0', granted, now, #state, state, total)
if head and mode == 3 then
  call('DEL', KEYS[#KEYS])
elseif head and (granted > 0 or mode == 2) then
  -- The rules are kept too: the answer is that of the first take, though they may be edited since.
  call('SET', KEYS[#KEYS], pack('<c0dc0dc0c0', head, #reply, reply, #ARGV[1], ARGV[1], ARGV[4]), 'PX', ARGV[3])
end
return reply
