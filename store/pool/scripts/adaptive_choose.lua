at = after + 8 * count
moded = true
local leases = 7
local never = 9007199254740992
local sums, made, next_trial, all = not out and call('GET', KEYS[6]), 0, 0, 0
if sums then
  made, next_trial, all = unpack('<ddd', sums)
  if now < made or now - made >= 200000 or now >= next_trial then sums = nil end
end

local names, list, effective, none -- of all, if as was not good
local full -- who has all the leases that it may have, if somebody was about to be chosen who has; they are passed over
local size, total
-- saturated says whether m has all the leases that it may have.
local function saturated(m)
  return ttl > 0 and most > 0 and tonumber(call('ZSCORE', KEYS[leases], m) or 0) >= most
end
-- set_next finds when the next trial is due.
local function set_next()
  next_trial = never
  for i, o in ipairs(list) do
    if all == 0 and effective[i] and o.state == 2 then next_trial = math.min(next_trial, math.max(o.back, o.trial + 1000000)) end
  end
end
-- weigh makes the sums.
local function weigh()
  names, effective, none = call('ZRANGE', KEYS[3], '0', '-1'), {}, -2
  list = everyone(KEYS[4], names)
  local weights, usual, count_all, usable = call('GET', KEYS[5]) or '', base(list), 0, 0 -- usual also by those that are excluded
  for i, m in ipairs(names) do
    if not out or not out[m] then
      local given = unpack('<d', weights, i * 16 - 15)
      none = -3
      if given > 0 then
        effective[i] = weighed(list[i], usual) * given
        count_all = count_all + 1
        if list[i].state < 2 then usable = usable + 1 end
      end
    end
  end
  all = usable < panic * count_all and 1 or 0
  local sum, upto = 0, {}
  for i, o in ipairs(list) do
    if effective[i] and (o.state < 2 or all == 1) then
      if full and full[names[i]] then none = -5 else sum = sum + effective[i] end
    end
    upto[i] = sum
  end
  set_next()
  sums = pack('<ddd', 0, 0, 0) .. pack('<' .. string.rep('d', #upto), _G.unpack(upto))
end
local function measure()
  size = #sums / 8 - 3
  total = size > 0 and unpack('<d', sums, #sums - 7) or 0
end

if not sums then weigh() end
measure()

local function choose(n)
  if now >= next_trial then
    for i, o in ipairs(list) do
      if effective[i] and o.state == 2 and now >= o.back and now - o.trial >= 1000000 and not saturated(names[i]) then
        o.trial = now
        call('HSET', KEYS[4], names[i], written(o))
        set_next()
        return names[i], 1
      end
    end
  end
  for _ = 1, 2 do
    if total == 0 then return nil, none end
    local i = found(sums, 25, size, unpack('<d', ARGV[1], after + 8 * n - 8) * total)
    local m = names and names[i] or call('ZRANGE', KEYS[3], i - 1, i - 1)[1]
    if not saturated(m) then return m, all * 2 end
    full = {}
    for _, crowded in ipairs(call('ZRANGEBYSCORE', KEYS[leases], most, '+inf')) do full[crowded] = true end
    weigh()
    measure()
  end
  return nil, none
end
local function keep()
  if names and not out and not full then call('SET', KEYS[6], pack('<ddd', now, next_trial, all) .. sub(sums, 25)) end
end
if bound then
  local weighs = fits
  fits = function(m) return weighs(m) and read(call('HGET', KEYS[4], m)).state < 2 and not saturated(m) end
end
