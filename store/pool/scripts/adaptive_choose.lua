at = after + 8 * count
moded = true
local leases = 6
local names = call('ZRANGE', KEYS[3], '0', '-1')
local list, weights = everyone(KEYS[4], names), call('GET', KEYS[5]) or ''
local usual = base(list) -- also by those that are excluded
local effective, total, usable, none = {}, 0, 0, -2
for i, m in ipairs(names) do
  if not out or not out[m] then
    local given = unpack('<d', weights, i * 16 - 15)
    none = -3
    if given > 0 then
      effective[i] = weighed(list[i], usual) * given
      total = total + 1
      if list[i].state < 2 then usable = usable + 1 end
    end
  end
end
local all = usable < panic * total
local function choose(n)
  local sum, last = 0, nil
  for i, o in ipairs(list) do
    if effective[i] then
      if o.state == 2 and not all and now >= o.back and now - o.trial >= 1000000 then
        o.trial = now
        call('HSET', KEYS[4], names[i], written(o))
        return names[i], 1
      end
      if o.state < 2 or all then sum, last = sum + effective[i], i end
    end
  end
  if not last then return nil, none end
  local rest = unpack('<d', ARGV[1], after + 8 * (n - 1)) * sum
  for i, o in ipairs(list) do
    if effective[i] and (o.state < 2 or all) then
      rest = rest - effective[i]
      if rest < 0 then
        last = i
        break
      end
    end
  end
  return names[last], all and 2 or 0
end
local keep
