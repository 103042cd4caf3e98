-- The gateway has drawn: Redis' own generator is not random on old servers.
local drawn = at
at = at + 8 * count
local function choose(n)
  local sum, last = 0, nil
  for i = 1, size do
    local weight = numbers[2 * i - 1]
    if weight > 0 and not skip[i] then sum, last = sum + weight, i end
  end
  if not last then return nil, nobody end
  local rest = unpack('<d', ARGV[1], drawn + 8 * (n - 1)) * sum
  for i = 1, last do
    local weight = numbers[2 * i - 1]
    if weight > 0 and not skip[i] then
      rest = rest - weight
      if rest < 0 then return at_place(i) end
    end
  end
  return at_place(last) -- rounding
end
local keep
