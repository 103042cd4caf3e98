-- Changes members of a pool, or, with no ARGV[2], lets those come back that have cooled.
-- KEYS: 1 st, 2 m, 3 cnt, 4 ring, 5 w, 6 off, 7 cool, 8 inf, 9 ioff, 10 a, 11 ws, 12 as, 13 gone.
-- ARGV: 1 doubles: the clock in us of a test, otherwise 0; restore: 0 catchup, 1 keep, 2 zero, 3 min. 2 for each change doubles: kind: 0
-- adds or changes, 1 changes, 2 removes, 3 removes with its history; weight, initial count, available, us to cool, each -1 = as it is;
-- length of the member, length of its meta, -1 = as it is; then both.
-- Returns for each change: 0 there is no such member, 1 added, 2 changed, 3 nothing to change, 4 removed, 5 not added, the pool is full. When
-- members come back: how many. Or {-24}: there is no such pool.
local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local now, restore = unpack('<dd', ARGV[1])
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local state = call('GET', KEYS[1])
if not state then return {-24} end
local wake, cursor, place, level, fence, due, abandoned, last, described, large, epoch, turn, length, plan = unpack('<dddddddddddddd', state)
local weights = call('GET', KEYS[5]) or ''
local reset = false -- what was made of members and weights begins anew

-- lowest is the least count of the eligible.
local function lowest()
  return tonumber(call('ZRANGE', KEYS[3], '0', '0', 'WITHSCORES')[2]) or 0
end

-- searchable makes a set of one member a skip list. As the list that small sets are, a step of a counter would read half of it: with 64
-- members twice as long as with 1,000. A name over 64 bytes does that, also when it is gone.
local function searchable(key)
  local long = string.rep('-', 65)
  call('ZADD', key, '0', long)
  call('ZREM', key, long)
end

-- enter makes m eligible. count is what it begins with if that was said, nil = what there is of it, or the least.
local function enter(m, weight, position, count)
  local old = call('ZSCORE', KEYS[6], m)
  if not count then
    local least = lowest()
    count = old and tonumber(old) or least
    if restore == 2 and old then
      count = 0
    elseif restore == 3 or restore == 0 and count < least then
      count = least
    end
  end
  if old then call('ZREM', KEYS[6], m) end
  call('ZADD', KEYS[3], count, m)
  call('ZADD', KEYS[4], position, m)
  local held = call('HGET', KEYS[9], m)
  if held then call('HDEL', KEYS[9], m) end
  call('ZADD', KEYS[8], held or '0', m)
  if weights == '' then
    searchable(KEYS[3])
    searchable(KEYS[4])
    searchable(KEYS[8])
  end
  local rank = call('ZRANK', KEYS[4], m)
  weights = sub(weights, 1, rank * 16) .. pack('<dd', weight, 0) .. sub(weights, rank * 16 + 1)
  reset = true
end

-- leave makes m ineligible; its count and its leases are put aside.
local function leave(m)
  call('ZADD', KEYS[6], call('ZSCORE', KEYS[3], m), m)
  call('ZREM', KEYS[3], m)
  local rank = call('ZRANK', KEYS[4], m)
  call('ZREM', KEYS[4], m)
  local held = call('ZSCORE', KEYS[8], m)
  if held and held ~= '0' then call('HSET', KEYS[9], m, held) end
  call('ZREM', KEYS[8], m)
  weights = sub(weights, 1, rank * 16) .. sub(weights, rank * 16 + 17)
  reset = true
end

-- cools says whether m is to cool on, after it was told to for a time in us, -1 = it was not.
local function cools(m, span)
  if span > 0 then
    call('ZADD', KEYS[7], now + span, m)
    return true
  end
  local ends = call('ZSCORE', KEYS[7], m)
  if not ends then return false end
  if span == -1 and tonumber(ends) > now then return true end
  call('ZREM', KEYS[7], m)
  return false
end

-- change does it to m, and returns what it did.
local function change(kind, weight, initial, available, span, m, meta)
  local record = call('HGET', KEYS[2], m)
  local eligible = call('ZSCORE', KEYS[3], m)
  if kind >= 2 then
    if eligible then leave(m) end
    if kind == 3 then
      call('ZREM', KEYS[6], m)
      call('ZREM', KEYS[13], m)
    elseif record and call('ZSCORE', KEYS[6], m) then
      call('ZADD', KEYS[13], now, m)
      if call('ZCARD', KEYS[13]) > 1000 then call('ZREM', KEYS[6], call('ZPOPMIN', KEYS[13])[1]) end
    end
    if not record then return 0 end
    call('ZREM', KEYS[7], m)
    call('HDEL', KEYS[2], m)
    call('HDEL', KEYS[10], m)
    return 4
  end
  if not record and kind == 1 then return 0 end
  local w, position, up, was = 1, 0, 1, ''
  if record then
    w, position, up = unpack('<ddd', record)
    was = sub(record, 25)
  else
    if call('HLEN', KEYS[2]) >= 2000 then return 5 end -- two lists of the most members, for one that replaces the other
    last = last + 1
    position = last
    call('ZREM', KEYS[13], m)
  end
  if weight >= 0 then
    if eligible and weight ~= w then
      local rank = call('ZRANK', KEYS[4], m)
      weights = sub(weights, 1, rank * 16) .. pack('<d', weight) .. sub(weights, rank * 16 + 9)
      reset = true
    end
    w = weight
  end
  if available >= 0 then up = available end
  if meta and meta ~= '' then described = 1 end
  local new = pack('<ddd', w, position, up) .. (meta or was)
  if new ~= record then call('HSET', KEYS[2], m, new) end
  local free = not cools(m, span) and up == 1
  local count = not record and initial >= 0 and initial or nil
  if free and not eligible then
    enter(m, w, position, count)
  elseif not free and eligible then
    leave(m)
  elseif not free and count then
    call('ZADD', KEYS[6], count, m)
  end
  if not record then return 1 end
  if new == record and span == -1 and free == (eligible ~= false) then return 3 end
  return 2
end

local done = {}
if ARGV[2] then
  local at, size = 1, #ARGV[2]
  while at <= size do
    local kind, weight, initial, available, span, length, more, start = unpack('<ddddddd', ARGV[2], at)
    local m, meta = sub(ARGV[2], start, start + length - 1), nil
    at = start + length
    if more >= 0 then
      meta = sub(ARGV[2], at, at + more - 1)
      at = at + more
    end
    done[#done + 1] = change(kind, weight, initial, available, span, m, meta)
  end
else
  local cooled = call('ZRANGEBYSCORE', KEYS[7], '-inf', now, 'LIMIT', '0', '100')
  for _, m in ipairs(cooled) do change(1, -1, -1, -1, -1, m, nil) end
  done[1] = #cooled
end

wake = tonumber(call('ZRANGE', KEYS[7], '0', '0', 'WITHSCORES')[2]) or 0
if reset then
  place, level = 0, 0
  -- Of more than 64 members the gateways compute what scripts would take too long for. The epoch is no lower than the time, so that a pool
  -- that was removed and made anew has another.
  large, epoch, length = #weights > 64 * 16 and 1 or 0, math.max(epoch + 1, now), 0
  call('DEL', KEYS[11], KEYS[12])
  if weights == '' then call('DEL', KEYS[5]) else call('SET', KEYS[5], weights) end
end
local new = pack('<dddddddddddddd', wake, cursor, place, level, fence, due, abandoned, last, described, large, epoch, turn, length, plan)
if new ~= state then call('SET', KEYS[1], new) end
return done
